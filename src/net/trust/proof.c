#include "net/trust/proof.h"

#include "base/clock.h"
#include "base/log.h"
#include "net/bytes/endian.h"
#include "net/bytes/random_bytes.h"
#include "net/trust/channel.h"
#include "net/trust/tls.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Offsets in a call, and in the same bytes of an answer. */
enum { VERSION = 4, PURPOSE, STEP, DECISION, CALLER, CALLEE = 12, SESSION = 16 };
enum { WORLD = 24, FLAGS = 28, WITH_TLS = 1 };
enum { NONCE = 32, NONCE_BYTES = RPI_PROOF_CALL_BYTES - NONCE };
enum { CALL = 1, ANSWER, END };                   /* steps */
enum { FINE, NO_SECRET, WRONG_PROOF, OTHER_TLS }; /* decisions */
enum { LABEL_BYTES = 16, ALL_LOGGED = 10 };
static const char answer_label[LABEL_BYTES + 1] = "redpoll: answer:";
static const char end_label[LABEL_BYTES + 1] = "redpoll: caller:";
static const char tls_label[LABEL_BYTES + 1] = "redpoll: tlskey:";

static void begin(unsigned char *bytes, rpi_proof_purpose purpose, int step, int decision) {
    rpi_put_u32(bytes, RPI_PROOF_MAGIC);
    bytes[VERSION] = RPI_PROOF_VERSION;
    bytes[PURPOSE] = (unsigned char)purpose;
    bytes[STEP] = (unsigned char)step;
    bytes[DECISION] = (unsigned char)decision;
}

static rp_status write_terms(unsigned char bytes[RPI_PROOF_CALL_BYTES], int step,
                             const rpi_proof_terms *terms) {
    memset(bytes, 0, RPI_PROOF_CALL_BYTES);
    begin(bytes, terms->purpose, step, FINE);
    rpi_put_u32(bytes + CALLER, (uint32_t)terms->caller);
    rpi_put_u32(bytes + CALLEE, (uint32_t)terms->callee);
    rpi_put_u64(bytes + SESSION, terms->session);
    rpi_put_u32(bytes + WORLD, (uint32_t)terms->world);
    rpi_put_u32(bytes + FLAGS, terms->tls ? WITH_TLS : 0);
    return rpi_random_bytes("a nonce", bytes + NONCE, NONCE_BYTES);
}

static void read_terms(const unsigned char bytes[RPI_PROOF_CALL_BYTES],
                       rpi_proof_terms *out_terms) {
    *out_terms = (rpi_proof_terms){.purpose = (rpi_proof_purpose)bytes[PURPOSE],
                                   .caller = (int)rpi_get_u32(bytes + CALLER),
                                   .callee = (int)rpi_get_u32(bytes + CALLEE),
                                   .world = (int)rpi_get_u32(bytes + WORLD),
                                   .session = rpi_get_u64(bytes + SESSION),
                                   .tls = rpi_get_u32(bytes + FLAGS) == WITH_TLS};
}

static rp_status check_step(const unsigned char *bytes, rpi_proof_purpose purpose, int step) {
    if (rpi_get_u32(bytes) != RPI_PROOF_MAGIC)
        return RP_FAIL(MISMATCH, "the other side gives no proof of the job's secret: it has no "
                                 "secret (REDPOLL_SECRET), or is no redpoll");
    if (bytes[VERSION] != RPI_PROOF_VERSION)
        return RP_FAIL(MISMATCH,
                       "the other side proves its secret by version %d, this one by %d",
                       bytes[VERSION], RPI_PROOF_VERSION);
    if (bytes[PURPOSE] != purpose || bytes[STEP] != step)
        return RP_FAIL(MISMATCH,
                       "a proof of the job's secret that was made for something else");
    return RP_OK;
}

/* The proof of one side: over its label and all messages so far. */
static rp_status prove(const rpi_secret *secret, const char label[LABEL_BYTES + 1],
                       const unsigned char *call, const unsigned char *answer,
                       size_t answer_bytes, unsigned char mac[RPI_MAC_BYTES]) {
    unsigned char text[LABEL_BYTES + RPI_PROOF_CALL_BYTES + RPI_PROOF_ANSWER_BYTES];
    memcpy(text, label, LABEL_BYTES);
    memcpy(text + LABEL_BYTES, call, RPI_PROOF_CALL_BYTES);
    memcpy(text + LABEL_BYTES + RPI_PROOF_CALL_BYTES, answer, answer_bytes);
    return rpi_secret_sign(secret, text, LABEL_BYTES + RPI_PROOF_CALL_BYTES + answer_bytes,
                           mac);
}

static rp_status check_tls(bool here, bool there) {
    if (here == there) return RP_OK;
    return RP_FAIL(MISMATCH,
                   "%s uses TLS (--tls, REDPOLL_TLS) and %s does not: all ranks of a job use "
                   "it, or none",
                   here ? "this process" : "the other side",
                   here ? "the other side" : "this process");
}

/* ---- the caller ---- */

