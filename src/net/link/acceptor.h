/* Accepts connections that are to be links, among strangers. A caller with a valid hello
 * (hello.h) is returned to a thread that waits for it, or passed to a host that takes callers
 * at any time. */
#ifndef RPI_NET_ACCEPTOR_H
#define RPI_NET_ACCEPTOR_H

#include "net/bytes/look.h"
#include "net/link/hello.h"

struct pollfd;

enum { RPI_CALLERS = 64 }; /* connections whose caller is not known yet */

typedef struct rpi_caller {
    rpi_channel channel;
    int64_t since_ns;
    bool proved;
    rpi_proof proof;
    size_t got;
    unsigned char bytes[64]; /* of its hello, so far */
} rpi_caller;

/* Decides about callers at any time (connector.h), instead of a thread that waits for one. */
typedef struct rpi_acceptor_callbacks {
    void *context;
    /* A rank that fits has called: the status says how to answer. RP_OK welcomes it. Anything
     * else refuses it, RP_PENDING because this rank is calling that rank, and its own call is
     * the one that counts. */
    rp_status (*admit)(void *context, int rank, int stream);
    /* It was welcomed: the connection now belongs to the host. */
    void (*take)(void *context, int rank, int stream, rpi_channel channel);
} rpi_acceptor_callbacks;

/* The callers that arrived: higher ranks in any order, and strangers; with a host, any rank. */
typedef struct rpi_acceptor {
    rpi_hello self;
    rpi_acceptor_callbacks host; /* take NULL: there is none */
    rpi_look look;               /* checked by threads that wait for callers; zeros to begin
                                  * with */
    int listener;                /* owned; -1 after all have connected */
    rpi_channel *arrived; /* [world][streams] whose hello was good and who was not yet asked
                             for; fd -1 */
    int expected;         /* connections of higher ranks that have not been returned */
    rpi_caller callers[RPI_CALLERS]; /* in the order of arrival */
    int caller_count;
    unsigned refusals;
} rpi_acceptor;

/* Takes over the listening descriptor, also if it fails. host: takes the callers; NULL: a
 * thread waits for them. */
rp_status rpi_acceptor_open(rpi_acceptor *acceptor, const rpi_hello *self, int listener,
                            const rpi_acceptor_callbacks *host);
void rpi_acceptor_close(rpi_acceptor *acceptor);
/* In a child made by fork(): closes its copies of the descriptors (transport.h). */
void rpi_acceptor_close_after_fork(rpi_acceptor *acceptor);
/* The descriptors to wait for, for a thread that sleeps for other things, too: returns their
 * number, at most RPI_CALLERS + 1; *wake_ns becomes no later than the time when to attend in
 * any case. */
int rpi_acceptor_polls(rpi_acceptor *acceptor, struct pollfd *fds, int64_t *wake_ns);
/* Handle what poll() has found of these. RP_MISMATCH: a caller of this job does not fit, which
 * a host ignores; RP_IO: no connection can be accepted now. */
rp_status rpi_acceptor_attend(rpi_acceptor *acceptor, const struct pollfd *fds, int count);
/* One connection of a higher rank, after its hello; the caller owns it. RP_TIMEOUT: it did not
 * call; RP_MISMATCH: a caller of this job does not fit. Or the status of the check. */
rp_status rpi_acceptor_wait(rpi_acceptor *acceptor, int peer, int stream, int64_t deadline_ns,
                            rpi_channel *out_channel);

#endif
