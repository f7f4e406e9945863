/* The first words on a connection between two ranks: a frame each way, without payload, that
 * says who is calling and from which session. In a job with a secret the caller and the called
 * have proved before that they have it (proof.h). docs/wire.md has its bytes. */
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
    int stream;  /* the one of them that it is said on */
    rpi_secret secret;
} rpi_hello;

/* Of links that are one connection each. */
rpi_hello rpi_hello_of(const rpi_endpoint_options *options);
/* What is said on one connection of a link; without the secret, which is never said. */
rpi_hello rpi_hello_on(const rpi_hello *self, int stream);

/* The other side, on a fresh connection to a lower rank: prove, say hello and hear its answer.
 * RP_PEER: it hung up; it may have had too many callers. */
rp_status rpi_hello_exchange(rpi_channel *channel, const rpi_hello *self, int peer,
                             int64_t deadline_ns);
/* The same in three steps, for who calls several at once; without TLS. The first waits for
 * nobody, the second for the answer to the proof where the job has a secret. */
rp_status rpi_hello_call(int fd, const rpi_hello *self, int peer, int64_t deadline_ns,
                         unsigned char out_call[RPI_PROOF_CALL_BYTES]);
rp_status rpi_hello_send(int fd, const rpi_hello *self, int peer,
                         const unsigned char call[RPI_PROOF_CALL_BYTES], int64_t deadline_ns);
rp_status rpi_hello_receive(rpi_channel *channel, const rpi_hello *self, int peer,
                            int64_t deadline_ns);
/* The hello alone, where there is no secret or it has been proved. */
rp_status rpi_hello_greet(rpi_channel *channel, const rpi_hello *self, int peer,
                          int64_t deadline_ns);
/* What receive() makes of these bytes. RP_PENDING: the other side is calling this one, and
 * its own call is to be the link. */
rp_status rpi_hello_check(const unsigned char *bytes, const rpi_hello *self, int peer);
/* Of a link that `caller` calls. */
rpi_proof_terms rpi_hello_terms(const rpi_hello *self, int caller, int callee);

/* ---- the answer (acceptor.h) ---- */

/* Why a caller is turned away, in the answer's `operation`. */
typedef enum rpi_hello_verdict {
    RPI_HELLO_WELCOME,
    RPI_HELLO_WRONG_SESSION,
    RPI_HELLO_WRONG_WORLD,
    RPI_HELLO_WRONG_RANK,
    RPI_HELLO_WRONG_SIZE,
    RPI_HELLO_TWICE,
    RPI_HELLO_NO_SECRET,
    RPI_HELLO_CROSSED,
    RPI_HELLO_WRONG_STREAMS,
    RPI_HELLO_UNANSWERED /* never said: hung up on without a word, which is called again */
} rpi_hello_verdict;

/* What there is against a hello that came; its rank is for who knows the ranks that have. */
rpi_hello_verdict rpi_hello_judge(const rpi_hello *self, const rpi_frame_header *hello);
/* As RP_MISMATCH: what about it is another than here. */
rp_status rpi_hello_mismatch(const rpi_hello *self, const rpi_frame_header *hello);
/* Does not wait: a caller that is gone is noticed later. */
void rpi_hello_answer(rpi_channel *channel, const rpi_hello *self, int peer,
                      rpi_hello_verdict verdict);

#endif
