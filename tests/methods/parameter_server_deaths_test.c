/* A worker that is killed is left behind where that was asked for, and named; else, and where a
 * server is killed, all fail with its name. */
#include "redpoll/parameter_server.h"

#include "harness/ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 500, STEPS = 12, VICTIM = 3 };

static rp_status count_pushes(void *context, const rp_parameter_merge *m) {
    int *pushes = context;
    for (size_t i = 0; i < m->count; i++) m->values[i] -= m->gradient[i];
    *pushes += m->push_count;
    return RP_OK;
}

/* workers: of those that learn; none has made all steps before the victim has made some. */
static rp_status learn(rp_parameter_server *s, rp_comm *workers, float *values, int rank) {
    RP_TRY(rp_parameter_server_begin(s, values, 0, STEPS));
    for (int step = 0; rp_parameter_server_goes_on(s); step++) {
        if (step <= 3 && workers) CHECK_OK(rp_barrier(workers));
        if (step == 3 && rank == VICTIM && !strstr(ranks_argument(), "server")) {
            ranks_mark("ready");
            for (;;) pause();
        }
        RP_TRY(rp_parameter_server_push(s, 1, NULL, NULL));
    }
    if (rank == 1 && strstr(ranks_argument(), "server")) {
        ranks_mark("ready");
        for (;;) pause(); /* it should serve */
    }
    return rp_parameter_server_end(s);
}

/* Afterwards the rest goes on together: another span, a sum. */
static void go_on(rp_parameter_server *s, float *values, int rank) {
    CHECK(rp_parameter_server_lost(s, VICTIM) != NULL);
    CHECK(rp_parameter_server_lost(s, 2) == NULL);
    if (rank == 0)
        CHECK(strstr(rp_parameter_server_lost(s, VICTIM), "rank 3, a worker, is gone"));
    rp_comm *comm = rp_parameter_server_comm(s);
    CHECK_EQ(rp_comm_world(comm), 4);
    float before = values[0], one = 1;
    CHECK_OK(rp_parameter_server_begin(s, values, STEPS, 2));
    while (rp_parameter_server_goes_on(s))
        if (rp_parameter_server_push(s, 1, NULL, NULL) != RP_OK) return;
    CHECK_OK(rp_parameter_server_end(s));
    CHECK(values[0] < before);
    CHECK(values[COUNT - 1] == values[0] || strstr(ranks_argument(), "any"));
    rp_segment segment = {.data = &one, .count = 1, .dtype = RP_F32};
    CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
    CHECK(one == 4);
}

/* Who has heard of the death and ends takes its links along: the others hear first. */
static void wait_for_all_that_live(const rp_store *store) {
    int64_t heard = 0;
    CHECK_OK(store->ops->add(store->context, "heard", 1, &heard));
    for (int ms = 0; ms < 30000 && heard < ranks_world() - 1; ms++) {
        usleep(1000);
        CHECK_OK(store->ops->add(store->context, "heard", 0, &heard));
    }
}

static void take_part(void) {
    static float gradient[COUNT], values[COUNT];
    rp_store store = {0};
    rp_comm *comm = NULL;
    int rank = ranks_rank(), pushes = 0;
    const char *how = ranks_argument();
    REQUIRE_OK(ranks_store(&store));
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "shm", .connect_timeout_s = 30, .timeout_s = 60);
    if (rp_comm_create(&store, rank, ranks_world(), &options, &comm) != RP_OK) ranks_die();
    for (int i = 0; i < COUNT; i++) gradient[i] = 1;
    rp_segment segment = {.data = gradient, .count = COUNT, .dtype = RP_F32};
    rp_parameter_server_options o =
        RP_PARAMETER_SERVER_OPTIONS(.servers = 2,
                                    .staleness = strstr(how, "any") ? RP_ANY_STALENESS : 0,
                                    .quorum =
                                        strstr(how, "quorum") ? 3 : 0, /* all: they meet */
                                    .goes_on = strstr(how, "on") != NULL, .merge = count_pushes,
                                    .context = &pushes);
    rp_parameter_server *s = NULL;
    if (rp_parameter_server_create(comm, &segment, 1, &o, &s) != RP_OK) ranks_die();
    if (strstr(how, "server") && rank == VICTIM) CHECK(rp_parameter_server_worker(s) == 1);
    rp_comm *workers = NULL;
    if (rank >= 2) REQUIRE_OK(rp_comm_group(comm, (int[]){2, VICTIM, 4}, 3, NULL, &workers));
    rp_status status = learn(s, strstr(how, "server") ? NULL : workers, values, rank);
    if (strstr(how, "on")) {
        CHECK_OK(status);
        if (status == RP_OK) go_on(s, values, rank);
    } else {
        CHECK_FAILS(status, PEER, strstr(how, "server") ? "rank 1, which serves" : "rank 3");
        wait_for_all_that_live(&store);
    }
    rp_parameter_server_destroy(s);
    rp_comm_destroy(workers);
    rp_comm_destroy(comm);
    rp_store_close(&store);
}

