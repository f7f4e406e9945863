/* What goes wrong with memory of a GPU, over its stand-in: it has a name, on every rank, nobody
 * hangs, and memory comes back. */
#include "comm/device_world.h"

#include "base/clock.h"
#include "base/event.h"
#include "comm/core/communicator.h"
#include "comm/core/progress_owner.h"
#include "comm/device/device.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 6000, MESSAGE = 512 };

static const rp_comm_options quick =
    RP_COMM_OPTIONS(.transport = "inproc", .connect_timeout_s = 20, .timeout_s = 60,
                    .chunk_bytes = 4096);

static stand_in *control;

static void begin(void) {
    control = device_begin();
}

/* ---- refused before anything is posted ---- */

static rp_status reduce(rp_comm *comm, void *data, void *residual, const char *codec,
                        void *stream) {
    rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_F32, .residual = residual};
    bool alone = rp_comm_world(comm) == 1; /* whose sum would need no GPU */
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.reduce = alone ? RP_PREMUL_SUM : RP_SUM, .factor = 2,
                              .memory = RP_MEMORY_CUDA, .stream = stream);
    rp_request *request = NULL;
    if (codec) CHECK_OK(rp_codec_parse(codec, &segment.codec));
    rp_status status = rp_all_reduce_start(comm, &segment, 1, &options, &request);
    return status == RP_OK ? rp_request_wait(&request) : status;
}

static void what_is_refused(void) {
    static float here[COUNT];
    begin();
    rp_comm *comm = NULL;
    REQUIRE_OK(rp_comm_create(NULL, 0, 1, NULL, &comm));
    device_rank(0);
    memory_piece one = memory_take(true, COUNT * sizeof(float));
    device_rank(1);
    memory_piece other = memory_take(true, COUNT * sizeof(float));
    void *stream = memory_stream(true);
    CHECK_FAILS(reduce(comm, here, NULL, NULL, NULL), INVALID, "lies in memory of the host");
    CHECK_FAILS(reduce(comm, one.at, other.at, NULL, NULL), INVALID, "lies on GPU 1");
    CHECK_FAILS(reduce(comm, one.at, here, NULL, NULL), INVALID, "the residual of segment 0");
    CHECK_FAILS(reduce(comm, one.at, NULL, NULL, stream), IO, "options->stream");
    rp_segment segment = {.data = one.at, .count = COUNT, .dtype = RP_F32};
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.memory = (rp_memory)7);
    CHECK_FAILS(rp_all_reduce(comm, &segment, 1, &options), INVALID, "no kind of memory");
    CHECK_OK(reduce(comm, other.at, NULL, NULL, stream));
    CHECK_OK(reduce(comm, one.at, NULL, NULL, NULL));
    atomic_store(&control->foreign, true);
    CHECK_FAILS(reduce(comm, one.at, NULL, NULL, NULL), INVALID, "a CUDA context of its own");
    atomic_store(&control->foreign, false);
    atomic_store(&control->captures[0], true);
    CHECK_FAILS(reduce(comm, one.at, NULL, NULL, NULL), UNSUPPORTED,
                "a CUDA graph is being captured");
    CHECK_OK(reduce(comm, other.at, NULL, NULL, stream));
    atomic_store(&control->captures[0], false);
    CHECK_OK(reduce(comm, one.at, NULL, NULL, NULL));
    CHECK_OK(rp_memory_check(RP_MEMORY_HOST));
    CHECK_OK(rp_memory_check(RP_MEMORY_CUDA));
    CHECK_FAILS(rp_memory_check((rp_memory)7), INVALID, "no kind of memory");
    memory_finish(true, stream);
    memory_give(&one);
    memory_give(&other);
    rp_comm_destroy(comm);
    device_check_empty();
}

/* The last GPU is too old for the kernels, which is said before anything is posted. */
static void an_old_gpu(void) {
    enum { OLD = STAND_IN_DEVICES - 1 };
    rp_comm *comm = NULL;
    begin();
    REQUIRE_OK(rp_comm_create(NULL, 0, 1, NULL, &comm));
    atomic_store(&control->capability[OLD], 70);
    device_rank(OLD);
    memory_piece there = memory_take(true, COUNT * sizeof(float));
    for (int i = 0; i < 2; i++)
        CHECK_FAILS(reduce(comm, there.at, NULL, i ? "q4" : NULL, NULL), UNSUPPORTED,
                    "GPU 7 has compute capability 7.0, and libredpoll_cuda.so has kernels for "
                    "7.5, 8.0, 9.0 and later");
    CHECK_OK(rp_memory_check(RP_MEMORY_CUDA)); /* others can be used */
    memory_give(&there);
    device_rank(0);
    memory_piece other = memory_take(true, COUNT * sizeof(float));
    memory_set(&other, 0);
    CHECK_OK(reduce(comm, other.at, NULL, "q4", NULL));
    memory_give(&other);
    rp_comm_destroy(comm);
    device_check_empty();
}

