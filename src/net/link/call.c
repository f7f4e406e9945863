#include "net/link/call.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/states.h"
#include "net/bytes/frame.h"
#include "net/socket/stream.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REST_NS         (RPI_SECOND_NS / 50)
#define LONGEST_REST_NS RPI_SECOND_NS
#define FIRST_SHARE_NS  (RPI_SECOND_NS / 4) /* for one of several addresses, then doubled */
#define ATTEMPT_NS      (30 * RPI_SECOND_NS)
#define WARN_NS         (60 * RPI_SECOND_NS)
enum { SHARES = 4, DOUBLINGS = 6 };

/* From every state but the last a call may also end, and is freed. */
static const rpi_states stages[] = {
    [RPI_CALL_RESTING] = RPI_STATE(RPI_CALL_DIALLING),
    [RPI_CALL_DIALLING] = RPI_STATE(RPI_CALL_PROVING) | RPI_STATE(RPI_CALL_GREETING) |
                          RPI_STATE(RPI_CALL_RESTING),
    [RPI_CALL_PROVING] = RPI_STATE(RPI_CALL_ENCRYPTING) | RPI_STATE(RPI_CALL_GREETING) |
                         RPI_STATE(RPI_CALL_RESTING),
    [RPI_CALL_ENCRYPTING] = RPI_STATE(RPI_CALL_GREETING) | RPI_STATE(RPI_CALL_RESTING),
    [RPI_CALL_GREETING] =
        RPI_STATE(RPI_CALL_PASSING) | RPI_STATE(RPI_CALL_AWAITED) | RPI_STATE(RPI_CALL_RESTING),
    [RPI_CALL_PASSING] = RPI_STATE(RPI_CALL_STANDING),
    [RPI_CALL_AWAITED] = RPI_STATE(RPI_CALL_RESTING),
    [RPI_CALL_STANDING] = 0,
};

static void show(const rpi_call *call, int fd) {
    if (call->shown_fd) atomic_store(call->shown_fd, fd);
}

rp_status rpi_call_new(int peer, int stream, const char *address, rpi_call **out_call) {
    rpi_call *call = NULL;
    RP_TRY(rpi_alloc(sizeof *call, "a connection", &call));
    call->peer = peer;
    call->stream = stream;
    call->poll = -1;
    call->address = address;
    call->is_caller = address != NULL;
    call->channel.fd = -1;
    for (int i = 0; i < RPI_PASS_FDS; i++) call->fds[i] = -1;
    call->warn_ns = rpi_now_ns() + WARN_NS;
    *out_call = call;
    return RP_OK;
}

static void hang_up(rpi_call *call) {
    show(call, -1);
    rpi_channel_close(&call->channel);
    for (int i = 0; i < RPI_PASS_FDS; i++) {
        if (call->fds[i] >= 0) close(call->fds[i]);
        call->fds[i] = -1;
    }
}

void rpi_call_free(rpi_call *call) {
    for (rpi_call *beside; call; call = beside) {
        beside = call->beside;
        hang_up(call);
        rpi_free(call);
    }
}

static void enter(rpi_call *call, rpi_call_stage next) {
    RPI_ENTER(stages, call->stage, next);
    call->got = 0;
    call->since_ns = rpi_now_ns();
}

/* Twice as long after every eight attempts. */
static int64_t rest_ns(const rpi_call *call) {
    unsigned doublings = call->attempts / 8;
    int64_t span_ns = REST_NS << (doublings < DOUBLINGS ? doublings : DOUBLINGS);
    return span_ns < LONGEST_REST_NS ? span_ns : LONGEST_REST_NS;
}

/* The peer could not be reached this time, as the recorded message says. */
static void rest(const rpi_call_maker *maker, rpi_call *call) {
    int64_t now_ns = rpi_now_ns();
    if (now_ns >= call->warn_ns) {
        rpi_log(RP_LOG_WARNING, "rank %d does not get through to rank %d at %s: %s",
                maker->self->rank, call->peer, call->address, rp_last_error()->message);
        call->warn_ns = now_ns + WARN_NS;
    }
    hang_up(call);
    enter(call, RPI_CALL_RESTING);
    call->since_ns += rest_ns(call);
    call->attempts++;
}

/* ---- what a call does when it may go on; RP_PENDING: nothing before the next event ---- */

static rpi_proof_terms terms_of(const rpi_call_maker *maker, const rpi_call *call) {
    return rpi_hello_terms(maker->self, maker->self->rank, call->peer);
}

/* Sent as a whole: a fresh connection has room. */
static rp_status send_at_once(rpi_call *call, const void *bytes, size_t count) {
    return rpi_channel_write(&call->channel, bytes, count, 0);
}

