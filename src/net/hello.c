#include "net/hello.h"

#include "base/memory.h"
#include "net/forget.h"
#include "net/frame.h"
#include "net/stream.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Why a caller is turned away, in the answer's `operation`. */
typedef enum refusal {
    WELCOME,
    WRONG_SECRET,
    WRONG_WORLD,
    WRONG_RANK,
    WRONG_SIZE,
    TWICE
} refusal;

static const char *const refusals[] = {
    [WELCOME] = "welcome",
    [WRONG_SECRET] = "it belongs to another job",
    [WRONG_WORLD] = "its world has another size",
    [WRONG_RANK] = "it is another rank than the one called, or no higher rank was expected",
    [WRONG_SIZE] = "its frames have another length",
    [TWICE] = "this rank has connected already",
};
enum { REFUSALS = sizeof refusals / sizeof refusals[0] };

/* A stranger learns nothing: only a welcome carries the secret. */
static void write_hello(unsigned char bytes[RPI_FRAME_HEADER_BYTES], const rpi_hello *self,
                        int peer, refusal answer) {
    rpi_frame_header header = {.kind = RPI_FRAME_HELLO,
                               .sequence = answer == WELCOME ? self->secret : 0,
                               .chunk = (uint32_t)peer,
                               .part = self->rank,
                               .count = (uint64_t)self->world,
                               .bucket = (uint32_t)self->frame_bytes,
                               .operation = (uint8_t)answer};
    rpi_frame_seal(bytes, &header, 0, false);
}

static refusal judge(const rpi_hello *self, const rpi_frame_header *hello) {
    if (hello->sequence != self->secret) return WRONG_SECRET;
    if (hello->count != (uint64_t)self->world) return WRONG_WORLD;
    if (hello->bucket != self->frame_bytes) return WRONG_SIZE;
    if (hello->chunk != (uint32_t)self->rank) return WRONG_RANK;
    return WELCOME;
}

static rp_status mismatch(const rpi_hello *self, const rpi_frame_header *hello) {
    return RP_FAIL(MISMATCH,
                   "rank %d of %d with frames of %u bytes called rank %u; this is rank %d of "
                   "%d with frames of %zu",
                   hello->part, (int)hello->count, hello->bucket, hello->chunk, self->rank,
                   self->world, self->frame_bytes);
}

rp_status rpi_hello_exchange(int fd, const rpi_hello *self, int peer, int64_t deadline_ns) {
    unsigned char bytes[RPI_FRAME_HEADER_BYTES];
    rpi_frame_header answer;
    write_hello(bytes, self, peer, WELCOME);
    RP_TRY(rpi_stream_write(fd, bytes, sizeof bytes, deadline_ns));
    RP_TRY(rpi_stream_read(fd, bytes, sizeof bytes, deadline_ns));
    RP_TRY(rpi_frame_open(bytes, sizeof bytes, false, &answer));
    if (answer.kind != RPI_FRAME_HELLO) return RP_FAIL(CORRUPT, "its first frame is no hello");
    if (answer.operation != WELCOME)
        return RP_FAIL(MISMATCH, "the other side refused: %s",
                       answer.operation < REFUSALS ? refusals[answer.operation] : "unknown");
    if (judge(self, &answer) != WELCOME || answer.part != peer) return mismatch(self, &answer);
    return RP_OK;
}

static void dismiss(rpi_reception *reception, int i) {
    close(reception->callers[i].fd);
    reception->callers[i] = reception->callers[--reception->caller_count];
}

static void stop_listening(rpi_reception *reception) {
    while (reception->caller_count > 0) dismiss(reception, 0);
    if (reception->listener >= 0) close(reception->listener);
    reception->listener = -1;
}

rp_status rpi_reception_open(rpi_reception *reception, const rpi_hello *self, int listener) {
    *reception = (rpi_reception){
        .self = *self, .listener = listener, .expected = self->world - 1 - self->rank};
    rp_status status = rpi_alloc_array((size_t)self->world, sizeof *reception->arrived,
                                       "connections", &reception->arrived);
    if (status != RP_OK) {
        rpi_reception_close(reception);
        return status;
    }
    for (int rank = 0; rank < self->world; rank++) reception->arrived[rank] = -1;
    if (reception->expected == 0) stop_listening(reception);
    return RP_OK;
}

void rpi_reception_close(rpi_reception *reception) {
    stop_listening(reception);
    for (int rank = 0; reception->arrived && rank < reception->self.world; rank++)
        if (reception->arrived[rank] >= 0) close(reception->arrived[rank]);
    rpi_free(reception->arrived);
    reception->arrived = NULL;
}