static void kill_one(const char *how, int victim) {
    ranks *world = ranks_start("take_part", 5, &(ranks_options){.argument = how});
    CHECK(ranks_wait_for(world, victim, "ready", 30));
    ranks_signal(world, victim, SIGKILL);
    CHECK(ranks_finish(world, 60));
    for (int rank = 0; rank < 5; rank++)
        if (rank != victim) ranks_check_exit(world, rank, 0, NULL);
    ranks_free(world);
}

static void left_behind(void) {
    kill_one("go on", VICTIM);
    kill_one("any, go on", VICTIM);
    kill_one("any, quorum, go on", VICTIM);
}

static void a_server_is_named(void) {
    kill_one("server dies", 1);
    kill_one("server dies, any, quorum", 1);
}

static void named(void) {
    kill_one("stop", VICTIM);
    kill_one("any, stop", VICTIM);
    kill_one("any, quorum, stop", VICTIM);
}

/* ---- behind the last push ---- */

/* Until this rank has heard that one has died. */
static void wait_for_death(rp_comm *comm) {
    for (int ms = 0; ms < 30000 && rp_comm_status(comm) == RP_OK; ms++) usleep(1000);
}

static rp_status push_all(rp_parameter_server *s, float *values) {
    RP_TRY(rp_parameter_server_begin(s, values, 0, 2));
    while (rp_parameter_server_goes_on(s)) RP_TRY(rp_parameter_server_push(s, 1, NULL, NULL));
    return RP_OK;
}

static rp_status add_ones(rp_parameter_server *s, float *sum) {
    rp_segment segment = {.data = sum, .count = 1, .dtype = RP_F32};
    *sum = 1;
    RP_TRY(rp_barrier(rp_parameter_server_comm(s)));
    return rp_all_reduce(rp_parameter_server_comm(s), &segment, 1, NULL);
}

/* The sum of all that are left, however often it takes; how often. */
static int add_until_confirmed(rp_parameter_server *s, float *sum) {
    rp_status status = RP_OK;
    int again = 1, tries = 0;
    while (status == RP_OK && again) {
        status = rp_parameter_server_confirm(s, add_ones(s, sum), &again);
        tries++;
    }
    CHECK_OK(status);
    return tries;
}

/* The victim dies behind its last push; "first": before it ends; "waiting": while it waits for
 * the others' end; "between": behind the end; "told": in the middle of what all do then. */
static void victim_ends(rp_parameter_server *s, const char *when) {
    float sum = 0;
    if (strstr(when, "first")) ranks_mark("ready");
    if (strstr(when, "first")) pause();
    if (strstr(when, "waiting")) ranks_mark("ready");
    CHECK_OK(rp_parameter_server_end(s));
    if (strstr(when, "between")) ranks_mark("ready");
    if (strstr(when, "between")) pause();
    (void)add_ones(s, &sum);
    ranks_mark("ready"); /* it has had its part of the sum, and tells nobody */
    for (;;) pause();
}