static rp_status other_secret(void) {
    return RP_FAIL(MISMATCH,
                   "the other side has another secret: REDPOLL_SECRET (or the file that "
                   "REDPOLL_SECRET_FILE names) must be the same on all ranks of the job");
}

static rp_status check_answer(const rpi_secret *secret, const rpi_proof_terms *terms,
                              const unsigned char *call, const unsigned char *answer) {
    unsigned char mac[RPI_MAC_BYTES];
    RP_TRY(check_step(answer, terms->purpose, ANSWER));
    if (answer[DECISION] == NO_SECRET)
        return RP_FAIL(MISMATCH,
                       "the other side has no secret, and this process has one "
                       "(REDPOLL_SECRET): set it on all ranks of the job, or on none");
    RP_TRY(prove(secret, answer_label, call, answer, RPI_PROOF_CALL_BYTES, mac));
    if (!rpi_macs_are_equal(mac, answer + RPI_PROOF_CALL_BYTES)) return other_secret();
    rpi_proof_terms said;
    read_terms(answer, &said);
    if (said.callee != terms->callee)
        return RP_FAIL(MISMATCH, "rank %d answered in the place of rank %d", said.callee,
                       terms->callee);
    return RP_OK;
}

/* The caller's next bytes follow at once: one packet, for which the other side wakes up once.
 */
static rp_status send_before_more(int fd, const unsigned char *bytes, size_t count,
                                  int64_t deadline_ns) {
    ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE);
    size_t done = sent > 0 ? (size_t)sent : 0;
    return rpi_stream_write(fd, bytes + done, count - done, deadline_ns);
}

rp_status rpi_proof_call(int fd, const rpi_secret *secret, const rpi_proof_terms *terms,
                         int64_t deadline_ns, unsigned char out_call[RPI_PROOF_CALL_BYTES]) {
    rpi_proof_terms said = *terms;
    said.tls = secret->tls;
    RP_TRY(write_terms(out_call, CALL, &said));
    return rpi_stream_write(fd, out_call, RPI_PROOF_CALL_BYTES, deadline_ns);
}

rp_status rpi_proof_finish(const rpi_secret *secret, const rpi_proof_terms *terms,
                           const unsigned char call[RPI_PROOF_CALL_BYTES],
                           const unsigned char answer[RPI_PROOF_ANSWER_BYTES],
                           unsigned char out_end[RPI_PROOF_END_BYTES], unsigned char *tls_key) {
    rpi_proof_terms said = *terms, theirs;
    said.tls = secret->tls;
    int decision = WRONG_PROOF;
    rp_status status = check_answer(secret, &said, call, answer);
    if (status == RP_OK) {
        read_terms(answer, &theirs);
        decision = OTHER_TLS;
        status = check_tls(said.tls, theirs.tls);
    }
    /* So that it can report on its side, too, why this side stops. */
    memset(out_end, 0, RPI_PROOF_END_BYTES);
    begin(out_end, terms->purpose, END, status == RP_OK ? FINE : decision);
    RP_TRY(status);
    RP_TRY(prove(secret, end_label, call, answer, RPI_PROOF_ANSWER_BYTES, out_end + 8));
    return said.tls ? prove(secret, tls_label, call, answer, RPI_PROOF_ANSWER_BYTES, tls_key)
                    : RP_OK;
}

rp_status rpi_proof_end(int fd, const rpi_secret *secret, const rpi_proof_terms *terms,
                        const unsigned char call[RPI_PROOF_CALL_BYTES], int64_t deadline_ns,
                        unsigned char *tls_key) {
    unsigned char answer[RPI_PROOF_ANSWER_BYTES], end[RPI_PROOF_END_BYTES];
    RP_TRY(rpi_stream_read(fd, answer, sizeof answer, deadline_ns));
    rp_status status = rpi_proof_finish(secret, terms, call, answer, end, tls_key);
    if (status == RP_OK) return send_before_more(fd, end, sizeof end, deadline_ns);
    rpi_kept_error reason;
    rpi_error_keep(&reason);
    (void)rpi_stream_write(fd, end, sizeof end, deadline_ns);
    rpi_error_put_back(&reason);
    return status;
}

rp_status rpi_proof_give(int fd, const rpi_secret *secret, const rpi_proof_terms *terms,
                         int64_t deadline_ns, unsigned char *tls_key) {
    unsigned char call[RPI_PROOF_CALL_BYTES];
    RP_TRY(rpi_proof_call(fd, secret, terms, deadline_ns, call));
    return rpi_proof_end(fd, secret, terms, call, deadline_ns, tls_key);
}

/* ---- the answerer ---- */

