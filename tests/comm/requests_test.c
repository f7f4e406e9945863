/* Several operations in flight, ranks out of step, and what is queued as unexpected meanwhile.
 */
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/thread_world.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { OPERATIONS = 12, COUNT = 30000 };

static void pause_ms(int milliseconds) {
    struct timespec span = {.tv_nsec = milliseconds * 1000000L};
    nanosleep(&span, NULL);
}

static void start(rp_comm *comm, int operation, int32_t *data, size_t count,
                  rp_request **request) {
    for (size_t i = 0; i < count; i++) data[i] = operation + rp_comm_rank(comm);
    rp_segment segment = {.data = data, .count = count, .dtype = RP_I32};
    CHECK_OK(rp_all_reduce_start(comm, &segment, 1, NULL, request));
}

static void check_sum(int operation, const int32_t *data, size_t count, int world) {
    int32_t wanted = operation * world + world * (world - 1) / 2;
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) wrong += data[i] != wanted;
    CHECK_MSG(wrong == 0, "operation %d: %zu of %zu wrong", operation, wrong, count);
}

/* Each rank waits for the operations in an order of its own. */
static void shuffled(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    static int32_t data[8][OPERATIONS][COUNT];
    for (int round = 0; round < 4; round++) {
        rp_request *requests[OPERATIONS];
        int order[OPERATIONS];
        rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, (uint64_t)(rank * 100 + round));
        for (int o = 0; o < OPERATIONS; o++) {
            order[o] = o;
            start(comm, o, data[rank][o], COUNT - (size_t)o * 7, &requests[o]);
            if (rpi_rng_below(&rng, 8) == 0) pause_ms(1);
        }
        for (int o = OPERATIONS - 1; o > 0; o--) {
            int k = (int)rpi_rng_below(&rng, (uint32_t)o + 1), swap = order[o];
            order[o] = order[k];
            order[k] = swap;
        }
        for (int o = 0; o < OPERATIONS; o++) {
            CHECK_OK(rp_request_wait(&requests[order[o]]));
            CHECK(requests[order[o]] == NULL);
            check_sum(order[o], data[rank][order[o]], COUNT - (size_t)order[o] * 7, world);
        }
    }
}

static void operations_may_be_waited_for_in_any_order(void) {
    rp_comm_options tiny = RP_COMM_OPTIONS(.transport = "inproc", .chunk_bytes = 4096);
    rp_comm_options threaded =
        RP_COMM_OPTIONS(.transport = "inproc", .progress_thread = 1, .chunk_bytes = 16384);
    for (int world = 1; world <= 5; world++) {
        world_run(world, NULL, shuffled, NULL);
        world_run(world, &tiny, shuffled, NULL);
        world_run(world, &threaded, shuffled, NULL);
    }
}

/* One rank posts everything before the others have posted anything: its frames are queued as
 * unexpected.
 */
static void far_ahead(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    static int32_t data[8][OPERATIONS][COUNT];
    rp_request *requests[OPERATIONS];
    if (rank != 0) pause_ms(30);
    for (int o = 0; o < OPERATIONS; o++) {
        start(comm, o, data[rank][o], COUNT, &requests[o]);
        if (rank != 0) CHECK_OK(rp_request_wait(&requests[o]));
    }
    for (int o = 0; o < OPERATIONS; o++) {
        if (rank == 0) CHECK_OK(rp_request_wait(&requests[o]));
        check_sum(o, data[rank][o], COUNT, world);
    }
}

static void a_rank_may_be_far_ahead(void) {
    rp_comm_options tiny =
        RP_COMM_OPTIONS(.transport = "inproc", .chunk_bytes = 2048, .chunks_in_flight = 8);
    for (int world = 2; world <= 5; world++) world_run(world, &tiny, far_ahead, NULL);
}

/* ---- waiting from several threads ---- */

typedef struct waiter {
    rp_request *request;
    pthread_t thread;
} waiter;

static void *wait_main(void *context) {
    waiter *w = context;
    CHECK_OK(rp_request_wait(&w->request));
    return NULL;
}

static void many_waiters(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    static int32_t data[4][4][COUNT];
    waiter waiters[4];
    for (int round = 0; round < 10; round++) {
        for (int w = 0; w < 4; w++) {
            start(comm, w, data[rank][w], COUNT, &waiters[w].request);
            pthread_create(&waiters[w].thread, NULL, wait_main, &waiters[w]);
        }
        for (int w = 0; w < 4; w++) {
            pthread_join(waiters[w].thread, NULL);
            check_sum(w, data[rank][w], COUNT, world);
        }
    }
}