/* The library is looked for once: in a process of its own. */
static void turned_off(void) {
    static float here[COUNT];
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        rp_comm *comm = NULL;
        setenv("REDPOLL_CUDA", "off", 1);
        rp_status status = rp_comm_create(NULL, 0, 1, NULL, &comm);
        if (status == RP_OK && rp_memory_check(RP_MEMORY_CUDA) != RP_UNSUPPORTED) _exit(2);
        if (status == RP_OK) status = reduce(comm, here, NULL, NULL, NULL);
        bool named = strstr(rp_last_error()->message, "turned off by REDPOLL_CUDA=off") != NULL;
        _exit(status != RP_UNSUPPORTED || !named);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
}

/* ---- failures on the way ---- */

typedef struct ending {
    int at_fault; /* whose GPU fails */
    const char *codec;
    rp_status wanted;
    const char *says;
    long after; /* calls */
    int failed; /* ranks */
    rp_status status[DEVICE_WORLD];
    char message[DEVICE_WORLD][MESSAGE];
} ending;

static void note(ending *e, int rank, rp_status status) {
    e->status[rank] = status;
    snprintf(e->message[rank], MESSAGE, "%s", status == RP_OK ? "" : rp_last_error()->message);
}

/* What the operation had is given back as soon as it is over: nothing touches it then. */
static void reduce_once(rp_comm *comm, int rank, int world, void *context) {
    ending *e = context;
    (void)world;
    device_rank(rank);
    memory_piece data = memory_take(true, COUNT * sizeof(float));
    memory_piece residual = memory_take(true, COUNT * sizeof(float));
    memory_set(&data, 0);
    memory_set(&residual, 0);
    world_meet();
    if (rank == e->at_fault && e->after >= 0)
        atomic_store(&control->fails_after[rank], e->after);
    if (rank == e->at_fault && e->wanted == RP_NOMEM) atomic_store(&control->pins_left, 0);
    note(e, rank, reduce(comm, data.at, residual.at, e->codec, NULL));
    memory_give(&data);
    memory_give(&residual);
}

static void check_ending(ending *e, int world) {
    int failed = 0;
    for (int rank = 0; rank < world; rank++) {
        failed += e->status[rank] != RP_OK;
        if (e->status[rank] == RP_OK) continue;
        CHECK_MSG(e->status[rank] == e->wanted && strstr(e->message[rank], e->says) != NULL,
                  "rank %d, after %ld calls: %s: %s", rank, e->after,
                  rp_status_name(e->status[rank]), e->message[rank]);
    }
    e->failed = failed;
}

static void crashed_kernels(void) {
    int some = 0;
    for (long after = 0; after < 60; after += after < 12 ? 1 : 5) {
        begin();
        ending e = {.at_fault = 1,
                    .codec = after % 2 ? "q4:bucket=100" : NULL,
                    .wanted = RP_IO,
                    .says = "rank 1, in all-reduce 1: CUDA: ",
                    .after = after};
        if (after == 0) e.says = "CUDA: "; /* it is refused at once: others hear by abort */
        world_run(3, &quick, reduce_once, &e);
        if (after > 0) check_ending(&e, 3);
        some += e.failed;
    }
    CHECK(some > 10);
    begin();
    device_check_empty();
}

static void no_memory_to_pin(void) {
    begin();
    ending e = {.at_fault = 2, .wanted = RP_NOMEM, .says = "the host has no ", .after = -1};
    world_run(3, &quick, reduce_once, &e);
    check_ending(&e, 3);
    CHECK_EQ(e.failed, 3);
    begin();
    device_check_empty();
}

/* ---- a GPU that does not come to it ---- */

