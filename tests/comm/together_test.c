/* Several communicators of one process at once, as training in several dimensions has them:
 * used by a thread each, made, destroyed and failed beside each other, and made anew with other
 * ranks. Ranks are processes. */
#include "redpoll/redpoll.h"

#include "base/clock.h"
#include "harness/ranks.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static rp_store store;

/* The argument: transport, then "+" for progress threads. */
static rp_comm *open_world(void) {
    char transport[16];
    snprintf(transport, sizeof transport, "%s", ranks_argument());
    char *plus = strchr(transport, '+');
    if (plus) *plus = '\0';
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = transport, .connect_timeout_s = 60, .timeout_s = 60,
                        .warn_after_s = 50, .progress_thread = plus != NULL);
    rp_comm *comm = NULL;
    if (ranks_store(&store) != RP_OK ||
        rp_comm_create(&store, ranks_rank(), ranks_world(), &options, &comm) != RP_OK)
        ranks_die();
    return comm;
}

/* Of all ranks, or of two. NULL: this rank is not in it. */
static rp_comm *group_of(rp_comm *world, const char *name, int a, int b, double timeout_s) {
    const int everybody[] = {0, 1, 2, 3}, pair[] = {a, b};
    rp_comm_options options =
        RP_COMM_OPTIONS(.name = name, .timeout_s = timeout_s, .strict_timeout = timeout_s > 0);
    rp_comm *group = NULL;
    bool is_all = a == b;
    if (!is_all && ranks_rank() != a && ranks_rank() != b) return NULL;
    if (rp_comm_group(world, is_all ? everybody : pair, is_all ? ranks_world() : 2, &options,
                      &group) != RP_OK)
        ranks_die();
    return group;
}

static void close_world(rp_comm *comm) {
    rp_comm_destroy(comm);
    rp_store_close(&store);
}

static void tell(const char *key) {
    CHECK_OK(store.ops->set(store.context, key, "1", 1));
}

static void hear(const char *key) {
    char value[8];
    size_t bytes = 0;
    CHECK_OK(store.ops->get(store.context, key, 60, value, sizeof value, &bytes));
}

/* ---- a thread each ---- */

static atomic_bool over; /* rank 0's word, which a sum tells the others */

/* Of a flag: all ranks leave after the same round. */
static bool is_over(rp_comm *comm) {
    float flag = ranks_rank() == 0 && atomic_load(&over);
    rp_segment segment = {.data = &flag, .count = 1, .dtype = RP_F32};
    rp_status status = rp_all_reduce(comm, &segment, 1, NULL);
    CHECK_OK(status);
    return status != RP_OK || flag > 0;
}

/* Tensor parallelism: short sums, which somebody waits for. */
static void *sum_short(void *context) {
    float x[64];
    for (int round = 0; !is_over(context); round++) {
        for (int i = 0; i < 64; i++) x[i] = (float)(ranks_rank() + round % 100);
        rp_segment segment = {.data = x, .count = 64, .dtype = RP_F32};
        CHECK_OK(rp_all_reduce(context, &segment, 1, NULL));
        int world = ranks_world();
        CHECK_EQ(x[63], world * (round % 100) + world * (world - 1) / 2);
    }
    return NULL;
}

/* Data parallelism, sharded: long sums with error feedback to their owners, and back. */
static void *sum_shards(void *context) {
    enum { COUNT = 1 << 17, HALF = COUNT / 2 };
    float *x = calloc(COUNT, sizeof *x), *held = calloc(COUNT, sizeof *held);
    rp_codec q4;
    CHECK_OK(rp_codec_parse("q4", &q4));
    while (x && held && !is_over(context)) {
        for (int i = 0; i < COUNT; i++) x[i] = (float)(i % 16);
        rp_owned_segment halves[2];
        for (int h = 0; h < 2; h++)
            halves[h] = (rp_owned_segment){.segment = {.data = x + h * HALF,
                                                       .count = HALF,
                                                       .dtype = RP_F32,
                                                       .codec = q4,
                                                       .residual = held + h * HALF,
                                                       .tensor = (uint32_t)h},
                                           .owner = h};
        rp_request *requests[2] = {NULL};
        CHECK_OK(rp_reduce_scatter_segments_start(context, halves, 2, NULL, &requests[0]));
        CHECK_OK(rp_request_wait(&requests[0]));
        for (int h = 0; h < 2; h++) halves[h].segment.residual = NULL;
        CHECK_OK(rp_all_gather_segments_start(context, halves, 2, NULL, &requests[1]));
        CHECK_OK(rp_request_wait(&requests[1]));
        CHECK_EQ(x[15], 15 * ranks_world()); /* on the codec's grid: nothing is lost */
        CHECK_EQ(x[COUNT - 1], 15 * ranks_world());
    }
    free(x);
    free(held);
    return NULL;
}

