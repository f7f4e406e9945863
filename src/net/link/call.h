/* One connection to a peer on its way to be a link, a step at a time and without waiting: the
 * state machine of connector.h's thread.
 *
 *     RESTING -> DIALLING -> PROVING -> ENCRYPTING -> GREETING -> PASSING -> STANDING
 *        ^          |          |            |            |  |        ^
 *        '----------+----------+------------+------------'  |        |
 *             cannot be reached now, or has hung up         |        '-- begins here where the
 *                                                           v            peer has called, and
 *                                   AWAITED: it calls us, and that counts     is welcome
 *
 * A job without a secret proves nothing, one without TLS encrypts nothing; where nothing is
 * passed behind the hellos the welcome is the end. */
#ifndef RPI_NET_CALL_H
#define RPI_NET_CALL_H

#include "net/link/hello.h"
#include "net/socket/pass_fd.h"

#include <poll.h>
#include <stdatomic.h>

typedef enum rpi_call_stage {
    RPI_CALL_RESTING,
    RPI_CALL_DIALLING,
    RPI_CALL_PROVING,
    RPI_CALL_ENCRYPTING,
    RPI_CALL_GREETING,
    RPI_CALL_PASSING,
    RPI_CALL_AWAITED, /* the other side's own call is on its way */
    RPI_CALL_STANDING,
} rpi_call_stage;

/* A connection to a peer, from its beginning until the progress owner has it. */
typedef struct rpi_call {
    struct rpi_call *next;
    struct rpi_call *beside; /* the next stream of the same link; once all stand */
    int peer, stream;
    bool is_caller;        /* this side is */
    rp_status status;      /* why it failed; RP_OK: it stands */
    char text[200];        /* the message of a failure */
    rpi_channel channel;   /* where it stands */
    int fds[RPI_PASS_FDS]; /* that came behind the hellos, and the kind's own; -1: none */
    atomic_int *shown_fd;  /* the channel's, for forked children; NULL: nobody looks */

    /* Of who goes on with it. */
    const char *address; /* borrowed; NULL: the peer has called */
    rpi_call_stage stage;
    unsigned attempts;
    int ways;         /* addresses that the peer shows; 0: not known yet */
    int refusals;     /* in a row: nobody listened */
    int misfits;      /* in a row: who answered was not the peer, or of another job */
    int poll;         /* which of its maker's polls is this one's; -1: none */
    int64_t since_ns; /* of the stage; when resting, until when */
    int64_t warn_ns;
    size_t got;
    unsigned char said[RPI_PROOF_CALL_BYTES];    /* of our proof */
    unsigned char heard[RPI_PROOF_ANSWER_BYTES]; /* its answer, and then its hello */
} rpi_call;

/* What a kind of transport does in its own way. */
typedef struct rpi_call_kind {
    /* Begin to connect, without waiting; by the n-th attempt, which the streams of a link count
     * from their own number. RP_PENDING: poll for writing, and
     * the socket's error says how it went. RP_PEER: nobody listens there. RP_TIMEOUT: not now.
     * *out_ways: how many addresses there are, which the attempts take in turns. */
    rp_status (*dial)(const char *address, unsigned attempt, int *out_fd, int *out_ways);
    /* Behind the hello, or the answer to it; waits for nobody. NULL: nothing is said. */
    rp_status (*send)(void *context, rpi_call *call);
    /* What comes behind it: RP_PENDING while it has not. NULL: nothing does. */
    rp_status (*receive)(void *context, rpi_call *call);
} rpi_call_kind;

/* Whose calls they are. */
typedef struct rpi_call_maker {
    const rpi_hello *self;
    const rpi_call_kind *kind;
    void *context; /* for the kind */
} rpi_call_maker;

/* To a peer at an address. */
rp_status rpi_call_new(int peer, int stream, const char *address, rpi_call **out_call);
/* Of a peer that has called and is welcome: takes over the channel, also when it fails. */
rp_status rpi_call_answer(const rpi_call_maker *maker, int peer, int stream,
                          rpi_channel channel, atomic_int *shown_fd, rpi_call **out_call);
void rpi_call_free(rpi_call *call); /* with those beside it, and what they hold; NULL is fine */
/* The first step, and the next ones when its descriptor is ready. RP_OK: it stands; RP_PENDING:
 * it goes on later. Anything else has ended it: RP_PEER (nobody listens there), RP_MISMATCH,
 * RP_CORRUPT, RP_IO. */
rp_status rpi_call_go_on(const rpi_call_maker *maker, rpi_call *call);
/* Its hello is said, of this attempt: the other side may have taken it for the link. */
bool rpi_call_has_greeted(const rpi_call *call);
/* What to poll for; fd -1: time alone moves it. Of one that stands: that the other side hangs
 * up. */
struct pollfd rpi_call_poll(const rpi_call *call);
/* When keep_time() is to be called in any case. */
int64_t rpi_call_due_ns(const rpi_call *call);
/* As go_on(), where nothing has happened so far. */
rp_status rpi_call_keep_time(const rpi_call_maker *maker, rpi_call *call);

#endif