/* What was lost may still be written to. */
static void await_no_work(void) {
    int64_t deadline_ns = rpi_deadline_ns(60);
    while (atomic_load(&control->pending) > 0 && rpi_now_ns() < deadline_ns)
        rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 1000);
    CHECK_EQ(atomic_load(&control->pending), 0);
}

static void reduce_frozen(rp_comm *comm, int rank, int world, void *context) {
    ending *e = context;
    (void)world;
    device_rank(rank);
    void *stream = memory_stream(true);
    memory_piece data = memory_take(true, COUNT * sizeof(float));
    memory_set(&data, 0);
    if (rank == e->at_fault) atomic_store(&control->frozen[rank], true);
    world_meet();
    note(e, rank, reduce(comm, data.at, NULL, e->codec, stream));
    world_meet();
    atomic_store(&control->frozen[rank], false);
    memory_finish(true, stream);
    world_meet();
    await_no_work();
    memory_give(&data);
}

static void an_event_that_never_comes(void) {
    rp_comm_options options = quick;
    options.timeout_s = 5; /* a rank that gets no core is not met before the frozen one */
    for (int world = 1; world <= 3; world += 2) {
        begin();
        ending e = {.at_fault = world / 2,
                    .wanted = RP_TIMEOUT,
                    .says = world == 1 ? "the GPU of rank 0 has not come to"
                                       : "the GPU of rank 1 has not come to"};
        world_run(world, &options, reduce_frozen, &e);
        check_ending(&e, world);
        CHECK_EQ(e.failed, world);
    }
}

/* What was pinned is not given back while the GPU stands: that would wait for it. */
static void a_frozen_one_is_left(void) {
    rp_comm_options options = quick;
    rp_comm *comm = NULL;
    options.timeout_s = 1;
    options.chunk_bytes = COUNT * sizeof(float); /* the second call pins a smaller block */
    begin();
    device_rank(0);
    REQUIRE_OK(rp_comm_create(NULL, 0, 1, &options, &comm));
    void *stream = memory_stream(true);
    memory_piece data = memory_take(true, COUNT * sizeof(float));
    memory_set(&data, 0);
    CHECK_OK(reduce(comm, data.at, NULL, NULL, stream));
    long held_up = atomic_load(&control->held_up);
    atomic_store(&control->frozen[0], true);
    rp_segment segment = {.data = data.at, .count = 100, .dtype = RP_F32};
    rp_collective_options call =
        RP_COLLECTIVE_OPTIONS(.reduce = RP_PREMUL_SUM, .factor = 2, .memory = RP_MEMORY_CUDA,
                              .stream = stream);
    CHECK_FAILS(rp_all_reduce(comm, &segment, 1, &call), TIMEOUT, "the GPU of rank 0");
    rp_comm_destroy(comm);
    CHECK_EQ(atomic_load(&control->held_up), held_up);
    atomic_store(&control->frozen[0], false);
    memory_finish(true, stream);
    begin(); /* what was lost may still be written to: all of it is done */
    memory_give(&data);
}

/* Something is put into a lane that the progress owner waits for. */
static void mark_a_lane(rpi_transfer *transfer) {
    rpi_cuda_before before;
    uint64_t mark;
    REQUIRE_OK(rpi_device_enter(transfer->device, &before));
    CHECK_OK(rpi_lane_mark(transfer, RPI_LANE_INTO, &mark));
    CHECK_OK(rpi_lanes_seal(transfer->device));
    rpi_device_leave(transfer->device, &before);
}

/* The progress owner, about to sleep, asks the GPU to wake it, which never comes to what it was
 * given. If the GPU takes no such wish any more, the owner does not sleep. */
static void sleep_behind_work(rp_comm *comm, memory_piece *data, void *stream, bool crashed) {
    rpi_context *context = comm->context;
    rp_segment segment = {.data = data->at, .count = COUNT, .dtype = RP_F32};
    rp_collective_options call =
        RP_COLLECTIVE_OPTIONS(.reduce = RP_PREMUL_SUM, .factor = 2, .memory = RP_MEMORY_CUDA,
                              .stream = stream);
    rp_request *request = NULL;
    atomic_store(&control->frozen[0], true);
    REQUIRE_OK(rp_all_reduce_start(comm, &segment, 1, &call, &request));
    rpi_progress_acquire(context);
    mark_a_lane(request->device);
    rpi_event_clear(context->wake_fd);
    if (crashed) atomic_store(&control->fails_after[0], 0);
    atomic_store(&context->asleep, true);
    CHECK_EQ(rpi_lanes_arm(request->device->device), !crashed);
    rpi_devices_arm(context);
    atomic_store(&context->asleep, false);
    struct pollfd woken = {.fd = context->wake_fd, .events = POLLIN};
    CHECK_EQ(poll(&woken, 1, 0), crashed);
    rpi_progress_release(context);
    atomic_store(&control->frozen[0], false);
    CHECK_EQ(rp_request_wait(&request), crashed ? RP_IO : RP_OK);
}