/* What errors say of an operation under way, cut to whatever room there is. */
static void describe(rp_comm *comm, int rank, int world, void *context) {
    static const char wanted[] = "all-reduce 2, round 2 of 4 (scatter), chunk 1 of 1";
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = "sra");
    int32_t data[8] = {0};
    rp_segment segment = {.data = data, .count = 8, .dtype = RP_I32};
    rp_request *request = NULL;
    (void)world, (void)context;
    CHECK_OK(rp_barrier(comm));
    if (rank) world_meet();
    CHECK_OK(rp_all_reduce_start(comm, &segment, 1, &options, &request));
    if (!rank) {
        CHECK_EQ(rp_request_test(request), RP_PENDING);
        for (size_t bytes = 1; bytes <= sizeof wanted; bytes++) {
            char text[sizeof wanted + 80];
            memset(text, '#', sizeof text);
            rpi_request_text(request, text, bytes);
            CHECK_MSG(!text[bytes - 1] && !strncmp(text, wanted, bytes - 1), "'%.*s'",
                      (int)bytes, text);
            for (size_t i = bytes; i < sizeof text; i++) CHECK(text[i] == '#');
        }
        world_meet();
    }
    CHECK_OK(rp_request_wait(&request));
}

static void errors_say_how_far_it_came(void) {
    world_run(2, NULL, describe, NULL);
}

/* A thread that waits for a message drives, and so sends what another waits for: that one
 * learns of it at once, not when the first has what it wants, which here would be never. */
static void wait_beside_a_driver(rp_comm *comm, int rank, int world, void *context) {
    int32_t late = 0, word = 0;
    (void)world, (void)context;
    if (rank == 1) {
        for (int i = 0; i < 2; i++) CHECK_OK(rp_recv(comm, &word, 1, RP_I32, 0, 1));
        CHECK_OK(rp_send(comm, &late, 1, RP_I32, 0, 2));
        return;
    }
    waiter driver = {0};
    CHECK_OK(rp_recv_start(comm, &late, 1, RP_I32, 1, 2, &driver.request));
    pthread_create(&driver.thread, NULL, wait_main, &driver);
    pause_ms(2); /* drives by now, most times */
    for (int i = 0; i < 2; i++) CHECK_OK(rp_send(comm, &word, 1, RP_I32, 1, 1));
    pthread_join(driver.thread, NULL);
}

static void who_waits_beside_a_driver_is_woken(void) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "inproc", .timeout_s = 5, .warn_after_s = 5);
    for (int i = 0; i < 10 && !check_failures(); i++)
        world_run(2, &options, wait_beside_a_driver, NULL);
}

static void any_thread_may_wait(void) {
    rp_comm_options plain = RP_COMM_OPTIONS(.transport = "inproc", .chunk_bytes = 16384);
    rp_comm_options threaded = plain;
    threaded.progress_thread = 1;
    world_run(3, &plain, many_waiters, NULL);
    world_run(3, &threaded, many_waiters, NULL);
}

/* ---- testing, and a thread that drives ---- */

static void poll_requests(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    static int32_t data[4][COUNT];
    rp_request *request = NULL;
    for (int round = 0; round < 5; round++) {
        start(comm, round, data[rank], COUNT, &request);
        rp_status status;
        while ((status = rp_request_test(request)) == RP_PENDING) pause_ms(1);
        CHECK_EQ(status, RP_OK);
        CHECK_OK(rp_request_wait(&request));
        check_sum(round, data[rank], COUNT, world);
    }
}

static void requests_can_be_tested(void) {
    for (int world = 1; world <= 3; world++) world_run(world, NULL, poll_requests, NULL);
}

/* With a progress thread operations end while every caller is away. */
static void nobody_waits(rp_comm *comm, int rank, int world, void *context) {
    (void)context, (void)world;
    static int32_t data[4][COUNT];
    rp_comm_stats stats;
    rp_request *request = NULL;
    start(comm, 1, data[rank], COUNT, &request);
    do {
        pause_ms(1);
        rp_comm_get_stats(comm, &stats);
    } while (stats.wire_bytes_received < COUNT * sizeof(int32_t));
    world_meet();
    CHECK_OK(rp_request_wait(&request));
    rp_comm_get_stats(comm, &stats);
    CHECK(stats.wire_bytes_sent > 0);
}

static void a_progress_thread_moves_bytes_while_nobody_waits(void) {
    rp_comm_options threaded = RP_COMM_OPTIONS(.transport = "inproc", .progress_thread = 1);
    world_run(2, &threaded, nobody_waits, NULL);
}