/* What this side sends about itself on this connection. */
static rpi_hello hello_of(const rpi_call_maker *maker, const rpi_call *call) {
    return rpi_hello_on(maker->self, call->stream);
}

static rp_status greet(const rpi_call_maker *maker, rpi_call *call) {
    rpi_hello hello = hello_of(maker, call);
    enter(call, RPI_CALL_GREETING);
    RP_TRY(rpi_hello_greet(&call->channel, &hello, call->peer, 0));
    if (!maker->kind->send) return RP_OK;
    rp_status status = maker->kind->send(maker->context, call);
    return status == RP_PEER ? RP_OK : status; /* it may have sent the reason for which it
                                                * closed */
}

static rp_status prove(const rpi_call_maker *maker, rpi_call *call) {
    rpi_proof_terms terms = terms_of(maker, call);
    if (!maker->self->secret.is_set) return greet(maker, call);
    enter(call, RPI_CALL_PROVING);
    return rpi_proof_call(call->channel.fd, &maker->self->secret, &terms, 0, call->said);
}

/* Nobody listens at this one of several addresses; if nobody listens at any, the peer is gone.
 */
static rp_status refused(rpi_call *call) {
    if (++call->refusals >= call->ways)
        return RP_FAIL(PEER, "connection closed by peer: nobody listens there any more: it has "
                             "left, or its process has ended");
    return RP_FAIL(TIMEOUT, "connection refused: nobody listens there");
}

static rp_status dial(const rpi_call_maker *maker, rpi_call *call) {
    enter(call, RPI_CALL_DIALLING);
    call->ways = 1;
    rp_status status = maker->kind->dial(call->address, call->attempts + (unsigned)call->stream,
                                         &call->channel.fd, &call->ways);
    show(call, call->channel.fd);
    if (status == RP_OK) return prove(maker, call);
    if (status == RP_TIMEOUT) call->refusals = 0;
    return status == RP_PEER ? refused(call) : status;
}

static rp_status end_dial(const rpi_call_maker *maker, rpi_call *call) {
    int error = rpi_stream_dial_error(call->channel.fd);
    if (error == ECONNREFUSED) return refused(call);
    call->refusals = 0;
    if (error == 0) return prove(maker, call);
    errno = error;
    return RP_FAIL_ERRNO(TIMEOUT, "it cannot be reached");
}

/* So many bytes of `heard`. */
static rp_status receive_up_to(rpi_call *call, size_t bytes) {
    while (call->got < bytes) {
        ssize_t got =
            rpi_channel_receive(&call->channel, call->heard + call->got, bytes - call->got);
        if (got > 0) call->got += (size_t)got;
        if (got < 0 && errno == EAGAIN) return RP_PENDING;
        if (got == 0 || (got < 0 && errno != EINTR))
            return RP_FAIL(TIMEOUT,
                           "connection closed by peer: it hung up before it had answered");
    }
    return RP_OK;
}

static rp_status finish_proof(const rpi_call_maker *maker, rpi_call *call,
                              unsigned char key[RPI_MAC_BYTES]) {
    unsigned char end[RPI_PROOF_END_BYTES];
    const rpi_secret *secret = &maker->self->secret;
    rpi_proof_terms terms = terms_of(maker, call);
    rp_status status = receive_up_to(call, RPI_PROOF_ANSWER_BYTES);
    if (status != RP_OK) return status;
    status = rpi_proof_finish(secret, &terms, call->said, call->heard, end, key);
    if (status != RP_OK) {
        rpi_kept_error reason;
        rpi_error_keep(&reason);
        (void)send_at_once(call, end, sizeof end);
        rpi_error_put_back(&reason);
        return status;
    }
    RP_TRY(send_at_once(call, end, sizeof end));
    if (!secret->tls) return greet(maker, call);
    enter(call, RPI_CALL_ENCRYPTING);
    return rpi_tls_open(call->channel.fd, true, key, &call->channel.tls);
}

/* The key stays nowhere on the stack, however it ends. */
static rp_status end_proof(const rpi_call_maker *maker, rpi_call *call) {
    unsigned char key[RPI_MAC_BYTES];
    rp_status status = finish_proof(maker, call, key);
    explicit_bzero(key, sizeof key);
    return status;
}

static rp_status end_handshake(const rpi_call_maker *maker, rpi_call *call) {
    rp_status status = rpi_tls_shake_hands(call->channel.tls);
    return status == RP_OK ? greet(maker, call) : status;
}

static rp_status end_greeting(const rpi_call_maker *maker, rpi_call *call) {
    rp_status status = receive_up_to(call, RPI_FRAME_HEADER_BYTES);
    if (status != RP_OK) return status;
    rpi_hello hello = hello_of(maker, call);
    status = rpi_hello_check(call->heard, &hello, call->peer);
    if (status == RP_PENDING) {
        hang_up(call);
        enter(call, RPI_CALL_AWAITED);
        return RP_PENDING;
    }
    RP_TRY(status);
    enter(call, RPI_CALL_PASSING);
    return RP_OK;
}

