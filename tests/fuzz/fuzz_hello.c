/* The first words of a caller to a listening rank, and those of the called to a caller: where
 * both wait for each other, and where neither does (links on need). */
#include "fuzz_input.h"

#include "base/clock.h"
#include "net/bytes/endian.h"
#include "net/bytes/frame.h"
#include "net/link/acceptor.h"
#include "net/link/call.h"
#include "redpoll/log.h"

#include <poll.h>
#include <string.h>
#include <sys/un.h>

static void ignore(void *context, rp_log_level level, const char *line) {
    (void)context, (void)level, (void)line;
}

/* An abstract socket whose name the kernel picks. */
static int listen_somewhere(struct sockaddr_un *address, socklen_t *length) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    *length = sizeof address->sun_family;
    if (bind(fd, (struct sockaddr *)address, *length) != 0 || listen(fd, 8) != 0) return -1;
    *length = sizeof *address;
    return getsockname(fd, (struct sockaddr *)address, length) == 0 ? fd : -1;
}

static void call(const rpi_hello *self, const uint8_t *data, size_t bytes) {
    struct sockaddr_un address;
    socklen_t length;
    rpi_acceptor acceptor;
    rpi_channel let_in;
    int listener = listen_somewhere(&address, &length);
    if (listener < 0 || rpi_acceptor_open(&acceptor, self, listener, NULL) != RP_OK) return;
    int caller = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(caller, (struct sockaddr *)&address, length) == 0) {
        ssize_t sent = send(caller, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)sent;
        if (rpi_acceptor_wait(&acceptor, 1, 0, rpi_now_ns(), &let_in) == RP_OK)
            rpi_channel_close(&let_in);
    }
    close(caller);
    rpi_acceptor_close(&acceptor);
}

static rp_status admit(void *context, int rank, int stream) {
    bool *admitted = context;
    if (rank != 1 || stream != 0 || *admitted) return RP_FAIL(STATE, "there is a link");
    *admitted = true;
    return RP_OK;
}

static void take(void *context, int rank, int stream, rpi_channel channel) {
    (void)context, (void)rank, (void)stream;
    rpi_channel_close(&channel);
}

static void call_host(const rpi_hello *self, const uint8_t *data, size_t bytes) {
    struct sockaddr_un address;
    socklen_t length;
    rpi_acceptor acceptor;
    bool admitted = false;
    rpi_acceptor_callbacks host = {&admitted, admit, take};
    int listener = listen_somewhere(&address, &length);
    if (listener < 0 || rpi_acceptor_open(&acceptor, self, listener, &host) != RP_OK) return;
    int caller = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(caller, (struct sockaddr *)&address, length) == 0) {
        ssize_t sent = send(caller, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)sent;
        for (int i = 0; i < 3; i++) {
            struct pollfd polls[RPI_CALLERS + 1];
            int64_t wake_ns = rpi_now_ns();
            int count = rpi_acceptor_polls(&acceptor, polls, &wake_ns);
            if (poll(polls, (nfds_t)count, 0) > 0)
                (void)rpi_acceptor_attend(&acceptor, polls, count);
        }
    }
    close(caller);
    rpi_acceptor_close(&acceptor);
}

static int dialled = -1; /* where the answer has come already */

static rp_status dial(const char *address, unsigned attempt, int *out_fd, int *out_ways) {
    (void)address, (void)attempt;
    *out_ways = 1;
    *out_fd = dialled;
    dialled = -1;
    return *out_fd >= 0 ? RP_OK : RP_FAIL(PEER, "once is enough");
}

static void answer_call(const rpi_hello *self, const uint8_t *data, size_t bytes) {
    static const rpi_call_kind kind = {.dial = dial};
    rpi_call_maker maker = {self, &kind, NULL};
    rpi_call *it = NULL;
    int pair[2] = {-1, -1};
    fuzz_stream(data, bytes, pair);
    dialled = pair[0];
    if (rpi_call_new(0, 0, "somewhere", &it) == RP_OK) {
        (void)rpi_call_go_on(&maker, it);
        rpi_call_free(it);
    }
    if (dialled >= 0) close(dialled);
    close(pair[1]);
}

/* Checksums are not what is tried here: the hello at the end of the input gets its own. */
static void seal(unsigned char *input, size_t bytes) {
    if (bytes < 1 + RPI_FRAME_HEADER_BYTES) return;
    unsigned char *hello = input + bytes - RPI_FRAME_HEADER_BYTES;
    rpi_put_u32(hello + 60, rpi_crc32c(RPI_FRAME_HEADER_CRC_START, hello, 60));
}

static int try(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    unsigned char input[512];
    if (bytes < 1 || bytes > sizeof input) return 0;
    memcpy(input, data, bytes);
    if (input[0] & 4) seal(input, bytes);
    return try(input, bytes);
}

static int try(const uint8_t *data, size_t bytes) {
    static rpi_hello open_job = {.session = 7, .world = 2, .frame_bytes = 4096, .streams = 1};
    static rpi_hello closed_job;
    int pair[2] = {-1, -1};
    if (!closed_job.world) {
        rp_log_set_sink(ignore, NULL);
        closed_job = open_job;
        (void)rpi_secret_make("a secret", "0123456789abcdef", &closed_job.secret);
    }
    rpi_hello of_job = data[0] & 1 ? closed_job : open_job;
    const rpi_hello *self = &of_job;
    if (data[0] & 16) of_job.streams = 2;
    if (data[0] & 2) {
        (data[0] & 8 ? call_host : call)(self, data + 1, bytes - 1);
        return 0;
    }
    rpi_hello caller = *self;
    caller.rank = 1;
    if (data[0] & 8) {
        answer_call(&caller, data + 1, bytes - 1);
        return 0;
    }
    fuzz_stream(data + 1, bytes - 1, pair);
    (void)rpi_hello_exchange(&(rpi_channel){.fd = pair[0]}, &caller, 0, rpi_now_ns());
    close(pair[0]), close(pair[1]);
    return 0;
}
