/* What the design of device memory rests on, in numbers: how long the calls take that the
 * driver makes, and how fast copies and kernels are by size, over PCIe and within the GPU.
 * usage: gpu_probe      GPU_PROBE_MB=256: of elements, at most */
#include "base/clock.h"
#include "codec/codec.h"
#include "cuda/cuda.h"
#include "cuda/device_codec.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { REPEATS_MAX = 2000, TRANSFERS = 15, SMALL = 64 * 1024, SKIPPED = 77 };

static const rpi_cuda_library *cuda;
static void *there, *other, *encoding,
    *pinned; /* of `most` bytes each; the last with the host */
static void *stream, *bell, *mark, *from, *to;
static size_t most;
static int rung = -1;

/* A failed call ends the program: there is nothing to measure then. */
static void done(int error, const char *what) {
    if (error == 0) return;
    printf("%s: %s\n", what, cuda->error_text(error));
    exit(1);
}
#define DONE(call) done(cuda->call, #call)

static int in_order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *seconds, int count) {
    qsort(seconds, (size_t)count, sizeof *seconds, in_order);
    return seconds[count / 2];
}

/* ---- calls of the host ---- */

static void enter_and_leave(void) {
    rpi_cuda_before before;
    DONE(enter(0, &before));
    cuda->leave(&before);
}

static void ask_for_place(void) {
    int device;
    DONE(device_of(there, &device));
}

static void record(void) {
    DONE(event_record(mark, stream));
}

static void query(void) {
    int come;
    DONE(event_done(mark, &come));
}

static void begin_copy(void) {
    DONE(copy(pinned, there, SMALL, stream));
}

static void copy_and_spin(void) {
    int come = 0;
    begin_copy();
    record();
    while (!come) DONE(event_done(mark, &come));
}

static void ring(void *fd) {
    uint64_t one = 1;
    ssize_t written = write(*(int *)fd, &one, sizeof one);
    (void)written;
}

static void copy_and_sleep(void) {
    struct pollfd waits = {.fd = rung, .events = POLLIN};
    uint64_t times;
    begin_copy();
    record();
    DONE(stream_wait_for(bell, mark));
    DONE(stream_call(bell, ring, &rung));
    (void)poll(&waits, 1, -1);
    ssize_t got = read(rung, &times, sizeof times);
    (void)got;
}

static void call_host(void) {
    DONE(stream_call(bell, ring, &rung));
}

static void pin_small(void) {
    void *memory;
    DONE(pin(SMALL, &memory));
    DONE(unpin(memory));
}

static void pin_large(void) {
    void *memory;
    DONE(pin((size_t)64 << 20, &memory));
    DONE(unpin(memory));
}

static void make_stream(void) {
    void *made;
    DONE(stream_make(&made));
    cuda->stream_free(made);
}

typedef struct call {
    const char *name;
    void (*run)(void);
    int repeats;
} call;

static const call calls[] = {
    {"enter + leave, nested", enter_and_leave, 2000},
    {"where memory lies", ask_for_place, 2000},
    {"record an event", record, 2000},
    {"ask for an event", query, 2000},
    {"begin a copy of 64 KB", begin_copy, 200},
    {"copy 64 KB, spin until it is done", copy_and_spin, 200},
    {"copy 64 KB, sleep until the GPU's driver calls", copy_and_sleep, 200},
    {"begin a call of the host", call_host, 200},
    {"pin + unpin 64 KB", pin_small, 10},
    {"pin + unpin 64 MB", pin_large, 3},
    {"make + free a stream", make_stream, 20},
};

static void time_call(const call *c) {
    double seconds[REPEATS_MAX];
    for (int i = 0; i < c->repeats; i++) {
        int64_t begun_ns = rpi_now_ns();
        c->run();
        seconds[i] = rpi_seconds(rpi_now_ns() - begun_ns);
    }
    DONE(wait(stream));
    DONE(wait(bell));
    printf("%-48s %9.2f us\n", c->name, 1e6 * median(seconds, c->repeats));
    fflush(stdout);
}

/* ---- copies and kernels ---- */

typedef struct job {
    void *into;
    const void *of;
    size_t bytes;
    const rpi_device_call *encodes, *decodes; /* NULL: a copy */
} job;