/* RP_OK: it stands. */
static rp_status end_passing(const rpi_call_maker *maker, rpi_call *call) {
    return maker->kind->receive ? maker->kind->receive(maker->context, call) : RP_OK;
}

static rp_status step(const rpi_call_maker *maker, rpi_call *call) {
    switch (call->stage) {
    case RPI_CALL_RESTING: return dial(maker, call);
    case RPI_CALL_DIALLING: return end_dial(maker, call);
    case RPI_CALL_PROVING: return end_proof(maker, call);
    case RPI_CALL_ENCRYPTING: return end_handshake(maker, call);
    case RPI_CALL_GREETING: return end_greeting(maker, call);
    case RPI_CALL_PASSING: return end_passing(maker, call);
    case RPI_CALL_AWAITED: break;
    case RPI_CALL_STANDING: break;
    }
    return RP_PENDING;
}

/* If a call ended before the other side had answered it is tried again. If there are several
 * addresses, the others are tried, too, when another rank listens at one. */
static bool may_try_again(rpi_call *call, rp_status status) {
    if (status == RP_MISMATCH || status == RP_CORRUPT)
        return call->stage != RPI_CALL_PASSING && call->ways > 1 &&
               ++call->misfits < call->ways;
    call->misfits = 0;
    return call->stage != RPI_CALL_PASSING &&
           (status == RP_TIMEOUT || (status == RP_PEER && call->stage != RPI_CALL_DIALLING));
}

rp_status rpi_call_go_on(const rpi_call_maker *maker, rpi_call *call) {
    for (;;) {
        bool passing = call->stage == RPI_CALL_PASSING;
        rp_status status = step(maker, call);
        if (status == RP_OK && !passing) continue;
        if (status == RP_OK) enter(call, RPI_CALL_STANDING);
        if (status >= 0) return status;
        if (may_try_again(call, status)) {
            rest(maker, call);
            return RP_PENDING;
        }
        hang_up(call);
        if (!call->address) return rpi_fail_context(status, "rank %d called: ", call->peer);
        return rpi_fail_context(status, "connecting to rank %d at %.60s: ", call->peer,
                                call->address);
    }
}

bool rpi_call_has_greeted(const rpi_call *call) {
    return call->stage >= RPI_CALL_GREETING;
}

struct pollfd rpi_call_poll(const rpi_call *call) {
    struct pollfd wait = {.fd = call->channel.fd, .events = POLLIN};
    if (call->stage == RPI_CALL_DIALLING) wait.events = POLLOUT;
    if (call->stage == RPI_CALL_ENCRYPTING) wait.events = rpi_tls_awaits(call->channel.tls);
    if (call->stage == RPI_CALL_STANDING) wait.events = POLLRDHUP;
    return wait;
}

/* When the stage, or the rest after a failed attempt, has lasted long enough. */
int64_t rpi_call_due_ns(const rpi_call *call) {
    if (call->stage == RPI_CALL_RESTING) return call->since_ns;
    if (call->stage == RPI_CALL_PASSING || call->stage == RPI_CALL_STANDING)
        return RPI_NEVER_NS;
    bool has_others = call->stage == RPI_CALL_DIALLING && call->ways > 1;
    unsigned round = has_others ? call->attempts / (unsigned)call->ways : 0;
    int64_t share_ns = FIRST_SHARE_NS << (round < SHARES ? round : SHARES);
    return call->since_ns + (has_others ? share_ns : ATTEMPT_NS);
}

rp_status rpi_call_keep_time(const rpi_call_maker *maker, rpi_call *call) {
    if (rpi_now_ns() < rpi_call_due_ns(call)) return RP_PENDING;
    if (call->stage == RPI_CALL_RESTING) return rpi_call_go_on(maker, call);
    (void)RP_FAIL(TIMEOUT, "timed out: it does not answer");
    call->refusals = 0;
    rest(maker, call);
    return RP_PENDING;
}

rp_status rpi_call_answer(const rpi_call_maker *maker, int peer, int stream,
                          rpi_channel channel, atomic_int *shown_fd, rpi_call **out_call) {
    rpi_call *call = NULL;
    rp_status status = rpi_call_new(peer, stream, NULL, &call);
    if (status != RP_OK) {
        rpi_channel_close(&channel);
        return status;
    }
    call->channel = channel;
    call->shown_fd = shown_fd;
    show(call, channel.fd);
    call->stage = RPI_CALL_PASSING; /* where it begins */
    call->since_ns = rpi_now_ns();
    *out_call = call;
    return maker->kind->send ? maker->kind->send(maker->context, call) : RP_OK;
}