static void others_end(rp_parameter_server *s, rp_comm *comm, float *values, const char *when) {
    float sum = 0;
    bool before = strstr(when, "first") || strstr(when, "waiting");
    if (before && rp_parameter_server_worker(s) == 0) wait_for_death(comm);
    if (rp_parameter_server_end(s) != RP_OK) ranks_die();
    for (int i = 1; i < COUNT; i++) CHECK(values[i] == values[0]);
    int tries = add_until_confirmed(s, &sum);
    CHECK(sum == 4);
    CHECK_MSG(tries == (before ? 1 : 2), "%s: done %d times", when, tries);
    CHECK(rp_parameter_server_lost(s, VICTIM) && !rp_parameter_server_lost(s, 2));
    CHECK_EQ(rp_comm_world(rp_parameter_server_comm(s)), 4);
    CHECK_OK(push_all(s, values));
    CHECK_OK(rp_parameter_server_end(s));
    CHECK_NEAR((double)values[0], -2 * 3 - 2 * 2, 0); /* by all workers, then by two */
}

/* This rank's place in the world; its process ends where it cannot join. */
static rp_comm *join_by_shm(const rp_store *store) {
    rp_comm *comm = NULL;
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "shm", .connect_timeout_s = 30, .timeout_s = 60);
    if (rp_comm_create(store, ranks_rank(), ranks_world(), &options, &comm) != RP_OK)
        ranks_die();
    return comm;
}

static void end_without_one(void) {
    static float gradient[COUNT], values[COUNT];
    rp_store store = {0};
    int pushes = 0;
    REQUIRE_OK(ranks_store(&store));
    rp_comm *comm = join_by_shm(&store);
    for (int i = 0; i < COUNT; i++) gradient[i] = 1;
    rp_segment segment = {.data = gradient, .count = COUNT, .dtype = RP_F32};
    rp_parameter_server_options o =
        RP_PARAMETER_SERVER_OPTIONS(.servers = 2, .goes_on = 1, .merge = count_pushes,
                                    .context = &pushes);
    rp_parameter_server *s = NULL;
    if (rp_parameter_server_create(comm, &segment, 1, &o, &s) != RP_OK) ranks_die();
    REQUIRE_OK(push_all(s, values));
    if (ranks_rank() == VICTIM) victim_ends(s, ranks_argument());
    others_end(s, comm, values, ranks_argument());
    rp_parameter_server_destroy(s);
    rp_comm_destroy(comm);
    rp_store_close(&store);
}

static void behind_the_last_push(void) {
    static const char *const when[] = {"first", "waiting", "between", "told"};
    for (size_t i = 0; i < sizeof when / sizeof when[0]; i++) {
        ranks *world = ranks_start("end_without_one", 5, &(ranks_options){.argument = when[i]});
        CHECK(ranks_wait_for(world, VICTIM, "ready", 30));
        usleep(50000); /* to be waiting in what it calls next */
        ranks_signal(world, VICTIM, SIGKILL);
        CHECK(ranks_finish(world, 60));
        for (int rank = 0; rank < 5; rank++)
            if (rank != VICTIM) ranks_check_exit(world, rank, 0, NULL);
        ranks_free(world);
    }
}

/* ---- at any time ---- */

static int count_lost(rp_parameter_server *s) {
    int lost = 0;
    for (int rank = 0; rank < ranks_world(); rank++)
        lost += rp_parameter_server_lost(s, rank) != NULL;
    return lost;
}

/* Spans of two steps, with sums behind them, until two workers have died, and some more. */
static void go_on_without_two(void) {
    static float gradient[COUNT], values[COUNT];
    rp_store store = {0};
    rp_comm *comm = NULL;
    int pushes = 0;
    bool is_first = ranks_rank() == 0;
    REQUIRE_OK(ranks_store(&store));
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "shm", .connect_timeout_s = 30, .timeout_s = 60);
    if (rp_comm_create(&store, ranks_rank(), ranks_world(), &options, &comm) != RP_OK)
        ranks_die();
    for (int i = 0; i < COUNT; i++) gradient[i] = 1;
    rp_segment segment = {.data = gradient, .count = COUNT, .dtype = RP_F32};
    rp_parameter_server_options o =
        RP_PARAMETER_SERVER_OPTIONS(.servers = 2, .staleness = atoi(ranks_argument()),
                                    .quorum = strstr(ranks_argument(), "quorum") ? 2 : 0,
                                    .goes_on = 1, .merge = count_pushes, .context = &pushes);
    rp_parameter_server *s = NULL;
    if (rp_parameter_server_create(comm, &segment, 1, &o, &s) != RP_OK) ranks_die();
    for (int span = 0, more = 3; more > 0; span++) {
        float sum = 0;
        if (push_all(s, values) != RP_OK || rp_parameter_server_end(s) != RP_OK) ranks_die();
        if (span == 2 && is_first) ranks_mark("ready");
        (void)add_until_confirmed(s, &sum);
        CHECK((int)sum == ranks_world() - count_lost(s));
        more -= count_lost(s) == 2;
    }
    rp_parameter_server_destroy(s);
    rp_comm_destroy(comm);
    rp_store_close(&store);
}

