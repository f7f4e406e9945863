/* The first frames on a connection between two ranks: one each way, without payload, with the
 * caller's rank and session. In a job with a secret both sides have proved before that they
 * have it (proof.h). docs/wire.md defines the bytes. */
#ifndef RPI_NET_HELLO_H
#define RPI_NET_HELLO_H

#include "net/bytes/frame.h"
#include "net/link/transport.h"
#include "net/trust/handshake.h"

typedef struct rpi_hello {
    uint64_t session;
    int rank, world;
    size_t frame_bytes;
    int streams; /* connections that are one link */
    int stream;  /* the stream on which it is sent */
    rpi_secret secret;
} rpi_hello;

/* For links with one connection each. */
rpi_hello rpi_hello_of(const rpi_endpoint_options *options);
/* The content of a hello on one connection of a link; without the secret, which is never sent.
 */
rpi_hello rpi_hello_on(const rpi_hello *self, int stream);

/* The caller's side, on a fresh connection to a lower rank: prove, send the hello and receive
 * the answer. RP_PEER: it closed the connection; it may have had too many callers. */
rp_status rpi_hello_exchange(rpi_channel *channel, const rpi_hello *self, int peer,
                             int64_t deadline_ns);
/* The same in three steps, for a rank that calls several others at once; without TLS. The first
 * does not wait, the second waits for the answer to the proof if the job has a secret. */
rp_status rpi_hello_call(int fd, const rpi_hello *self, int peer, int64_t deadline_ns,
                         unsigned char out_call[RPI_PROOF_CALL_BYTES]);
rp_status rpi_hello_send(int fd, const rpi_hello *self, int peer,
                         const unsigned char call[RPI_PROOF_CALL_BYTES], int64_t deadline_ns);
rp_status rpi_hello_receive(rpi_channel *channel, const rpi_hello *self, int peer,
                            int64_t deadline_ns);
/* Only the hello, if there is no secret or it has been proved. */
rp_status rpi_hello_greet(rpi_channel *channel, const rpi_hello *self, int peer,
                          int64_t deadline_ns);
/* Evaluate the received bytes. RP_PENDING: the other side is calling this one, and its own call
 * is to be the link. */
rp_status rpi_hello_check(const unsigned char *bytes, const rpi_hello *self, int peer);
/* Of a link that `caller` calls. */
rpi_proof_terms rpi_hello_terms(const rpi_hello *self, int caller, int callee);

/* ---- the answer (acceptor.h) ---- */

/* The reason for refusing a caller, in the answer's `operation`. */
typedef enum rpi_hello_decision {
    RPI_HELLO_WELCOME,
    RPI_HELLO_WRONG_SESSION,
    RPI_HELLO_WRONG_WORLD,
    RPI_HELLO_WRONG_RANK,
    RPI_HELLO_WRONG_SIZE,
    RPI_HELLO_TWICE,
    RPI_HELLO_NO_SECRET,
    RPI_HELLO_CROSSED,
    RPI_HELLO_WRONG_STREAMS,
    RPI_HELLO_UNANSWERED /* never sent: the connection is closed without an answer, and the
                          * caller calls again */
} rpi_hello_decision;

/* What is wrong with a received hello; its rank is checked by a caller that knows which ranks
 * have connected. */
rpi_hello_decision rpi_hello_decide(const rpi_hello *self, const rpi_frame_header *hello);
/* As RP_MISMATCH, naming what differs from this side. */
rp_status rpi_hello_mismatch(const rpi_hello *self, const rpi_frame_header *hello);
/* Does not wait: that a caller has ended is noticed later. */
void rpi_hello_answer(rpi_channel *channel, const rpi_hello *self, int peer,
                      rpi_hello_decision decision);

#endif