/* Pipelines: messages of many micro-batches, some received from whoever sends. */
static void *send_batches(void *context) {
    enum { BATCHES = 16, COUNT = 4096 };
    static float out[BATCHES][COUNT], in[BATCHES][COUNT];
    int world = ranks_world(), rank = ranks_rank();
    int next = (rank + 1) % world, last = (rank + world - 1) % world;
    for (int round = 0; !is_over(context); round++) {
        rp_request *requests[2 * BATCHES] = {NULL};
        for (int k = 0; k < BATCHES; k++) {
            out[k][COUNT - 1] = (float)(1000 * rank + 10 * k + round % 10);
            if (k % 3)
                CHECK_OK(
                    rp_recv_start(context, in[k], COUNT, RP_F32, last, k, &requests[2 * k]));
            else
                CHECK_OK(rp_recv_any_start(context, in[k], COUNT, RP_F32, k, &requests[2 * k]));
            CHECK_OK(
                rp_send_start(context, out[k], COUNT, RP_F32, next, k, &requests[2 * k + 1]));
        }
        for (int i = 2 * BATCHES - 1; i >= 0; i--) CHECK_OK(rp_request_wait(&requests[i]));
        for (int k = 0; k < BATCHES; k++)
            CHECK_EQ(in[k][COUNT - 1], 1000 * last + 10 * k + round % 10);
    }
    return NULL;
}

static void *make_groups(void *context) {
    for (bool ends = false; !ends;) {
        rp_comm *made = group_of(context, "made", 0, 0, 0);
        ends = is_over(made);
        rp_comm_destroy(made);
    }
    return NULL;
}

static void threads_of_training(void) {
    static void *(*const work[])(void *) = {sum_short, sum_shards, send_batches, make_groups};
    enum { THREADS = sizeof work / sizeof work[0] };
    static const char *const names[] = {"tp", "dp", "pp"};
    pthread_t threads[THREADS];
    rp_comm *world = open_world(), *own[THREADS];
    for (int i = 0; i < THREADS; i++)
        own[i] = i < 3 ? group_of(world, names[i], 0, 0, 0) : world;
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, work[i], own[i]) == 0);
    rpi_sleep_until_ns(rpi_now_ns() + (int64_t)(check_seconds(0.7, 60) * 1e9));
    atomic_store(&over, true);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++) rp_comm_destroy(own[i]);
    close_world(world);
}

/* ---- deadlines beside a driver that never rests ---- */

static void *drive_for_ever(void *context) {
    enum { COUNT = 1 << 20 };
    float *x = calloc(COUNT, sizeof *x);
    rp_segment segment = {.data = x, .count = COUNT, .dtype = RP_F32};
    CHECK_OK(rp_codec_parse("q4", &segment.codec));
    for (float flag = 0; x && flag == 0;) {
        rp_segment word = {.data = &flag, .count = 1, .dtype = RP_F32};
        CHECK_OK(rp_all_reduce(context, &segment, 1, NULL));
        flag = atomic_load(&over);
        if (rp_all_reduce(context, &word, 1, NULL) != RP_OK) ranks_die();
    }
    free(x);
    return NULL;
}

/* Rank 1 waits for rank 0, which never sends, while it moves and sums with rank 2. */
static void waits_beside_bulk(void) {
    rp_comm *world = open_world();
    rp_comm *quiet = group_of(world, "quiet", 0, 1, 1),
            *busy = group_of(world, "busy", 1, 2, 0);
    pthread_t thread;
    float x;
    if (ranks_rank() == 0) hear("over");
    if (ranks_rank() == 1) {
        REQUIRE(pthread_create(&thread, NULL, drive_for_ever, busy) == 0);
        CHECK_EQ(rp_recv(quiet, &x, 1, RP_F32, 0, 7), RP_TIMEOUT);
        CHECK_MSG(strstr(rp_last_error()->message, "quiet"), "%s", rp_last_error()->message);
        tell("over");
        atomic_store(&over, true);
        pthread_join(thread, NULL);
        CHECK_OK(rp_comm_status(busy));
    }
    if (ranks_rank() == 2) drive_for_ever(busy);
    rp_comm_destroy(quiet);
    rp_comm_destroy(busy);
    close_world(world);
}

/* ---- destroying beside bulk that rests ---- */

static atomic_int rounds; /* of live sums */

static void *keep_alive(void *context) {
    while (!is_over(context)) atomic_fetch_add(&rounds, 1);
    return NULL;
}