/* ---- bytes that have left ---- */

static bool all_has_left(const rp_comm *comm) {
    for (int i = 0; comm->context->mesh->endpoints[i]; i++) {
        rpi_endpoint *endpoint = comm->context->mesh->endpoints[i];
        if (endpoint->transport->flushed(endpoint) == RP_PENDING) return false;
    }
    return true;
}

/* Rank 0 is done with a broadcast, and nobody makes progress for its sends and receives, whose
 * other sides come later. */
static void leave_with_receives(rp_comm *comm, int rank, int world, void *context) {
    enum { STEP = 1 << 19, STEPS = 12 };
    (void)world, (void)context;
    unsigned char *data = calloc(STEPS, STEP);
    float x[3] = {0};
    rp_request *requests[3] = {0};
    if (rank == 0) {
        CHECK_OK(rp_recv_start(comm, &x[0], 1, RP_F32, 1, 1, &requests[0]));
        CHECK_OK(rp_recv_any_start(comm, &x[1], 1, RP_F32, 2, &requests[1]));
        CHECK_OK(rp_send_start(comm, &x[2], 1, RP_F32, 1, 3, &requests[2]));
    }
    for (size_t n = 1; n <= STEPS; n++) {
        if (rank == 1) pause_ms(20);
        CHECK_OK(rp_broadcast(comm, data, n * STEP, RP_U8, NULL));
        if (rank == 0) CHECK_MSG(all_has_left(comm), "%zu bytes", n * STEP);
        world_meet();
    }
    if (rank == 1) {
        CHECK_OK(rp_send(comm, &x[0], 1, RP_F32, 0, 1));
        CHECK_OK(rp_send(comm, &x[1], 1, RP_F32, 0, 2));
        CHECK_OK(rp_recv(comm, &x[2], 1, RP_F32, 0, 3));
    }
    for (int i = 0; i < 3 && rank == 0; i++) CHECK_OK(rp_request_wait(&requests[i]));
    free(data);
}

static void what_is_done_has_left(void) {
    rp_comm_options tcp =
        RP_COMM_OPTIONS(.transport = "tcp", .timeout_s = 10, .strict_timeout = 1);
    world_run(2, &tcp, leave_with_receives, NULL);
}

/* ---- who makes progress ---- */

static bool is_done_by(rp_request *request, int64_t deadline_ns) {
    while (!atomic_load(&request->done) && rpi_now_ns() < deadline_ns) pause_ms(1);
    return atomic_load(&request->done);
}

/* Rank 0 has posted and waits for nothing: its progress thread ends the sum, but not before
 * both calls of rp_comm_attend() have been taken back. */
static void attend_and_leave(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    static int32_t data[2][COUNT];
    rp_request *request = NULL;
    if (rank == 1) world_meet(); /* rank 0 has posted */
    for (int i = 0; i < 2 && rank == 0; i++) rp_comm_attend(comm);
    start(comm, 5, data[rank], COUNT, &request);
    if (rank == 0) {
        world_meet();
        CHECK(!is_done_by(request, rpi_now_ns() + 30 * (RPI_SECOND_NS / 1000)));
        rp_comm_leave(comm);
        CHECK(!is_done_by(request, rpi_now_ns() + 30 * (RPI_SECOND_NS / 1000)));
        rp_comm_leave(comm);
        CHECK(is_done_by(request, rpi_now_ns() + 20 * RPI_SECOND_NS));
    }
    CHECK_OK(rp_request_wait(&request));
    check_sum(5, data[rank], COUNT, world);
}

static void who_attends_keeps_the_thread_asleep(void) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "inproc", .progress_thread = 1, .timeout_s = 30);
    world_run(2, &options, attend_and_leave, NULL);
}

/* ---- misuse ---- */

/* A rank that only looks, and never sleeps, must not be stopped by what it cannot take yet:
 * here the first frame of a broadcast lies in front of the frame with the answer that it waits
 * for. */