static void kill_two(const char *how, unsigned *random) {
    ranks *world = ranks_start("go_on_without_two", 6, &(ranks_options){.argument = how});
    int first = 2 + rand_r(random) % 4, second = 2 + (first - 1 + rand_r(random) % 3) % 4;
    CHECK(ranks_wait_for(world, 0, "ready", 30));
    usleep((unsigned)rand_r(random) % 5000);
    ranks_signal(world, first, SIGKILL);
    usleep(rand_r(random) % 2 ? (unsigned)rand_r(random) % 5000 : 0);
    ranks_signal(world, second, SIGKILL);
    CHECK(ranks_finish(world, 60));
    for (int rank = 0; rank < 6; rank++)
        if (rank != first && rank != second) ranks_check_exit(world, rank, 0, NULL);
    ranks_free(world);
}

static void at_any_time(void) {
    static const char *const how[] = {"0", "-1", "2", "-1, quorum", "2, quorum"};
    unsigned random = (unsigned)check_seed();
    time_t end = time(NULL) + (time_t)check_seconds(0, 120);
    do {
        for (size_t i = 0; i < sizeof how / sizeof how[0]; i++) kill_two(how[i], &random);
    } while (time(NULL) < end);
}

/* ---- a quorum of several servers, at speed ---- */

enum { SPEED_SERVERS = 3, SPEED_STEPS = 100, SPEED_COUNT = 25450 };

static rp_status push_steps(rp_parameter_server *s, float *values, uint64_t first) {
    unsigned random = (unsigned)(first + (uint64_t)ranks_rank());
    RP_TRY(rp_parameter_server_begin(s, values, first, SPEED_STEPS));
    for (int pushed = 0; rp_parameter_server_goes_on(s); pushed++) {
        if (pushed == 10) ranks_mark("ready");
        usleep((unsigned)rand_r(&random) % 1000);
        RP_TRY(rp_parameter_server_push(s, 1, NULL, NULL));
    }
    return rp_parameter_server_end(s);
}

static void step_by_a_quorum(void) {
    static float gradient[SPEED_COUNT], values[SPEED_COUNT];
    rp_store store = {0};
    int pushes = 0;
    REQUIRE_OK(ranks_store(&store));
    rp_comm *comm = join_by_shm(&store);
    rp_segment segment = {.data = gradient, .count = SPEED_COUNT, .dtype = RP_F32};
    rp_parameter_server_options o =
        RP_PARAMETER_SERVER_OPTIONS(.servers = SPEED_SERVERS, .staleness = 2, .quorum = 2,
                                    .goes_on = 1, .merge = count_pushes, .context = &pushes);
    rp_parameter_server *s = NULL;
    if (rp_parameter_server_create(comm, &segment, 1, &o, &s) != RP_OK) ranks_die();
    for (uint64_t span = 0; span < 3; span++)
        if (push_steps(s, values, span * SPEED_STEPS) != RP_OK) ranks_die();
    rp_parameter_server_destroy(s);
    rp_comm_destroy(comm);
    rp_store_close(&store);
}

static void at_speed(void) {
    unsigned random = (unsigned)check_seed();
    time_t end = time(NULL) + (time_t)check_seconds(0, 60);
    do {
        ranks *world = ranks_start("step_by_a_quorum", 8, NULL);
        int victim = SPEED_SERVERS + rand_r(&random) % 5;
        CHECK(ranks_wait_for(world, victim, "ready", 30));
        usleep((unsigned)rand_r(&random) % 20000);
        ranks_signal(world, victim, SIGKILL);
        CHECK(ranks_finish(world, 60));
        for (int rank = 0; rank < 8; rank++)
            if (rank != victim) ranks_check_exit(world, rank, 0, NULL);
        ranks_free(world);
    } while (time(NULL) < end);
}

