#include "net/link/acceptor.h"

#include "base/clock.h"
#include "base/memory.h"
#include "net/bytes/close_after_fork.h"
#include "net/socket/stream.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The others keep their order. */
static void drop_caller(rpi_acceptor *acceptor, int i) {
    rpi_caller *caller = &acceptor->callers[i];
    acceptor->caller_count--;
    memmove(caller, caller + 1, (size_t)(acceptor->caller_count - i) * sizeof *caller);
}

static void dismiss(rpi_acceptor *acceptor, int i) {
    rpi_channel_close(&acceptor->callers[i].channel);
    drop_caller(acceptor, i);
}

static void stop_listening(rpi_acceptor *acceptor) {
    while (acceptor->caller_count > 0) dismiss(acceptor, 0);
    if (acceptor->listener >= 0) close(acceptor->listener);
    acceptor->listener = -1;
}

rp_status rpi_acceptor_open(rpi_acceptor *acceptor, const rpi_hello *self, int listener,
                            const rpi_acceptor_callbacks *host) {
    *acceptor = (rpi_acceptor){.self = *self,
                               .listener = listener,
                               .expected = (self->world - 1 - self->rank) * self->streams};
    size_t places = (size_t)self->world * (size_t)self->streams;
    if (host) {
        acceptor->host = *host;
        return RP_OK;
    }
    rp_status status =
        rpi_alloc_array(places, sizeof *acceptor->arrived, "connections", &acceptor->arrived);
    if (status != RP_OK) {
        rpi_acceptor_close(acceptor);
        return status;
    }
    for (size_t i = 0; i < places; i++) acceptor->arrived[i].fd = -1;
    if (acceptor->expected == 0) stop_listening(acceptor);
    return RP_OK;
}

static int places_of(const rpi_acceptor *acceptor) {
    return acceptor->arrived ? acceptor->self.world * acceptor->self.streams : 0;
}

/* Of a caller that has sent a valid hello before it was asked for. */
static rpi_channel *place_of(const rpi_acceptor *acceptor, int rank, int stream) {
    return &acceptor->arrived[rank * acceptor->self.streams + stream];
}

void rpi_acceptor_close(rpi_acceptor *acceptor) {
    stop_listening(acceptor);
    for (int i = 0; i < places_of(acceptor); i++) rpi_channel_close(&acceptor->arrived[i]);
    rpi_free(acceptor->arrived);
    acceptor->arrived = NULL;
    rpi_secret_wipe(&acceptor->self.secret);
}

void rpi_acceptor_close_after_fork(rpi_acceptor *acceptor) {
    for (int i = 0; i < acceptor->caller_count; i++)
        rpi_fd_close_after_fork(&acceptor->callers[i].channel.fd);
    for (int i = 0; i < places_of(acceptor); i++)
        rpi_fd_close_after_fork(&acceptor->arrived[i].fd);
    rpi_fd_close_after_fork(&acceptor->listener);
}

/* A caller without the secret, or with one if the job has none, is a stranger and no failure of
 * this side. */
static void turn_away(rpi_acceptor *acceptor, int i) {
    rpi_caller *caller = &acceptor->callers[i];
    const rpi_hello *self = &acceptor->self;
    rpi_proof_log_refusal(caller->channel.fd, "a link between ranks", &acceptor->refusals);
    if (!self->secret.is_set)
        rpi_proof_decline(caller->channel.fd, RPI_PROOF_LINK);
    else if (!caller->proof.answered)
        rpi_hello_answer(&caller->channel, self, -1, RPI_HELLO_NO_SECRET);
    dismiss(acceptor, i);
}

/* The rank that a caller named in its proof must be that of its hello. */
static bool is_as_proved(const rpi_caller *caller, const rpi_frame_header *hello) {
    const rpi_proof_terms *claim = &caller->proof.claim;
    return !caller->proved ||
           (claim->caller == hello->part && claim->callee == (int)hello->chunk &&
            claim->session == hello->sequence && (uint64_t)claim->world == hello->count);
}

/* It has closed the connection, or ended, since it sent its hello: if it were welcomed, its
 * rank could not call again. */
static bool has_hung_up(int fd) {
    struct pollfd look = {.fd = fd, .events = POLLRDHUP};
    return poll(&look, 1, 0) > 0;
}