static void look_at_what_lies_behind(rp_comm *comm, int rank, int world, void *context) {
    (void)world, (void)context;
    enum { HERE = 70000 };
    static float sums[2][HERE], later[2][16];
    rp_request *first = NULL, *second = NULL;
    rp_segment segment = {.data = sums[rank], .count = HERE, .dtype = RP_F32};
    rp_status status = RP_PENDING;
    for (int i = 0; i < HERE; i++) sums[rank][i] = 1;
    if (rank == 1) world_meet(); /* the other has posted and sent what it can */
    REQUIRE_OK(rp_all_reduce_start(comm, &segment, 1, NULL, &first));
    if (rank == 0) {
        REQUIRE_OK(rp_broadcast_start(comm, later[0], 16, RP_F32, NULL, &second));
        world_meet();
        CHECK_OK(rp_request_wait(&first));
    } else {
        while (status == RP_PENDING) status = rp_request_test(first);
        CHECK_MSG(status == RP_OK, "%s", rp_last_error()->message);
        CHECK_OK(rp_request_free(&first));
        REQUIRE_OK(rp_broadcast_start(comm, later[1], 16, RP_F32, NULL, &second));
    }
    CHECK_OK(rp_request_wait(&second));
    CHECK(sums[rank][HERE - 1] == 2);
}

static void looking_sets_unexpected_what_is_in_the_way(void) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "inproc", .timeout_s = 3, .strict_timeout = 1);
    world_run(2, &options, look_at_what_lies_behind, NULL);
}

static void misuse(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    float x[4] = {0};
    int32_t n[4] = {0};
    rp_segment floats = {.data = x, .count = 4, .dtype = RP_F32};
    rp_segment integers = {.data = n, .count = 4, .dtype = RP_I32};
    rp_collective_options mean = RP_COLLECTIVE_OPTIONS(.reduce = RP_AVG),
                          strange = RP_COLLECTIVE_OPTIONS(.algorithm = "sro");
    rp_collective_options root = RP_COLLECTIVE_OPTIONS(.root = world);
    rp_segment inside = floats, empty = floats, wrong = floats;
    CHECK_OK(rp_codec_parse("q4", &inside.codec));
    inside.first = 100;
    empty.data = NULL;
    wrong.dtype = (rp_dtype)77;
    CHECK_FAILS(rp_all_reduce(comm, &integers, 1, &mean), INVALID, "i32");
    CHECK_FAILS(rp_all_reduce(comm, &floats, 1, &strange), NOT_FOUND, "sra");
    CHECK_FAILS(rp_all_reduce(comm, &inside, 1, NULL), INVALID, "granule");
    CHECK_FAILS(rp_all_reduce(comm, &empty, 1, NULL), INVALID, "no data");
    CHECK_FAILS(rp_all_reduce(comm, &wrong, 1, NULL), INVALID, "dtype");
    integers.codec = inside.codec;
    CHECK_FAILS(rp_all_reduce(comm, &integers, 1, NULL), UNSUPPORTED, "i32");
    CHECK_FAILS(rp_broadcast(comm, x, 4, RP_F32, &root), INVALID, "root");
    CHECK_FAILS(rp_send(comm, x, 4, RP_F32, rank, 0), INVALID, "rank");
    CHECK_FAILS(rp_send(comm, x, 4, RP_F32, world, 0), INVALID, "rank");
    CHECK_OK(rp_all_reduce(comm, &floats, 1, &mean)); /* nothing of that did any harm */
}

static void misuse_is_refused_before_anything_is_sent(void) {
    for (int world = 1; world <= 3; world++) world_run(world, NULL, misuse, NULL);
    rp_comm *comm = NULL;
    rp_comm_options shaped = RP_COMM_OPTIONS(.link = "fast");
    rp_store store = {0};
    REQUIRE_OK(rp_store_open_local(&store));
    CHECK_FAILS(rp_comm_create(NULL, 0, 0, NULL, &comm), INVALID, "world is 0");
    CHECK_FAILS(rp_comm_create(NULL, 2, 2, NULL, &comm), INVALID, "rank 2");
    CHECK_FAILS(rp_comm_create(NULL, 0, 2, NULL, &comm), INVALID, "store");
    CHECK_FAILS(rp_comm_create(&store, 0, 2, &shaped, &comm), INVALID, "fast");
    rp_comm_destroy(NULL);
    rp_store_close(&store);
}

/* RP_PREMUL_SUM scales in place where the call may overwrite its input: not when the
 * communicator refuses it. */