/* ---- the last worker ---- */

/* Servers have what was pushed, and another span has no steps. */
static void stay_alone(rp_parameter_server *s, float *values, const int *pushes) {
    float before = values[0];
    CHECK(rp_parameter_server_lost(s, 2) != NULL);
    CHECK_EQ(rp_comm_world(rp_parameter_server_comm(s)), 2);
    CHECK_EQ(*pushes, 3);
    CHECK_OK(rp_parameter_server_begin(s, values, 3, 5));
    CHECK_OK(rp_parameter_server_end(s));
    CHECK_EQ(*pushes, 3);
    CHECK(before == values[0] && before == values[COUNT - 1] && before == -3);
}

static void lose_the_last(void) {
    static float gradient[COUNT], values[COUNT];
    rp_store store = {0};
    rp_comm *comm = NULL;
    rp_parameter_server *s = NULL;
    const char *how = ranks_argument();
    int rank = ranks_rank(), pushes = 0;
    REQUIRE_OK(ranks_store(&store));
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "shm", .connect_timeout_s = 30, .timeout_s = 60);
    if (rp_comm_create(&store, rank, ranks_world(), &options, &comm) != RP_OK) ranks_die();
    for (int i = 0; i < COUNT; i++) gradient[i] = 1;
    rp_segment segment = {.data = gradient, .count = COUNT, .dtype = RP_F32};
    rp_parameter_server_options o =
        RP_PARAMETER_SERVER_OPTIONS(.servers = 2, .staleness = atoi(how),
                                    .quorum = strstr(how, "quorum") ? 1 : 0,
                                    .goes_on = strstr(how, "wait") ? 2 : 1,
                                    .merge = count_pushes, .context = &pushes);
    if (rp_parameter_server_create(comm, &segment, 1, &o, &s) != RP_OK) ranks_die();
    CHECK_OK(rp_parameter_server_begin(s, values, 0, STEPS));
    for (int step = 0; step < 3 && rank == 2; step++)
        CHECK_OK(rp_parameter_server_push(s, 1, NULL, NULL));
    if (rank == 2) raise(SIGKILL);
    rp_status status = rp_parameter_server_end(s);
    if (o.goes_on == 1)
        CHECK_FAILS(status, PEER, rank ? "" : "no worker is left: rank 2, a worker, is gone");
    else if (status == RP_OK)
        stay_alone(s, values, &pushes);
    else
        CHECK_OK(status);
    rp_parameter_server_destroy(s);
    rp_comm_destroy(comm);
    rp_store_close(&store);
}

static void the_last_ends_the_steps_or_all(void) {
    static const char *const how[] = {"0",       "0, wait",         "-1, wait",
                                      "2, wait", "2, quorum, wait", "-1, quorum, wait"};
    for (size_t i = 0; i < sizeof how / sizeof how[0]; i++) {
        ranks *world = ranks_start("lose_the_last", 3, &(ranks_options){.argument = how[i]});
        CHECK(ranks_finish(world, 60));
        for (int rank = 0; rank < 2; rank++) ranks_check_exit(world, rank, 0, NULL);
        ranks_free(world);
    }
}

static const ranks_function functions[] = {{"take_part", take_part},
                                           {"lose_the_last", lose_the_last},
                                           {"end_without_one", end_without_one},
                                           {"go_on_without_two", go_on_without_two},
                                           {"step_by_a_quorum", step_by_a_quorum}};
static const check_case cases[] = {
    {"a worker is left behind", left_behind},
    {"a worker is left behind behind its last push", behind_the_last_push},
    {"two workers are left behind at any time", at_any_time},
    {"a worker is left behind by a quorum of several servers", at_speed},
    {"the last worker's death ends the steps, or all", the_last_ends_the_steps_or_all},
    {"a worker is named", named},
    {"a server is named", a_server_is_named}};
RANKS_MAIN(functions, cases)
