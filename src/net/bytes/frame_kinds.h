/* The kinds of frames and their properties. A new kind is a name here, a row in frame_kinds.c,
 * a word in docs/wire.md, and a function that receives it. */
#ifndef RPI_NET_FRAME_KINDS_H
#define RPI_NET_FRAME_KINDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum rpi_frame_kind {
    RPI_FRAME_DATA = 1,    /* elements of an operation, or an empty RTR for them */
    RPI_FRAME_HELLO,       /* first frame of a connection that is to be a link */
    RPI_FRAME_TIMED,       /* a frame within a frame: the shaping wrapper's */
    RPI_FRAME_RTS,         /* something is to be sent */
    RPI_FRAME_EAGER,       /* data that its receiver has not asked for by a CTS or RTR */
    RPI_FRAME_CTS_REQUEST, /* asks which chunks of this operation have started */
    RPI_FRAME_CTS,         /* chunks below this one have started */
    RPI_FRAME_CREDIT,      /* so many eager bytes may be sent since the link was made */
    RPI_FRAME_PROBE,       /* waits for a neighbour's vector of this round */
    RPI_FRAME_REJECT,      /* the round is over here: vectors not sent yet will not come */
    RPI_FRAME_FIN,         /* the sender has left the communicator */
    RPI_FRAME_WINDOW, /* of a window, with or without a payload; sent without being asked for */
    RPI_FRAME_NUMBER, /* the number of a communicator that is being made */
    RPI_FRAME_PING, /* asks whether the receiver is still a member; one that left answers FIN */
    RPI_FRAME_KINDS_END,
} rpi_frame_kind;

/* In which phase of a link a frame may come, and who reads it then:
 *
 *     a connection -- HELLO, each way --> a link -- frames of communicators --> its end
 *                     link/hello.c                  comm/run/receive.c, and of those that
 *                                                   are no elements each kind's receiver in
 *                                                   comm/protocol/control_frames.c; where the
 *                                                   link is shaped each comes in one that is
 *                                                   TIMED, which shaped/arrivals.c takes off
 */
typedef enum rpi_link_phase {
    RPI_FRAME_JOINING = 1, /* to a connection that is to be a link */
    RPI_FRAME_AROUND,      /* to a shaped link, around another frame */
    RPI_FRAME_TALKING,     /* to a link, of a communicator */
} rpi_link_phase;

/* Which of the two ranks of an operation sends it. */
typedef enum rpi_frame_sender {
    RPI_FRAME_FROM_EITHER = 1,
    RPI_FRAME_FROM_SENDER,   /* of the data */
    RPI_FRAME_FROM_RECEIVER, /* of the data */
    RPI_FRAME_FROM_NUMBERER, /* of a communicator that is being made */
} rpi_frame_sender;

typedef struct rpi_frame_rule {
    const char *name; /* as docs/wire.md has it */
    rpi_link_phase phase;
    rpi_frame_sender sender;
    uint32_t least_bytes, most_bytes; /* of payload; the link has a limit of its own */
    bool has_elements;                /* its payload is an operation's data */
    bool is_answered;                 /* a rank that has left the communicator says so to its
                                       * sender */
} rpi_frame_rule;

extern const rpi_frame_rule rpi_frame_rules[RPI_FRAME_KINDS_END]; /* by kind */

/* NULL: there is no such kind. */
static inline const rpi_frame_rule *rpi_frame_rule_of(int kind) {
    bool known = kind >= RPI_FRAME_DATA && kind < RPI_FRAME_KINDS_END;
    return known ? &rpi_frame_rules[kind] : NULL;
}

#endif
