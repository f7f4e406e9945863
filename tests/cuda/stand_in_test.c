/* The stand-in for a GPU does what other tests count on: it is late, keeps order, and lets
 * nobody touch its memory. */
#include "cuda/device_codec.h"
#include "cuda/device_runner.h"
#include "cuda/stand_in_world.h"

#include "harness/check.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const rpi_cuda_library *cuda;
static stand_in *control;

#define DONE(expression) CHECK_OK(rpi_cuda_check(cuda, expression, #expression))

static void begin(void) {
    cuda = stand_in_begin(&control);
    DONE(cuda->device_set(1));
}

static void host_may_not_touch(void) {
    void *there = NULL;
    begin();
    DONE(cuda->allocate(100, &there));
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const struct rlimit none = {0};
        (void)setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile char *)there == 0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_MSG(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "it ended with %x", status);
    DONE(cuda->release(there));
}

static void memory_has_a_device(void) {
    void *there = NULL, *pinned = NULL;
    int device = 7;
    begin();
    DONE(cuda->allocate(100, &there));
    DONE(cuda->pin(100, &pinned));
    DONE(cuda->device_of((char *)there + 99, &device));
    CHECK_EQ(device, 1);
    DONE(cuda->device_of(pinned, &device));
    CHECK_EQ(device, RPI_CUDA_HOST);
    DONE(cuda->device_of(&device, &device));
    CHECK_EQ(device, RPI_CUDA_HOST);
    DONE(cuda->release(there));
    DONE(cuda->unpin(pinned));
}

/* What is copied is what is there when its turn comes. */
static void copies_are_late(void) {
    void *there = NULL, *pinned = NULL, *stream = NULL;
    begin();
    DONE(cuda->allocate(1, &there));
    DONE(cuda->pin(2, &pinned));
    DONE(cuda->stream_make(&stream));
    volatile char *host = pinned;
    host[0] = 1;
    atomic_store(&control->frozen[1], true);
    DONE(cuda->copy(there, pinned, 1, stream));
    DONE(cuda->copy((char *)pinned + 1, there, 1, stream));
    host[0] = 2;
    atomic_store(&control->frozen[1], false);
    DONE(cuda->wait(stream));
    CHECK_EQ(host[1], 2);
    cuda->stream_free(stream);
    DONE(cuda->release(there));
    DONE(cuda->unpin(pinned));
}

static void count_up(void *context) {
    atomic_fetch_add((atomic_int *)context, 1);
}

/* A stream that waits for a place in another one. */
static void streams_wait_for_events(void) {
    void *streams[2], *event = NULL;
    static atomic_int first, second;
    begin();
    for (int i = 0; i < 2; i++) DONE(cuda->stream_make(&streams[i]));
    DONE(cuda->mark_make(&event));
    for (int i = 0; i < 50; i++) {
        int done = 1;
        atomic_store(&control->frozen[1], true);
        DONE(cuda->stream_call(streams[0], count_up, &first));
        DONE(cuda->event_record(event, streams[0]));
        DONE(cuda->stream_wait_for(streams[1], event));
        DONE(cuda->stream_call(streams[1], count_up, &second));
        DONE(cuda->event_done(event, &done));
        CHECK_EQ(done, 0);
        CHECK_EQ(atomic_load(&second), i);
        atomic_store(&control->frozen[1], false);
        DONE(cuda->wait(streams[1]));
        DONE(cuda->event_done(event, &done));
        CHECK_EQ(done, 1);
        CHECK_EQ(atomic_load(&first), i + 1);
        CHECK_EQ(atomic_load(&second), i + 1);
    }
    for (int i = 0; i < 2; i++) cuda->stream_free(streams[i]);
    cuda->event_free(event);
}

