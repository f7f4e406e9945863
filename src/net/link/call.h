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
    RPI_CALL_AWAITED, /* the other side's own call is to become the link */
    RPI_CALL_STANDING,
} rpi_call_stage;

/* A connection to a peer, from its beginning until the progress owner takes it. */
typedef struct rpi_call {
    struct rpi_call *next;
    struct rpi_call *beside; /* the next stream of the same link; once all are made */
    int peer, stream;
    bool is_caller;        /* this side is */
    rp_status status;      /* why it failed; RP_OK: it is made */
    char text[200];        /* the message of a failure */
    rpi_channel channel;   /* where it stands */
    int fds[RPI_PASS_FDS]; /* bytes that came after the hellos, and the kind's own descriptors;
                            * -1: none */
    atomic_int *shown_fd;  /* the channel's, for forked children; NULL: not needed */

    /* Of who goes on with it. */
    const char *address; /* borrowed; NULL: the peer has called */
    rpi_call_stage stage;
    unsigned attempts;
    int ways;         /* number of the peer's addresses; 0: not known yet */
    int refusals;     /* in a row: nobody listened */
    int misfits;      /* in a row: the answer was not the peer's, or another job's */
    int poll;         /* which entry of its maker's poll() is this one's; -1: none */
    int64_t since_ns; /* of the stage; while resting, until when */
    int64_t warn_ns;
    size_t got;
    unsigned char said[RPI_PROOF_CALL_BYTES];    /* of our proof */
    unsigned char heard[RPI_PROOF_ANSWER_BYTES]; /* its answer, and then its hello */
} rpi_call;

/* What differs between kinds of transports. */
typedef struct rpi_call_kind {
    /* Begin to connect without waiting, in the n-th attempt; the streams of a link begin with
     * their own number. RP_PENDING: poll for writing, then the socket's error is the result.
     * RP_PEER: nobody listens there. RP_TIMEOUT: not now. *out_ways: the number of addresses,
     * which attempts take in turn. */
    rp_status (*dial)(const char *address, unsigned attempt, int *out_fd, int *out_ways);
    /* What to send after the hello, or the answer to it; does not wait. NULL: nothing. */
    rp_status (*send)(void *context, rpi_call *call);
    /* Receive what the other side sends after it: RP_PENDING if it has not arrived. NULL: it
     * sends nothing. */
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
/* For a peer that has called and is welcome: takes over the channel, also if it fails. */
rp_status rpi_call_answer(const rpi_call_maker *maker, int peer, int stream,
                          rpi_channel channel, atomic_int *shown_fd, rpi_call **out_call);
void rpi_call_free(rpi_call *call); /* with the other calls of the link, and their descriptors;
                                     * NULL is fine */
/* The first step, and the next ones when its descriptor is ready. RP_OK: it is made;
 * RP_PENDING: call again later. Anything else has ended it: RP_PEER (nobody listens there),
 * RP_MISMATCH, RP_CORRUPT, RP_IO. */
rp_status rpi_call_go_on(const rpi_call_maker *maker, rpi_call *call);
/* This attempt has sent its hello, so the other side may have made it the link. */
bool rpi_call_has_greeted(const rpi_call *call);
/* What to poll for; fd -1: only time moves it. For one that is made: that the other side
 * closes. */
struct pollfd rpi_call_poll(const rpi_call *call);
/* When keep_time() is to be called in any case. */
int64_t rpi_call_due_ns(const rpi_call *call);
/* As go_on(), if nothing has happened so far. */
rp_status rpi_call_keep_time(const rpi_call_maker *maker, rpi_call *call);

#endif