void rpi_reception_forget(rpi_reception *reception) {
    for (int i = 0; i < reception->caller_count; i++) rpi_fd_forget(&reception->callers[i].fd);
    for (int rank = 0; rank < reception->self.world; rank++)
        rpi_fd_forget(&reception->arrived[rank]);
    rpi_fd_forget(&reception->listener);
}

static void answer(int fd, const rpi_hello *self, int peer, refusal verdict) {
    unsigned char bytes[RPI_FRAME_HEADER_BYTES];
    write_hello(bytes, self, peer, verdict);
    /* A fresh connection has room for it; a caller that is gone is noticed later. */
    ssize_t sent = send(fd, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
}

/* The i-th caller has said its hello: let it in, or send it away. Strangers are no failure. */
static rp_status receive_caller(rpi_reception *reception, int i) {
    rpi_caller *caller = &reception->callers[i];
    const rpi_hello *self = &reception->self;
    rpi_frame_header hello;
    if (rpi_frame_open(caller->bytes, sizeof caller->bytes, false, &hello) != RP_OK ||
        hello.kind != RPI_FRAME_HELLO) {
        dismiss(reception, i);
        return RP_OK;
    }
    refusal verdict = judge(self, &hello);
    if (verdict == WELCOME && (hello.part <= self->rank || hello.part >= self->world))
        verdict = WRONG_RANK;
    if (verdict == WELCOME && reception->arrived[hello.part] >= 0) verdict = TWICE;
    answer(caller->fd, self, hello.part, verdict);
    if (verdict != WELCOME) {
        dismiss(reception, i);
        return verdict == WRONG_SECRET ? RP_OK : mismatch(self, &hello);
    }
    reception->arrived[hello.part] = caller->fd;
    *caller = reception->callers[--reception->caller_count];
    return RP_OK;
}

static rp_status listen_to_caller(rpi_reception *reception, int i) {
    rpi_caller *caller = &reception->callers[i];
    ssize_t got = recv(caller->fd, caller->bytes + caller->got,
                       sizeof caller->bytes - caller->got, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return RP_OK;
    if (got <= 0) {
        dismiss(reception, i);
        return RP_OK;
    }
    caller->got += (size_t)got;
    return caller->got == sizeof caller->bytes ? receive_caller(reception, i) : RP_OK;
}

static rp_status accept_callers(rpi_reception *reception) {
    int fd;
    while ((fd = rpi_stream_accept(reception->listener)) >= 0) {
        /* Somebody who holds connections and says nothing makes place for the next. */
        if (reception->caller_count == RPI_CALLERS) dismiss(reception, 0);
        reception->callers[reception->caller_count++] = (rpi_caller){.fd = fd};
    }
    /* EINVAL: it listens no more, and would be ready for ever. */
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM ||
        errno == EINVAL)
        return RP_FAIL_ERRNO(IO, "cannot accept a connection");
    return RP_OK; /* nobody left, or one that hung up while it waited */
}

/* Wait for news at the door once, and attend to it. */
static rp_status attend(rpi_reception *reception, int64_t deadline_ns) {
    struct pollfd fds[RPI_CALLERS + 1] = {{.fd = reception->listener, .events = POLLIN}};
    int count = reception->caller_count;
    for (int i = 0; i < count; i++)
        fds[i + 1] = (struct pollfd){.fd = reception->callers[i].fd, .events = POLLIN};
    int ready = poll(fds, (nfds_t)count + 1, rpi_poll_ms(deadline_ns));
    if (ready < 0 && errno != EINTR) return RP_FAIL_ERRNO(IO, "cannot wait for connections");
    if (ready == 0) return RP_FAIL(TIMEOUT, "it did not connect before the deadline");
    if (ready < 0) return RP_OK;
    rp_status first = RP_OK;
    for (int i = count - 1; i >= 0;
         i--) /* backwards: a dismissed one is replaced by the last */
        if (fds[i + 1].revents) {
            rp_status status = listen_to_caller(reception, i);
            if (first == RP_OK) first = status;
        }
    if (fds[0].revents && first == RP_OK) first = accept_callers(reception);
    return first;
}

rp_status rpi_reception_wait(rpi_reception *reception, int peer, int64_t deadline_ns,
                             int *out_fd) {
    if (reception->listener < 0) return RP_FAIL(STATE, "everybody has connected already");
    while (reception->arrived[peer] < 0) RP_TRY(attend(reception, deadline_ns));
    *out_fd = reception->arrived[peer];
    reception->arrived[peer] = -1;
    if (--reception->expected == 0) stop_listening(reception);
    return RP_OK;
}