/* What is wrong with the rank in a hello of `fd` that fits otherwise. */
static rpi_hello_decision decide_on_rank(const rpi_acceptor *acceptor, int fd,
                                         const rpi_frame_header *hello) {
    const rpi_acceptor_callbacks *host = &acceptor->host;
    int own = acceptor->self.rank, rank = hello->part, stream = (int)hello->communicator;
    if (rank < 0 || rank >= acceptor->self.world || rank == own) return RPI_HELLO_WRONG_RANK;
    if (!host->take && rank < own) return RPI_HELLO_WRONG_RANK;
    if (!host->take)
        return place_of(acceptor, rank, stream)->fd >= 0 ? RPI_HELLO_TWICE : RPI_HELLO_WELCOME;
    if (has_hung_up(fd)) return RPI_HELLO_UNANSWERED;
    rp_status status = host->admit(host->context, rank, stream);
    return status == RP_OK        ? RPI_HELLO_WELCOME
           : status == RP_PENDING ? RPI_HELLO_CROSSED
                                  : RPI_HELLO_TWICE;
}

/* The i-th caller has sent its hello: accept or refuse it. Strangers are not a failure. */
static rp_status receive_caller(rpi_acceptor *acceptor, int i) {
    rpi_caller *caller = &acceptor->callers[i];
    const rpi_hello *self = &acceptor->self;
    rpi_frame_header hello;
    if (rpi_proof_is_call(caller->bytes)) {
        (void)RP_FAIL(MISMATCH, "it has a secret (REDPOLL_SECRET), and this rank has none");
        turn_away(acceptor, i);
        return RP_OK;
    }
    if (rpi_frame_open(caller->bytes, sizeof caller->bytes, false, &hello) != RP_OK ||
        !rpi_frame_may_come(&hello, RPI_FRAME_JOINING) || !is_as_proved(caller, &hello)) {
        dismiss(acceptor, i);
        return RP_OK;
    }
    rpi_hello_decision decision = rpi_hello_decide(self, &hello);
    if (decision == RPI_HELLO_WELCOME)
        decision = decide_on_rank(acceptor, caller->channel.fd, &hello);
    if (decision == RPI_HELLO_UNANSWERED) {
        dismiss(acceptor, i);
        return RP_OK;
    }
    int stream = (int)hello.communicator;
    rpi_hello reply = rpi_hello_on(self, stream);
    rpi_hello_answer(&caller->channel, &reply, hello.part, decision);
    if (decision != RPI_HELLO_WELCOME) {
        dismiss(acceptor, i);
        /* The caller wants another rank: it came by an address that is not the only one of that
         * rank. */
        bool is_ours = decision != RPI_HELLO_WRONG_SESSION && decision != RPI_HELLO_CROSSED &&
                       hello.chunk == (uint32_t)self->rank;
        return is_ours ? rpi_hello_mismatch(self, &hello) : RP_OK;
    }
    rpi_channel channel = caller->channel;
    drop_caller(acceptor, i);
    if (acceptor->host.take)
        acceptor->host.take(acceptor->host.context, hello.part, stream, channel);
    else
        *place_of(acceptor, hello.part, stream) = channel;
    return RP_OK;
}

/* True after it has proved that it belongs to this job; if it cannot, it is refused. */
static bool receive_proof(rpi_acceptor *acceptor, int i) {
    rpi_caller *caller = &acceptor->callers[i];
    const rpi_hello *self = &acceptor->self;
    rpi_proof_terms terms = rpi_hello_terms(self, -1, self->rank);
    if (!self->secret.is_set || caller->proved) return true;
    rp_status status =
        rpi_channel_receive_proof(&caller->channel, &caller->proof, &self->secret, &terms);
    caller->proved = status == RP_OK;
    if (status == RP_MISMATCH)
        turn_away(acceptor, i);
    else if (status < 0)
        dismiss(acceptor, i);
    return status == RP_OK;
}

static rp_status listen_to_caller(rpi_acceptor *acceptor, int i) {
    rpi_caller *caller = &acceptor->callers[i];
    if (!receive_proof(acceptor, i)) return RP_OK;
    while (caller->got < sizeof caller->bytes) {
        ssize_t got = rpi_channel_receive(&caller->channel, caller->bytes + caller->got,
                                          sizeof caller->bytes - caller->got);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return RP_OK;
        if (got <= 0) {
            dismiss(acceptor, i);
            return RP_OK;
        }
        caller->got += (size_t)got;
    }
    return receive_caller(acceptor, i);
}