static rp_status take(rpi_proof *proof, int fd, unsigned char *bytes, size_t wanted) {
    while (proof->got < wanted) {
        ssize_t got = recv(fd, bytes + proof->got, wanted - proof->got, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return RP_PENDING;
        if (got <= 0)
            return RP_FAIL(PEER,
                           "connection closed by peer: it left before it had proved anything");
        proof->got += (size_t)got;
        /* A caller that sends something else is refused before it has sent all of it. */
        if (proof->got >= 4 && !rpi_proof_is_call(bytes))
            return RP_FAIL(MISMATCH, "it gave no proof of the job's secret: set REDPOLL_SECRET "
                                     "there, too, if it is one of the job's");
    }
    proof->got = 0;
    return RP_OK;
}

/* A fresh connection has room for it; that a caller has ended is noticed later. */
static void send_once(int fd, const void *bytes, size_t count) {
    ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
}

static rp_status answer_call(rpi_proof *proof, int fd, const rpi_secret *secret,
                             const rpi_proof_terms *self) {
    RP_TRY(check_step(proof->call, self->purpose, CALL));
    read_terms(proof->call, &proof->claim);
    rpi_proof_terms said = *self;
    said.caller = proof->claim.caller;
    said.tls = self->purpose == RPI_PROOF_STORE ? proof->claim.tls && rpi_tls_is_supported()
                                                : secret->tls;
    RP_TRY(write_terms(proof->answer, ANSWER, &said));
    RP_TRY(prove(secret, answer_label, proof->call, proof->answer, RPI_PROOF_CALL_BYTES,
                 proof->answer + RPI_PROOF_CALL_BYTES));
    send_once(fd, proof->answer, sizeof proof->answer);
    proof->answered = true;
    return RP_OK;
}

static rp_status check_end(rpi_proof *proof, const rpi_secret *secret,
                           const rpi_proof_terms *self) {
    unsigned char mac[RPI_MAC_BYTES];
    rpi_proof_terms said;
    read_terms(proof->answer, &said);
    RP_TRY(check_step(proof->end, self->purpose, END));
    if (proof->end[DECISION] == OTHER_TLS) RP_TRY(check_tls(said.tls, proof->claim.tls));
    RP_TRY(prove(secret, end_label, proof->call, proof->answer, sizeof proof->answer, mac));
    if (proof->end[DECISION] != FINE || !rpi_macs_are_equal(mac, proof->end + 8))
        return RP_FAIL(MISMATCH, "it has another secret than this job (REDPOLL_SECRET)");
    RP_TRY(check_tls(said.tls, proof->claim.tls));
    proof->tls = said.tls;
    return proof->tls ? prove(secret, tls_label, proof->call, proof->answer,
                              sizeof proof->answer, proof->tls_key)
                      : RP_OK;
}

rp_status rpi_proof_receive(rpi_proof *proof, int fd, const rpi_secret *secret,
                            const rpi_proof_terms *self) {
    rp_status status = RP_OK;
    if (!proof->answered) {
        status = take(proof, fd, proof->call, sizeof proof->call);
        if (status != RP_OK) return status;
        RP_TRY(answer_call(proof, fd, secret, self));
    }
    status = take(proof, fd, proof->end, sizeof proof->end);
    return status == RP_OK ? check_end(proof, secret, self) : status;
}

bool rpi_proof_is_call(const void *bytes) {
    return rpi_get_u32(bytes) == RPI_PROOF_MAGIC;
}

void rpi_proof_decline(int fd, rpi_proof_purpose purpose) {
    unsigned char answer[RPI_PROOF_ANSWER_BYTES] = {0}, rest[RPI_PROOF_CALL_BYTES];
    begin(answer, purpose, ANSWER, NO_SECRET);
    send_once(fd, answer, sizeof answer);
    /* Closing with unread bytes would discard the answer. */
    ssize_t got = recv(fd, rest, sizeof rest, MSG_DONTWAIT);
    (void)got;
}

/* ---- for whoever accepts callers ---- */

static const char *address_of(int fd, char *text, size_t bytes) {
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t length = sizeof address;
    char host[64], port[16];
    snprintf(text, bytes, "this host");
    if (getpeername(fd, (struct sockaddr *)&address, &length) == 0 &&
        address.ss_family != AF_UNIX &&
        getnameinfo((struct sockaddr *)&address, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(text, bytes, "%s:%s", host, port);
    return text;
}

void rpi_proof_log_refusal(int fd, const char *what, unsigned *count) {
    char address[96], more[32] = "";
    unsigned power = ALL_LOGGED;
    ++*count;
    while (power < *count && power <= *count / 10) power *= 10;
    if (*count > ALL_LOGGED && power != *count) return;
    if (*count > ALL_LOGGED) snprintf(more, sizeof more, " (%u so far)", *count);
    rpi_log(RP_LOG_WARNING, "a caller from %s was turned away from %s%s: %s",
            address_of(fd, address, sizeof address), what, more, rp_last_error()->message);
}

rp_status rpi_check_same_user(int fd) {
    struct ucred other = {0};
    int domain = 0;
    socklen_t domain_bytes = sizeof domain, bytes = sizeof other;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_bytes) != 0 || domain != AF_UNIX)
        return RP_OK;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &bytes) != 0)
        return RP_FAIL_ERRNO(IO, "cannot tell whose process is at a Unix socket's other end");
    if (other.uid == geteuid() || other.uid == 0) return RP_OK;
    return RP_FAIL(MISMATCH, "it belongs to user %u, and this process to user %u",
                   (unsigned)other.uid, (unsigned)geteuid());
}
