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

/* Callers without a proof: their number is limited where they are accepted. If no more fit, one
 * that has waited this long makes room; all have a deadline. */
#define RPI_STRANGER_LEAST_NS (RPI_SECOND_NS / 50)
#define RPI_STRANGER_MOST_NS  (5 * RPI_SECOND_NS)

typedef enum rpi_proof_purpose {
    RPI_PROOF_STORE = 1,
    RPI_PROOF_LINK,
    RPI_PROOF_CONTROL,
} rpi_proof_purpose;

/* The purpose of a connection, as one side sees it. */
typedef struct rpi_proof_terms {
    rpi_proof_purpose purpose;
    int caller, callee, world; /* ranks; -1, -1, 0 for the store */
    uint64_t session;          /* of the mesh; 0 for the store */
    bool tls;                  /* TLS follows; the secret decides this, not the caller */
} rpi_proof_terms;

/* The caller's side, on a fresh connection. RP_PEER: the other side closed before it answered,
 * as it does if it has too many callers. RP_MISMATCH: it has no secret, or another one, or only
 * one of both uses TLS. tls_key: receives TLS's key if the secret asks for it; may be NULL if
 * it does not. */
rp_status rpi_proof_give(int fd, const rpi_secret *secret, const rpi_proof_terms *terms,
                         int64_t deadline_ns, unsigned char *tls_key);
/* The same in two halves, for a rank that calls several others at once: the first does not
 * wait. */
rp_status rpi_proof_call(int fd, const rpi_secret *secret, const rpi_proof_terms *terms,
                         int64_t deadline_ns, unsigned char out_call[RPI_PROOF_CALL_BYTES]);
rp_status rpi_proof_end(int fd, const rpi_secret *secret, const rpi_proof_terms *terms,
                        const unsigned char call[RPI_PROOF_CALL_BYTES], int64_t deadline_ns,
                        unsigned char *tls_key);

/* The second evaluates an answer: *out_end goes to the other side in either case. RP_OK, or
 * RP_MISMATCH. */
rp_status rpi_proof_finish(const rpi_secret *secret, const rpi_proof_terms *terms,
                           const unsigned char call[RPI_PROOF_CALL_BYTES],
                           const unsigned char answer[RPI_PROOF_ANSWER_BYTES],
                           unsigned char out_end[RPI_PROOF_END_BYTES], unsigned char *tls_key);

/* The answerer's side, a piece at a time. Zeros to begin with. */
typedef struct rpi_proof {
    rpi_proof_terms claim; /* what the caller claims; to be believed after the proof */
    bool answered;
    size_t got;
    unsigned char call[RPI_PROOF_CALL_BYTES], answer[RPI_PROOF_ANSWER_BYTES];
    unsigned char end[RPI_PROOF_END_BYTES];
    bool tls; /* after the proof: TLS follows, with this key */
    unsigned char tls_key[RPI_MAC_BYTES];
} rpi_proof;

/* Read received bytes, without waiting. RP_OK: proved; no bytes after the proof were read.
 * RP_PENDING: more are missing. RP_MISMATCH: the caller does not have the secret, and the
 * message says what it has. RP_PEER: it left. `self`: caller is ignored. A store follows its
 * callers in whether TLS is used; ranks that do not agree learn of it there. */
rp_status rpi_proof_receive(rpi_proof *proof, int fd, const rpi_secret *secret,
                            const rpi_proof_terms *self);
/* Whether these are the first bytes of a call. A job without a secret answers with
 * rpi_proof_decline(). */
bool rpi_proof_is_call(const void *bytes);
void rpi_proof_decline(int fd, rpi_proof_purpose purpose);

/* Log that a caller was refused, with its address and the recorded message: the first ten, then
 * the hundredth, the thousandth ... of this `count`. */
void rpi_proof_log_refusal(int fd, const char *what, unsigned *count);
/* Whether the process at the other end of a Unix socket is of our own user. RP_MISMATCH names
 * its user. Connections of other kinds pass. */
rp_status rpi_check_same_user(int fd);

#endif