static rp_status accept_callers(rpi_acceptor *acceptor) {
    int fd = -1;
    while (acceptor->caller_count < RPI_CALLERS &&
           (fd = rpi_stream_accept(acceptor->listener)) >= 0) {
        if (rpi_check_same_user(fd) != RP_OK) {
            rpi_proof_log_refusal(fd, "a link between ranks", &acceptor->refusals);
            close(fd);
            continue;
        }
        acceptor->callers[acceptor->caller_count++] =
            (rpi_caller){.channel = {.fd = fd}, .since_ns = rpi_now_ns()};
    }
    if (fd >= 0) return RP_OK;
    /* EINVAL: it listens no longer, and would be readable for ever. */
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM ||
        errno == EINVAL)
        return RP_FAIL_ERRNO(IO, "cannot accept a connection");
    return RP_OK; /* none left, or one that closed while it waited */
}

/* If there is no room for the next caller, the oldest that has sent nothing is closed, but not
 * one that has just connected; returns until when to sleep. */
static int64_t make_place(rpi_acceptor *acceptor) {
    const rpi_caller *oldest = &acceptor->callers[0];
    int64_t now_ns = rpi_now_ns();
    while (acceptor->caller_count > 0) {
        bool full = acceptor->caller_count == RPI_CALLERS;
        int64_t due_ns =
            oldest->since_ns + (full ? RPI_STRANGER_LEAST_NS : RPI_STRANGER_MOST_NS);
        if (now_ns < due_ns) return due_ns;
        dismiss(acceptor, 0);
    }
    return RPI_NEVER_NS;
}

int rpi_acceptor_polls(rpi_acceptor *acceptor, struct pollfd *fds, int64_t *wake_ns) {
    int64_t due_ns = make_place(acceptor);
    bool full = acceptor->caller_count == RPI_CALLERS;
    fds[0] = (struct pollfd){.fd = full ? -1 : acceptor->listener, .events = POLLIN};
    for (int i = 0; i < acceptor->caller_count; i++)
        fds[i + 1] = (struct pollfd){.fd = acceptor->callers[i].channel.fd, .events = POLLIN};
    if (due_ns < *wake_ns) *wake_ns = due_ns;
    return acceptor->caller_count + 1;
}

rp_status rpi_acceptor_attend(rpi_acceptor *acceptor, const struct pollfd *fds, int count) {
    rp_status first = RP_OK;
    for (int i = count - 2; i >= 0;
         i--) /* backwards: the entries after a dismissed one move up */
        if (fds[i + 1].revents) {
            rp_status status = listen_to_caller(acceptor, i);
            if (first == RP_OK) first = status;
        }
    if (fds[0].revents && first == RP_OK) first = accept_callers(acceptor);
    return first;
}

/* Wait once for callers and their bytes, and handle them. */
static rp_status attend(rpi_acceptor *acceptor, int64_t deadline_ns) {
    struct pollfd fds[RPI_CALLERS + 1];
    int64_t wake_ns = rpi_look_wake_ns(&acceptor->look, deadline_ns);
    int count = rpi_acceptor_polls(acceptor, fds, &wake_ns);
    int ready = poll(fds, (nfds_t)count, rpi_poll_ms(wake_ns));
    if (ready < 0 && errno != EINTR) return RP_FAIL_ERRNO(IO, "cannot wait for connections");
    RP_TRY(rpi_look_in_time(&acceptor->look));
    if (ready == 0 && rpi_now_ns() < deadline_ns) return RP_OK;
    if (ready == 0)
        return RP_FAIL(TIMEOUT, "timed out: it did not connect before the deadline");
    return ready < 0 ? RP_OK : rpi_acceptor_attend(acceptor, fds, count);
}

rp_status rpi_acceptor_wait(rpi_acceptor *acceptor, int peer, int stream, int64_t deadline_ns,
                            rpi_channel *out_channel) {
    if (acceptor->listener < 0) return RP_FAIL(STATE, "everybody has connected already");
    rpi_channel *place = place_of(acceptor, peer, stream);
    acceptor->look.next_ns = 0;
    while (place->fd < 0) RP_TRY(attend(acceptor, deadline_ns));
    *out_channel = *place;
    *place = (rpi_channel){.fd = -1};
    if (--acceptor->expected == 0) stop_listening(acceptor);
    return RP_OK;
}
