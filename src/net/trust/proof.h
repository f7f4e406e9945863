/* Two processes show each other that they have the job's secret, without sending it.
 *
 *     caller                                 answerer
 *       | -- call: who I am, whom I call, nonce --> |
 *       | <-- answer: nonce, proof ---------------- |
 *       | -- proof -------------------------------> |
 *
 * A proof is a MAC over all that was said so far on this connection, under a label of the side
 * that gives it: one that was recorded, or heard from the other side, is good for nothing. Both
 * sides have random nonces in it. What follows on the connection is the caller's protocol, or
 * TLS with a key that only these two can know (channel.h). docs/wire.md has the bytes. */
#ifndef RPI_NET_PROOF_H
#define RPI_NET_PROOF_H

#include "net/trust/secret.h"

#define RPI_PROOF_MAGIC UINT32_C(0x46505052) /* "RPPF" */
enum {
    RPI_PROOF_VERSION = 1,
    RPI_PROOF_CALL_BYTES = 64,
    RPI_PROOF_ANSWER_BYTES = RPI_PROOF_CALL_BYTES + RPI_MAC_BYTES,
    RPI_PROOF_END_BYTES = 8 + RPI_MAC_BYTES,
};

/* Callers that have not proved themselves: how many wait is bounded where they are accepted.
 * When no more fit, one that has waited this long makes place; all have a deadline. */
#define RPI_STRANGER_LEAST_NS (RPI_SECOND_NS / 50)
#define RPI_STRANGER_MOST_NS  (5 * RPI_SECOND_NS)

typedef enum rpi_proof_purpose {
    RPI_PROOF_STORE = 1,
    RPI_PROOF_LINK,
    RPI_PROOF_CONTROL,
} rpi_proof_purpose;

/* What a connection is for, as one side sees it. */
typedef struct rpi_proof_terms {
    rpi_proof_purpose purpose;
    int caller, callee, world; /* ranks; -1, -1, 0 for the store */
    uint64_t session;          /* of the mesh; 0 for the store */
    bool tls;                  /* what follows is encrypted; the secret says so, not who asks */
} rpi_proof_terms;

/* The caller's side, on a fresh connection. RP_PEER: the other side hung up before it answered,
 * as one does that has too many callers. RP_MISMATCH: it has no secret, or another one, or only
 * one of both uses TLS. tls_key: where TLS's key goes when the secret asks for it; may be NULL
 * when it does not. */
rp_status rpi_proof_give(int fd, const rpi_secret *secret, const rpi_proof_terms *terms,
                         int64_t deadline_ns, unsigned char *tls_key);
/* The same in two halves, for who calls several at once: the first waits for nobody. */
rp_status rpi_proof_call(int fd, const rpi_secret *secret, const rpi_proof_terms *terms,
                         int64_t deadline_ns, unsigned char out_call[RPI_PROOF_CALL_BYTES]);
rp_status rpi_proof_end(int fd, const rpi_secret *secret, const rpi_proof_terms *terms,
                        const unsigned char call[RPI_PROOF_CALL_BYTES], int64_t deadline_ns,
                        unsigned char *tls_key);

/* What the second does with an answer that has come: *out_end goes to the other side in either
 * case. RP_OK, or RP_MISMATCH. */
rp_status rpi_proof_finish(const rpi_secret *secret, const rpi_proof_terms *terms,
                           const unsigned char call[RPI_PROOF_CALL_BYTES],
                           const unsigned char answer[RPI_PROOF_ANSWER_BYTES],
                           unsigned char out_end[RPI_PROOF_END_BYTES], unsigned char *tls_key);

/* The answerer's side, a piece at a time. Zeros to begin with. */
typedef struct rpi_proof {
    rpi_proof_terms claim; /* what the caller said; to be believed once proved */
    bool answered;
    size_t got;
    unsigned char call[RPI_PROOF_CALL_BYTES], answer[RPI_PROOF_ANSWER_BYTES];
    unsigned char end[RPI_PROOF_END_BYTES];
    bool tls; /* once proved: TLS follows, with this key */
    unsigned char tls_key[RPI_MAC_BYTES];
} rpi_proof;

/* Take in what has come, without waiting. RP_OK: proved; nothing behind the proof was read.
 * RP_PENDING: there is more to come. RP_MISMATCH: the caller does not have the secret, and the
 * message says what it has. RP_PEER: it left. `self`: caller is not looked at. A store follows
 * its callers in whether TLS is used: ranks that do not agree hear of it there. */
rp_status rpi_proof_receive(rpi_proof *proof, int fd, const rpi_secret *secret,
                            const rpi_proof_terms *self);
/* Are these the first bytes of a call? An open job says so by rpi_proof_decline(). */
bool rpi_proof_is_call(const void *bytes);
void rpi_proof_decline(int fd, rpi_proof_purpose purpose);

/* Log that a caller was turned away, with its address and the recorded message: the first
 * ten, then the hundredth, the thousandth ... of this `count`. */
void rpi_proof_log_refusal(int fd, const char *what, unsigned *count);
/* Is the process at the other end of a Unix socket one of our own user? RP_MISMATCH says whose
 * it is. Connections of other kinds pass. */
rp_status rpi_check_same_user(int fd);

#endif