static void what_is_wrong_is_refused(void) {
    void *pinned = NULL, *stream = NULL, *event = NULL;
    char pageable[8];
    int done = 0;
    begin();
    DONE(cuda->stream_make(&stream));
    DONE(cuda->mark_make(&event));
    DONE(cuda->pin(8, &pinned));
    DONE(cuda->device_set(2));
    rpi_device_call call = {.count = 1};
    CHECK_FAILS(rpi_cuda_check(cuda, cuda->encode(&call, stream), "encoding"), IO,
                "cudaErrorInvalidResourceHandle");
    DONE(cuda->device_set(1));
    atomic_store(&control->pins_left, 0);
    void *more = NULL;
    CHECK_FAILS(rpi_cuda_check(cuda, cuda->pin(8, &more), "pinning"), NOMEM, "pinning");
    atomic_store(&control->pins_left, -1);
    DONE(cuda->copy(pinned, pageable, 8, stream));
    CHECK_FAILS(rpi_cuda_check(cuda, cuda->wait(stream), "copying"), IO,
                "cudaErrorIllegalAddress");
    CHECK_FAILS(rpi_cuda_check(cuda, cuda->copy(pinned, pinned, 8, stream), "copying"), IO,
                "cudaErrorIllegalAddress");
    begin(); /* whole again */
    atomic_store(&control->fails_after[1], 1);
    DONE(cuda->event_record(event, stream));
    CHECK_FAILS(rpi_cuda_check(cuda, cuda->event_record(event, stream), "a record"), IO,
                "cudaErrorLaunchFailure");
    begin();
    DONE(cuda->wait(stream));
    DONE(cuda->event_done(event, &done));
    CHECK_EQ(done, 1);
    cuda->stream_free(stream);
    cuda->event_free(event);
    DONE(cuda->unpin(pinned));
}

/* All GPUs are too old: it is known before anything is done, and which capability they have. */
static void old_gpus(void) {
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const rpi_cuda_library *table = NULL;
        setenv(STAND_IN_CAPABILITY, "61", 1);
        bool refused = rpi_cuda_open(&table) == RP_UNSUPPORTED;
        bool named =
            strstr(rp_last_error()->message,
                   "compute capability 6.1, and libredpoll_cuda.so has kernels for 7.5, "
                   "8.0, 9.0 and later") != NULL;
        _exit(!refused || !named);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
}

/* The test of kernels on a GPU works on copies there: what a kernel writes beside its encoding
 * comes back with them. */
static void what_is_written_beside_is_seen(void) {
    enum { COUNT = 100 };
    begin();
    const device_runner *runner = device_runner_by(cuda);
    device_cases_run(runner, 2);
    rp_codec codec;
    static float x[COUNT];
    static unsigned char wire[1024];
    rpi_device_call call;
    REQUIRE_OK(rp_codec_parse("q4", &codec));
    REQUIRE_OK(rpi_device_call_of(&codec, RP_F32, COUNT, NULL, &call));
    size_t bytes = rp_codec_encoded_bytes(&codec, RP_F32, COUNT);
    call.x = x;
    for (int shift = 0; shift < 16; shift++) {
        int spills[] = {-1, -DEVICE_CASES_GUARD, (int)bytes,
                        (int)bytes + DEVICE_CASES_GUARD - 1};
        for (size_t i = 0; i < sizeof spills / sizeof *spills; i++) {
            memset(wire, 0, sizeof wire);
            call.encoded = wire + DEVICE_CASES_GUARD + shift;
            atomic_store(&control->spills, spills[i]);
            runner->encode(&call, bytes);
            CHECK_MSG(call.encoded[spills[i]] == 1, "at %d, by %d", spills[i], shift);
        }
    }
    atomic_store(&control->spills, 0);
    device_runner_end();
}

static void kernels_are_loaded_once(void) {
    begin();
    for (int i = 0; i < 2; i++) CHECK_OK(rpi_cuda_prepare(cuda, 1));
    CHECK_FAILS(rpi_cuda_prepare(cuda, STAND_IN_DEVICES), UNSUPPORTED, "GPU 8");
}

static void nothing_is_left(void) {
    begin();
    CHECK_EQ(atomic_load(&control->allocated), 0);
    CHECK_EQ(atomic_load(&control->pinned), 0);
    CHECK_EQ(atomic_load(&control->streams), 0);
    CHECK_EQ(atomic_load(&control->events), 0);
}

CASES({"old_gpus", old_gpus},
      {"what_is_written_beside_is_seen", what_is_written_beside_is_seen},
      {"kernels_are_loaded_once", kernels_are_loaded_once},
      {"host_may_not_touch", host_may_not_touch}, {"memory_has_a_device", memory_has_a_device},
      {"copies_are_late", copies_are_late},
      {"streams_wait_for_events", streams_wait_for_events},
      {"what_is_wrong_is_refused", what_is_wrong_is_refused},
      {"nothing_is_left", nothing_is_left})
