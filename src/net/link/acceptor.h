/* Where ranks call: connections that are to be links, among strangers. Who has said a good
 * hello (hello.h) is handed out to who waits for it, or to a host that takes callers at any
 * time. */
#ifndef RPI_NET_ACCEPTOR_H
#define RPI_NET_ACCEPTOR_H

#include "net/bytes/look.h"
#include "net/link/hello.h"

struct pollfd;

enum { RPI_CALLERS = 64 }; /* connections that have not yet said who they are */

typedef struct rpi_caller {
    rpi_channel channel;
    int64_t since_ns;
    bool proved;
    rpi_proof proof;
    size_t got;
    unsigned char bytes[64]; /* of its hello, so far */
} rpi_caller;

/* Who decides about callers at any time (connector.h), in place of who waits for one. */
typedef struct rpi_acceptor_callbacks {
    void *context;
    /* A rank that fits calls: what to answer. Anything but RP_OK: it is sent away; RP_PENDING
     * because this rank is calling it, and its own call is the one that counts. */
    rp_status (*admit)(void *context, int rank, int stream);
    /* It was welcomed: the connection is the host's. */
    void (*take)(void *context, int rank, int stream, rpi_channel channel);
} rpi_acceptor_callbacks;

/* Where higher ranks arrive, in any order and among strangers; where there is a host, any. */
typedef struct rpi_acceptor {
    rpi_hello self;
    rpi_acceptor_callbacks host; /* take NULL: there is none */
    rpi_look look;               /* of who waits for callers; zeros to begin with */
    int listener;                /* owned; -1 once everybody has come */
    rpi_channel *arrived; /* [world][streams] whose hello was good and who was not yet asked
                             for; fd -1 */
    int expected;         /* connections of higher ranks that have not been handed out */
    rpi_caller callers[RPI_CALLERS]; /* in the order in which they came */
    int caller_count;
    unsigned refusals;
} rpi_acceptor;

/* Takes over the listening descriptor, also when it fails. host: whose callers are; NULL: they
 * are waited for. */
rp_status rpi_acceptor_open(rpi_acceptor *acceptor, const rpi_hello *self, int listener,
                            const rpi_acceptor_callbacks *host);
void rpi_acceptor_close(rpi_acceptor *acceptor);
/* In a child that fork() made: close its copies of the descriptors (transport.h). */
void rpi_acceptor_close_after_fork(rpi_acceptor *acceptor);
/* What to wait for, of whom sleeps for other things, too: returns how many, RPI_CALLERS + 1 at
 * most; *wake_ns becomes no later than when to attend in any case. */
int rpi_acceptor_polls(rpi_acceptor *acceptor, struct pollfd *fds, int64_t *wake_ns);
/* What poll() has found of these. RP_MISMATCH: somebody of this job came who does not fit,
 * which a host passes over; RP_IO: it can take none just now. */
rp_status rpi_acceptor_attend(rpi_acceptor *acceptor, const struct pollfd *fds, int count);
/* One connection of a higher rank, greeted; the caller owns it. RP_TIMEOUT: it did not come;
 * RP_MISMATCH: somebody of this job came who does not fit into it. Or what the look says. */
rp_status rpi_acceptor_wait(rpi_acceptor *acceptor, int peer, int stream, int64_t deadline_ns,
                            rpi_channel *out_channel);

#endif