static void await_rounds(int more) {
    int wanted = atomic_load(&rounds) + more;
    int64_t deadline_ns = rpi_deadline_ns(60);
    while (atomic_load(&rounds) < wanted && rpi_now_ns() < deadline_ns)
        rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 1000);
    CHECK_MSG(atomic_load(&rounds) >= wanted, "live sums stand still");
}

static rp_request *post_bulk(rp_comm *comm, float *x, size_t count) {
    rp_request *request = NULL;
    for (size_t i = 0; i < count; i++) x[i] = 1;
    rp_segment segment = {.data = x, .count = count, .dtype = RP_F32};
    CHECK_OK(rp_all_reduce_start(comm, &segment, 1, NULL, &request));
    return request;
}

/* Rank 1 has posted a long sum with rank 0 and computes. Ranks 0 and 2 destroy a group that is
 * idle, while another of them is in use. */
static void destroys_beside_bulk(void) {
    enum { COUNT = 1 << 22 };
    rp_comm *world = open_world();
    rp_comm *bulk = group_of(world, "bulk", 0, 1, 0), *live = group_of(world, "live", 0, 2, 0);
    rp_comm *idle = group_of(world, "idle", 0, 2, 0);
    float *x = bulk ? calloc(COUNT, sizeof *x) : NULL;
    pthread_t thread;
    CHECK_OK(rp_barrier(world));
    rp_request *request = bulk ? post_bulk(bulk, x, COUNT) : NULL;
    if (ranks_rank() == 1) hear("destroyed");
    if (live) {
        REQUIRE(pthread_create(&thread, NULL, keep_alive, live) == 0);
        await_rounds(3);
        rp_comm_destroy(idle);
        await_rounds(3);
        if (ranks_rank() == 0) CHECK_EQ(rp_request_test(request), RP_PENDING);
        if (ranks_rank() == 0) tell("destroyed");
        if (ranks_rank() == 2) tell("went on"); /* rank 0 ends the live sums of both */
        if (ranks_rank() == 0) hear("went on");
        atomic_store(&over, true);
        pthread_join(thread, NULL);
    }
    if (request) CHECK_OK(rp_request_wait(&request));
    if (x) CHECK(x[0] == 2 && x[COUNT - 1] == 2);
    free(x);
    rp_comm_destroy(bulk);
    rp_comm_destroy(live);
    close_world(world);
}

/* ---- messages beside bulk ---- */

/* Messages both ways while a long sum of rank 0 waits for rank 1. */
static void exchange_beside_bulk(rp_comm *of_bulk, rp_comm *of_messages) {
    enum { COUNT = 1 << 21, BATCHES = 8, EACH = 16384 };
    static float out[BATCHES][EACH], in[BATCHES][EACH], x[COUNT];
    rp_request *requests[2 * BATCHES] = {NULL}, *bulk = NULL;
    int other = 1 - ranks_rank();
    if (ranks_rank() == 0) bulk = post_bulk(of_bulk, x, COUNT);
    for (int k = 0; k < BATCHES; k++) {
        out[k][EACH - 1] = (float)(10 * ranks_rank() + k);
        CHECK_OK(rp_recv_start(of_messages, in[k], EACH, RP_F32, other, k, &requests[2 * k]));
        CHECK_OK(
            rp_send_start(of_messages, out[k], EACH, RP_F32, other, k, &requests[2 * k + 1]));
    }
    for (int i = 0; i < 2 * BATCHES; i++) CHECK_OK(rp_request_wait(&requests[i]));
    for (int k = 0; k < BATCHES; k++) CHECK_EQ(in[k][EACH - 1], 10 * other + k);
    if (bulk)
        CHECK_EQ(rp_request_test(bulk), RP_PENDING);
    else
        CHECK_OK(rp_recv(of_messages, in[0], 1, RP_F32, 0, 99));
    if (bulk) CHECK_OK(rp_send(of_messages, out[0], 1, RP_F32, 1, 99));
    if (!bulk) bulk = post_bulk(of_bulk, x, COUNT);
    CHECK_OK(rp_request_wait(&bulk));
    CHECK(x[0] == 2 && x[COUNT - 1] == 2);
}

static void messages_beside_bulk(void) {
    rp_comm *world = open_world(), *pair = group_of(world, "pp", 0, 1, 0);
    exchange_beside_bulk(world, pair);
    exchange_beside_bulk(world, world);
    rp_comm_destroy(pair);
    close_world(world);
}

/* ---- worlds of other sizes in turn ---- */

/* The same processes make worlds of all of them and of all but the last, in turn: one name, one
 * store, another epoch each. */