static void begin(const job *j) {
    if (j->encodes)
        DONE(encode(j->encodes, stream));
    else if (j->decodes)
        DONE(decode(j->decodes, 0, stream));
    else
        DONE(copy(j->into, j->of, j->bytes, stream));
}

/* As the GPU tells it. */
static double time_job(const job *j) {
    double seconds[TRANSFERS];
    for (int i = 0; i < TRANSFERS; i++) {
        DONE(event_record(from, stream));
        begin(j);
        DONE(event_record(to, stream));
        DONE(event_seconds(from, to, &seconds[i]));
    }
    return median(seconds, TRANSFERS);
}

static void print_rates(size_t bytes, const double *seconds, int count) {
    printf("%12zu", bytes);
    for (int i = 0; i < count; i++) printf(" %11.2f", 1e-9 * (double)bytes / seconds[i]);
    printf("\n");
    fflush(stdout);
}

/* Encodings in the GPU's memory, and where the host has them: there kernels cross PCIe. */
static void time_size(size_t bytes) {
    rp_codec q4;
    rpi_device_call near, far, back;
    (void)rp_codec_parse("q4", &q4);
    if (rpi_device_call_of(&q4, RP_F32, bytes / sizeof(float), NULL, &near) != RP_OK) exit(1);
    size_t encoded = rp_codec_encoded_bytes(&q4, RP_F32, bytes / sizeof(float));
    near.x = there;
    near.encoded = encoding;
    far = near;
    far.encoded = pinned;
    back = far;
    back.y = other;
    const job jobs[] = {{there, pinned, bytes, NULL, NULL},
                        {pinned, there, bytes, NULL, NULL},
                        {other, there, bytes, NULL, NULL},
                        {NULL, NULL, 0, &near, NULL},
                        {NULL, NULL, 0, &far, NULL},
                        {NULL, NULL, 0, NULL, &back},
                        {pinned, encoding, encoded, NULL, NULL}};
    enum { JOBS = sizeof jobs / sizeof *jobs };
    double seconds[JOBS];
    for (int i = 0; i < JOBS; i++) seconds[i] = time_job(&jobs[i]);
    seconds[JOBS - 1] += seconds[3]; /* encoded there, and copied */
    print_rates(bytes, seconds, JOBS);
}

static void open_all(void) {
    DONE(device_set(0));
    DONE(allocate(most, &there));
    DONE(allocate(most, &other));
    DONE(allocate(most, &encoding));
    DONE(pin(most, &pinned));
    DONE(stream_make(&stream));
    DONE(waiter_make(&bell));
    DONE(mark_make(&mark));
    DONE(event_make(&from));
    DONE(event_make(&to));
    float *host = pinned;
    for (size_t i = 0; i < most / sizeof *host; i++)
        host[i] = (float)(int)((uint32_t)i * 2654435761u) * 0x1p-31f;
    DONE(copy(there, pinned, most, stream));
    DONE(copy(other, pinned, most, stream));
    DONE(wait(stream));
    rung = eventfd(0, EFD_CLOEXEC);
}

int main(void) {
    const char *megabytes = getenv("GPU_PROBE_MB");
    char text[512];
    most = (size_t)(megabytes ? atoi(megabytes) : 256) << 20;
    if (most == 0) return 2;
    if (rpi_cuda_open(&cuda) != RP_OK || rpi_cuda_prepare(cuda, 0) != RP_OK) {
        printf("skipped: %s\n", rp_last_error()->message);
        return SKIPPED;
    }
    open_all();
    printf("%s; medians\n", rpi_cuda_summary(text, sizeof text));
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) time_call(&calls[i]);
    printf(
        "GB/s of elements (f32); q4: encoded in the GPU's memory, into pinned memory, decoded "
        "from there, encoded there and copied\n%12s %11s %11s %11s %11s %11s %11s %11s\n",
        "bytes", "to GPU", "from GPU", "within", "q4", "q4 pinned", "from pinned", "q4 + copy");
    for (size_t bytes = 128 << 10; bytes <= most; bytes *= 4) time_size(bytes);
    return 0;
}
