/* The first words on a connection between two ranks: a frame each way, without payload, that
 * says who is calling and from which session. In a job with a secret the caller and the called
 * have proved before that they have it (proof.h). docs/wire.md has its bytes. */
#ifndef RPI_NET_HELLO_H
#define RPI_NET_HELLO_H

#include "net/bytes/look.h"
#include "net/link/transport.h"
#include "net/trust/handshake.h"

struct pollfd;

enum { RPI_CALLERS = 64 }; /* connections that have not yet said who they are */

typedef struct rpi_hello {
    uint64_t session;
    int rank, world;
    size_t frame_bytes;
    int streams; /* connections that are one link */
    int stream;  /* the one of them that it is said on */
    rpi_secret secret;
} rpi_hello;

/* Of links that are one connection each. */
rpi_hello rpi_hello_of(const rpi_endpoint_options *options);
/* What is said on one connection of a link; without the secret, which is never said. */
rpi_hello rpi_hello_on(const rpi_hello *self, int stream);

typedef struct rpi_caller {
    rpi_channel channel;
    int64_t since_ns;
    bool proved;
    rpi_proof proof;
    size_t got;
    unsigned char bytes[64]; /* of its hello, so far */
} rpi_caller;

/* Who decides about callers at any time (connector.h), in place of who waits for one. */
typedef struct rpi_callers_host {
    void *context;
    /* A rank that fits calls: what to answer. Anything but RP_OK: it is sent away; RP_PENDING
     * because this rank is calling it, and its own call is the one that counts. */
    rp_status (*admit)(void *context, int rank, int stream);
    /* It was welcomed: the connection is the host's. */
    void (*take)(void *context, int rank, int stream, rpi_channel channel);
} rpi_callers_host;

/* Where higher ranks arrive, in any order and among strangers; where there is a host, any. */
typedef struct rpi_acceptor {
    rpi_hello self;
    rpi_callers_host host; /* take NULL: there is none */
    rpi_look look;         /* of who waits for callers; zeros to begin with */
    int listener;          /* owned; -1 once everybody has come */
    rpi_channel *arrived;  /* [world][streams] whose hello was good and who was not yet asked
                              for; fd -1 */
    int expected;          /* connections of higher ranks that have not been handed out */
    rpi_caller callers[RPI_CALLERS]; /* in the order in which they came */
    int caller_count;
    unsigned refusals;
} rpi_acceptor;

/* Takes over the listening descriptor, also when it fails. host: whose callers are; NULL: they
 * are waited for. */
rp_status rpi_acceptor_open(rpi_acceptor *acceptor, const rpi_hello *self, int listener,
                            const rpi_callers_host *host);
void rpi_acceptor_close(rpi_acceptor *acceptor);
/* In a child that fork() made: close its copies of the descriptors (transport.h). */
void rpi_acceptor_forget(rpi_acceptor *acceptor);
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

/* The other side, on a fresh connection to a lower rank: prove, say hello and hear its answer.
 * RP_PEER: it hung up; it may have had too many callers. */
rp_status rpi_hello_exchange(rpi_channel *channel, const rpi_hello *self, int peer,
                             int64_t deadline_ns);
/* The same in three steps, for who calls several at once; without TLS. The first waits for
 * nobody, the second for the answer to the proof where the job has a secret. */
rp_status rpi_hello_call(int fd, const rpi_hello *self, int peer, int64_t deadline_ns,
                         unsigned char out_call[RPI_PROOF_CALL_BYTES]);
rp_status rpi_hello_say(int fd, const rpi_hello *self, int peer,
                        const unsigned char call[RPI_PROOF_CALL_BYTES], int64_t deadline_ns);
rp_status rpi_hello_hear(rpi_channel *channel, const rpi_hello *self, int peer,
                         int64_t deadline_ns);
/* The hello alone, where there is no secret or it has been proved. */
rp_status rpi_hello_greet(rpi_channel *channel, const rpi_hello *self, int peer,
                          int64_t deadline_ns);
/* What hear() makes of these bytes. RP_PENDING: the other side is calling this one, and wants
 * its own call to be the link. */
rp_status rpi_hello_check(const unsigned char *bytes, const rpi_hello *self, int peer);
/* Of a link that `caller` calls. */
rpi_proof_terms rpi_hello_terms(const rpi_hello *self, int caller, int callee);

#endif