static void makes_worlds_in_turn(void) {
    enum { TURNS = 8 };
    REQUIRE_OK(ranks_store(&store));
    for (int turn = 0; turn < TURNS; turn++) {
        int size = ranks_world() - turn % 2;
        rp_comm_options options =
            RP_COMM_OPTIONS(.name = "elastic", .transport = ranks_argument(),
                            .connect_timeout_s = 60, .timeout_s = 60, .epoch = (uint32_t)turn);
        rp_comm *comm = NULL;
        if (ranks_rank() >= size) continue;
        REQUIRE_OK(rp_comm_create(&store, ranks_rank(), size, &options, &comm));
        float x = 1;
        rp_segment segment = {.data = &x, .count = 1, .dtype = RP_F32};
        CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
        CHECK_EQ(x, size);
        rp_comm_destroy(comm);
    }
    rp_store_close(&store);
}

/* ---- many groups, one after the other ---- */

static void make_and_destroy(rp_comm *world, int first, int count) {
    for (int i = first; i < first + count; i++) {
        char name[32];
        snprintf(name, sizeof name, "step %d", i);
        rp_comm_destroy(group_of(world, name, 0, 1, 0));
    }
}

/* Names of their own, which nobody says again. */
static void makes_many_groups(void) {
    enum { FIRST = 50, MANY = 400 };
    rp_comm *world = open_world();
    make_and_destroy(world, 0, FIRST);
    CHECK_OK(rp_barrier(world)); /* which makes all links */
    size_t before = mallinfo2().uordblks;
    make_and_destroy(world, FIRST, MANY);
    CHECK_OK(rp_barrier(world));
    size_t now = mallinfo2().uordblks;
    CHECK_MSG(now < before + 16 * MANY, "%zu bytes more than before", now - before);
    close_world(world);
}

/* ---- rows ---- */

typedef struct row {
    const char *function;
    int world;
    const char *argument;
    const char *connect; /* REDPOLL_CONNECT; NULL: as it is */
} row;

static void pass(const row *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char connect[32];
        snprintf(connect, sizeof connect, "REDPOLL_CONNECT=%s",
                 rows[i].connect ? rows[i].connect : "");
        const char *environment[] = {rows[i].connect ? connect : NULL, NULL};
        ranks_options options = {.argument = rows[i].argument, .environment = environment};
        ranks *world = ranks_start(rows[i].function, rows[i].world, &options);
        CHECK(ranks_finish(world, 120));
        ranks_check_passed(world);
        ranks_free(world);
    }
}
#define PASS(...)                                                                              \
    do {                                                                                       \
        static const row rows[] = {__VA_ARGS__};                                               \
        pass(rows, sizeof rows / sizeof rows[0]);                                              \
    } while (0)

static void threads_use_a_communicator_each(void) {
    PASS({"threads_of_training", 2, "shm", NULL}, {"threads_of_training", 2, "tcp+", NULL},
         {"threads_of_training", 3, "shm+", NULL});
}

static void a_deadline_passes_beside_a_busy_driver(void) {
    PASS({"waits_beside_bulk", 3, "shm", NULL}, {"waits_beside_bulk", 3, "tcp", NULL});
}

static void an_idle_group_is_destroyed_beside_bulk(void) {
    PASS({"destroys_beside_bulk", 3, "shm", NULL}, {"destroys_beside_bulk", 3, "tcp", NULL});
}

static void messages_are_done_beside_bulk_that_waits(void) {
    PASS({"messages_beside_bulk", 2, "shm", NULL}, {"messages_beside_bulk", 2, "tcp+", NULL});
}

static void worlds_of_other_sizes_are_made_in_turn(void) {
    PASS({"makes_worlds_in_turn", 4, "shm", NULL}, {"makes_worlds_in_turn", 4, "tcp", NULL},
         {"makes_worlds_in_turn", 7, "auto", NULL});
}

static void many_groups_leave_nothing(void) {
    PASS({"makes_many_groups", 2, "shm", NULL}, {"makes_many_groups", 3, "tcp", "need"});
}

static const ranks_function functions[] = {{"threads_of_training", threads_of_training},
                                           {"waits_beside_bulk", waits_beside_bulk},
                                           {"destroys_beside_bulk", destroys_beside_bulk},
                                           {"messages_beside_bulk", messages_beside_bulk},
                                           {"makes_worlds_in_turn", makes_worlds_in_turn},
                                           {"makes_many_groups", makes_many_groups}};
static const check_case cases[] = {
    {"threads use a communicator each", threads_use_a_communicator_each},
    {"a deadline passes beside a busy driver", a_deadline_passes_beside_a_busy_driver},
    {"an idle group is destroyed beside bulk", an_idle_group_is_destroyed_beside_bulk},
    {"messages are done beside bulk that waits", messages_are_done_beside_bulk_that_waits},
    {"worlds of other sizes are made in turn", worlds_of_other_sizes_are_made_in_turn},
    {"many groups leave nothing", many_groups_leave_nothing}};
RANKS_MAIN(functions, cases)