static void post_to_a_failed_one(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.reduce = RP_PREMUL_SUM, .factor = 2);
    float x[4] = {1, 2, 3, 4};
    rp_segment segment = {.data = x, .count = 4, .dtype = RP_F32};
    rp_request *request = NULL;
    CHECK_OK(rp_barrier(comm));
    world_meet();
    if (rank == 0) rp_comm_abort(comm, RP_IO, "cannot read weights.bin");
    CHECK_EQ(rp_barrier(comm), RP_IO);
    CHECK_EQ(rp_all_reduce_start(comm, &segment, 1, &options, &request), RP_IO);
    const rp_request *idle = comm->idle_requests; /* they are taken, and given back */
    CHECK(idle != NULL);
    if (world > 1)
        CHECK_EQ(rp_send_start(comm, x, 4, RP_F32, (rank + 1) % world, 0, &request), RP_IO);
    CHECK(comm->idle_requests == idle);
    CHECK(request == NULL && x[0] == 1 && x[3] == 4);
}

static void what_is_refused_leaves_its_data_alone(void) {
    for (int world = 1; world <= 3; world++) world_run(world, NULL, post_to_a_failed_one, NULL);
}

/* ---- allocations that fail ---- */

static rp_status use_once(long n) {
    enum { ELEMENTS = 5000 };
    static float x[ELEMENTS];
    rp_comm *comm = NULL;
    rp_segment segment = {.data = x, .count = ELEMENTS, .dtype = RP_F32};
    rpi_memory_fail_after(n);
    rp_status status = rp_comm_create(NULL, 0, 1, NULL, &comm);
    if (status == RP_OK) status = rp_all_reduce(comm, &segment, 1, NULL);
    if (status == RP_OK) status = rp_barrier(comm);
    rp_comm_destroy(comm);
    return status;
}

static void every_allocation_may_fail_in_a_world_of_one(void) {
    REQUIRE_OK(use_once(0));
    long allocations = rpi_memory_fail_after(0);
    CHECK(allocations > 5);
    for (long n = 1; n <= allocations; n++) {
        CHECK_MSG(use_once(n) == RP_NOMEM, "allocation %ld of %ld", n, allocations);
        rpi_memory_fail_after(0);
    }
}

/* One rank runs out of memory somewhere in its operations; all ranks hear of it. */
static void starved(rp_comm *comm, int rank, int world, void *context) {
    (void)world;
    static float x[2][COUNT];
    long n = *(long *)context;
    rp_segment segment = {.data = x[rank], .count = COUNT, .dtype = RP_F32};
    CHECK_OK(rp_codec_parse("q4", &segment.codec));
    CHECK_OK(rp_barrier(comm));
    world_meet();
    if (rank == 1) rpi_memory_fail_after(n);
    rp_status status = rp_all_reduce(comm, &segment, 1, NULL);
    if (rank == 1) rpi_memory_fail_after(0);
    if (status != RP_OK && rank == 1) {
        CHECK_EQ(status, RP_NOMEM);
        rp_comm_abort(comm, status,
                      rp_last_error()->message); /* as a caller who cannot go on */
    }
    if (status != RP_OK) {
        CHECK_EQ(status, RP_NOMEM);
        CHECK(strstr(rp_last_error()->message, "rank 1") || rank == 1);
        CHECK_EQ(rp_barrier(comm), RP_NOMEM);
    }
}

static void running_out_of_memory_is_heard_by_all(void) {
    for (long n = 1; n <= 14; n++) world_run(2, NULL, starved, &n);
}

/* Whatever of a rank gets it: an event to be woken by, a socket, a listener. */
static void descriptor_0_serves_like_any(void) {
    check_without_stdin(operations_may_be_waited_for_in_any_order);
    check_without_stdin(a_progress_thread_moves_bytes_while_nobody_waits);
}

CASES({"descriptor 0 serves like any", descriptor_0_serves_like_any},
      {"operations may be waited for in any order", operations_may_be_waited_for_in_any_order},
      {"a rank may be far ahead", a_rank_may_be_far_ahead},
      {"any thread may wait", any_thread_may_wait},
      {"errors say how far it came", errors_say_how_far_it_came},
      {"who waits beside a driver is woken", who_waits_beside_a_driver_is_woken},
      {"requests can be tested", requests_can_be_tested},
      {"looking sets unexpected what is in the way",
       looking_sets_unexpected_what_is_in_the_way},
      {"a progress thread moves bytes while nobody waits",
       a_progress_thread_moves_bytes_while_nobody_waits},
      {"what is done has left", what_is_done_has_left},
      {"who attends keeps the thread asleep", who_attends_keeps_the_thread_asleep},
      {"misuse is refused before anything is sent", misuse_is_refused_before_anything_is_sent},
      {"what is refused leaves its data alone", what_is_refused_leaves_its_data_alone},
      {"every allocation may fail in a world of one",
       every_allocation_may_fail_in_a_world_of_one},
      {"running out of memory is heard by all", running_out_of_memory_is_heard_by_all})
