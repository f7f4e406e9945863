/* Deadlines of operations: from when they were posted, for callers who look seldom and for
 * those who were away. */
#include "redpoll/comm.h"

#include "base/clock.h"
#include "harness/ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static rp_store store;
static float data[16];

static rp_comm *open_world(double timeout_s, int strict) {
    rp_comm_options options = RP_COMM_OPTIONS(.connect_timeout_s = 30, .warn_after_s = 30,
                                              .timeout_s = timeout_s, .strict_timeout = strict);
    rp_comm *comm = NULL;
    if (ranks_store(&store) != RP_OK ||
        rp_comm_create(&store, ranks_rank(), ranks_world(), &options, &comm) != RP_OK)
        ranks_die();
    CHECK_OK(rp_barrier(comm));
    return comm;
}

static void compute(double seconds) {
    rpi_sleep_until_ns(rpi_now_ns() + (int64_t)(seconds * 1e9));
}

static void close_world(rp_comm *comm) {
    rp_comm_destroy(comm);
    rp_store_close(&store);
}

/* What the other rank waits for in the store: no operation of the communicator. */
static void tell(const char *key) {
    CHECK_OK(store.ops->set(store.context, key, "1", 1));
}

static void hear(const char *key) {
    char value[8];
    size_t bytes = 0;
    CHECK_OK(store.ops->get(store.context, key, 60, value, sizeof value, &bytes));
}

/* ---- callers ---- */

/* Between two looks it is away for longer than a second: nobody makes progress. */
static void looks_seldom(void) {
    rp_comm *comm = open_world(2, 1);
    rp_request *request = NULL;
    if (ranks_rank() == 0) {
        rp_status status = rp_barrier_start(comm, &request);
        int looks = 0;
        for (; status == RP_OK || status == RP_PENDING; looks++) {
            compute(looks ? 1.3 : 0);
            status = looks < 20 ? rp_request_test(request) : RP_INTERNAL;
        }
        CHECK_EQ(status, RP_TIMEOUT);
        tell("over");
    } else {
        hear("over");
    }
    close_world(comm);
}

/* It is away for longer than the timeout, and back before the other comes. */
static void away_once(void) {
    rp_comm *comm = open_world(4, 1);
    rp_request *request = NULL;
    if (ranks_rank() == 0) {
        CHECK_OK(rp_barrier_start(comm, &request));
        compute(6);
        CHECK_EQ(rp_request_test(request), RP_PENDING);
        tell("back");
        CHECK_OK(rp_request_wait(&request));
    } else {
        hear("back");
        CHECK_OK(rp_barrier(comm));
    }
    close_world(comm);
}

/* The same while it waits, as a whole process that is stopped. */
static void stopped_once(void) {
    rp_comm *comm = open_world(4, 1);
    int64_t pid = getpid();
    size_t bytes = 0;
    if (ranks_rank() == 0) {
        CHECK_OK(store.ops->set(store.context, "pid", &pid, sizeof pid));
    } else {
        CHECK_OK(store.ops->get(store.context, "pid", 60, &pid, sizeof pid, &bytes));
        CHECK(kill((pid_t)pid, SIGSTOP) == 0);
        compute(6);
        CHECK(kill((pid_t)pid, SIGCONT) == 0);
    }
    CHECK_OK(rp_barrier(comm));
    close_world(comm);
}

/* ---- operations beside others that move ---- */

/* Rank 1 never sends what rank 0 receives, and does all else. The argument: is strict. */
static void unanswered(void) {
    int strict = atoi(ranks_argument());
    rp_comm *comm = open_world(1.5, strict);
    rp_request *request = NULL;
    rp_status status = RP_OK;
    int64_t end_ns = rpi_deadline_ns(strict ? 20 : 4);
    if (ranks_rank() == 0) CHECK_OK(rp_recv_start(comm, data, 1, RP_F32, 1, 99, &request));
    for (int32_t goes_on = 1; goes_on && status == RP_OK;) {
        if (ranks_rank() == 0 && rpi_now_ns() >= end_ns) {
            CHECK(!strict && rp_request_test(request) == RP_PENDING);
            goes_on = 0;
        }
        status = rp_broadcast(comm, &goes_on, 1, RP_I32, NULL);
        if (strict && request && rp_request_test(request) != RP_PENDING) break;
        compute(0.02);
    }
    if (strict && ranks_rank() == 0)
        CHECK_FAILS(rp_request_wait(&request), TIMEOUT, "receive from rank 1 with tag 99");
    if (!strict && ranks_rank() == 1) CHECK_OK(rp_send(comm, data, 1, RP_F32, 0, 99));
    if (!strict && ranks_rank() == 0) CHECK_OK(rp_request_wait(&request));
    close_world(comm);
}