static void nobody_sleeps_behind_a_crash(void) {
    rp_comm *comm = NULL;
    begin();
    device_rank(0);
    REQUIRE_OK(rp_comm_create(NULL, 0, 1, &quick, &comm));
    void *stream = memory_stream(true);
    memory_piece data = memory_take(true, COUNT * sizeof(float));
    memory_set(&data, 0);
    CHECK_OK(reduce(comm, data.at, NULL, NULL, stream)); /* opens the lanes */
    sleep_behind_work(comm, &data, stream, false);
    sleep_behind_work(comm, &data, stream, true);
    rp_comm_destroy(comm);
    begin();
    memory_finish(true, stream);
    memory_give(&data);
    device_check_empty();
}

/* ---- a peer that ends ---- */

static void reduce_until_abort(rp_comm *comm, int rank, int world, void *context) {
    ending *e = context;
    (void)world;
    device_rank(rank);
    memory_piece data = memory_take(true, COUNT * sizeof(float));
    memory_set(&data, 0);
    world_meet();
    if (rank == 0) {
        rpi_sleep_until_ns(rpi_now_ns() + (int64_t)e->after * 100000);
        rp_comm_abort(comm, RP_IO, "a test");
    } else {
        for (int i = 0; i < 3 && e->status[rank] == RP_OK; i++)
            note(e, rank, reduce(comm, data.at, NULL, e->codec, NULL));
    }
    memory_give(&data);
}

static void a_peer_gives_up(void) {
    for (int i = 0; i < 30; i++) {
        begin();
        ending e = {.at_fault = -1,
                    .codec = i % 2 ? "q4" : NULL,
                    .wanted = RP_IO,
                    .says = "rank 0 gave up: a test",
                    .after = i};
        world_run(3, &quick, reduce_until_abort, &e);
        check_ending(&e, 3);
        CHECK_EQ(e.failed, 2);
    }
    begin();
    device_check_empty();
}

/* Destroyed with operations in flight: afterwards buffers are free. */
static void leave_in_flight(rp_comm *comm, int rank, int world, void *context) {
    static const int all[] = {0, 1, 2};
    rp_comm *group = NULL;
    rp_request *request = NULL;
    memory_piece data[4];
    (void)context;
    device_rank(rank);
    CHECK_OK(rp_comm_group(comm, all, world, NULL, &group));
    world_meet();
    for (int i = 0; i < 4; i++) {
        data[i] = memory_take(true, COUNT * sizeof(float));
        memory_set(&data[i], 0);
        rp_segment segment = {.data = data[i].at, .count = COUNT, .dtype = RP_F32};
        rp_collective_options options = RP_COLLECTIVE_OPTIONS(.memory = RP_MEMORY_CUDA);
        /* Refused where another has left by now. */
        (void)rp_all_reduce_start(group, &segment, 1, &options, &request);
    }
    rp_comm_destroy(group);
    for (int i = 0; i < 4; i++) memory_give(&data[i]);
    void *stream = memory_stream(true); /* nothing has touched what was given back */
    memory_finish(true, stream);
}

static void ends_in_flight(void) {
    for (int i = 0; i < 20; i++) {
        begin();
        world_run(3, &quick, leave_in_flight, NULL);
    }
    begin();
    device_check_empty();
}

CASES({"turned_off", turned_off}, {"what_is_refused", what_is_refused},
      {"an_old_gpu", an_old_gpu}, {"crashed_kernels", crashed_kernels},
      {"no_memory_to_pin", no_memory_to_pin}, {"a_peer_gives_up", a_peer_gives_up},
      {"ends_in_flight", ends_in_flight},
      {"nobody_sleeps_behind_a_crash", nobody_sleeps_behind_a_crash},
      {"an_event_that_never_comes", an_event_that_never_comes},
      {"a_frozen_one_is_left", a_frozen_one_is_left})