/* Rank 1 is stopped; ranks 0 and 2 send to each other all the time. */
static void stopped_beside_others(void) {
    rp_comm *comm = open_world(1.5, 0);
    rp_request *request = NULL;
    rp_status status = RP_OK;
    ranks_mark("going");
    if (ranks_rank() == 1) {
        for (;;) pause();
    }
    if (ranks_rank() == 0) CHECK_OK(rp_recv_start(comm, data, 1, RP_F32, 1, 99, &request));
    while (status == RP_OK) {
        if (ranks_rank() == 0) status = rp_send(comm, data, 1, RP_F32, 2, 1);
        if (ranks_rank() == 2) status = rp_recv(comm, data, 1, RP_F32, 0, 1);
        compute(0.01);
    }
    fprintf(stderr, "%s\n", rp_last_error()->message);
    if (request) CHECK_EQ(rp_request_wait(&request), RP_TIMEOUT);
    close_world(comm);
    exit(1);
}

/* Longer than the timeout, but it moves all the time, one part after the other. */
static void slow_but_moving(void) {
    rp_comm *comm = open_world(1.5, 1);
    rp_request *request = NULL;
    if (ranks_rank() == 0) CHECK_OK(rp_barrier_start(comm, &request));
    for (int i = 0; i < 12; i++) {
        if (ranks_rank() == 0) CHECK_OK(rp_send(comm, data, 1, RP_F32, 1, i));
        if (ranks_rank() == 1) CHECK_OK(rp_recv(comm, data, 1, RP_F32, 0, i));
        if (ranks_rank() == 1 && i == 0) CHECK_OK(rp_barrier_start(comm, &request));
        compute(0.25);
    }
    CHECK_OK(rp_request_wait(&request));
    close_world(comm);
}

/* A row: which function of two ranks passes, with what argument. */
typedef struct row {
    const char *function, *argument;
} row;

/* Worlds wait most of the time: all at once take no longer than one. */
static void pass_all(const row *rows, int count) {
    ranks *worlds[8];
    for (int i = 0; i < count; i++)
        worlds[i] =
            ranks_start(rows[i].function, 2, &(ranks_options){.argument = rows[i].argument});
    for (int i = 0; i < count; i++) {
        CHECK(ranks_finish(worlds[i], 60));
        ranks_check_passed(worlds[i]);
        ranks_free(worlds[i]);
    }
}

static void who_looks_seldom_has_a_timeout_and_who_was_away_is_forgiven(void) {
    static const row rows[] = {{"looks_seldom", ""}, {"away_once", ""}, {"stopped_once", ""}};
    pass_all(rows, sizeof rows / sizeof rows[0]);
}

static void an_operation_that_nobody_answers_fails(void) {
    static const row rows[] = {
        {"unanswered", "1"}, {"unanswered", "0"}, {"slow_but_moving", ""}};
    pass_all(rows, sizeof rows / sizeof rows[0]);
    ranks *world = ranks_start("stopped_beside_others", 3, NULL);
    for (int rank = 0; rank < 3; rank++) CHECK(ranks_wait_for(world, rank, "going", 30));
    ranks_signal(world, 1, SIGSTOP);
    CHECK(ranks_finish(world, 30));
    ranks_check_exit(world, 0, 1, "rank 1 is stopped, or cut off from rank");
    ranks_check_exit(world, 2, 1, "rank 1 is stopped, or cut off from rank");
    ranks_free(world);
}

static const ranks_function functions[] = {{"looks_seldom", looks_seldom},
                                           {"away_once", away_once},
                                           {"stopped_once", stopped_once},
                                           {"unanswered", unanswered},
                                           {"stopped_beside_others", stopped_beside_others},
                                           {"slow_but_moving", slow_but_moving}};
static const check_case cases[] = {
    {"who looks seldom has a timeout, and who was away is forgiven",
     who_looks_seldom_has_a_timeout_and_who_was_away_is_forgiven},
    {"an operation that nobody answers fails", an_operation_that_nobody_answers_fails}};
RANKS_MAIN(functions, cases)
