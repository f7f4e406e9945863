/* Windows between processes: random operations over real memory and sockets, and neighbours
 * that die or stop. */
#include "comm/window_program.h"
#include "harness/ranks.h"

#include "base/clock.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { COUNT = 100000 };

static rp_store store;

static rp_comm *join(void) {
    rp_comm_options options = RP_COMM_OPTIONS(.transport = ranks_argument(),
                                              .connect_timeout_s = 30, .timeout_s = 60);
    rp_comm *comm = NULL;
    if (ranks_store(&store) != RP_OK ||
        rp_comm_create(&store, ranks_rank(), ranks_world(), &options, &comm) != RP_OK)
        ranks_die();
    return comm;
}

static void leave(rp_comm *comm) {
    rp_comm_destroy(comm);
    rp_store_close(&store);
}

static void operate(void) {
    rp_comm *comm = join();
    const char *seed = getenv("WINDOW_SEED");
    window_program program = {.seed = seed ? strtoull(seed, NULL, 10) : 1,
                              .operations = (check_long() ? 100000 : 1000) / ranks_world(),
                              .pauses_us = 500};
    window_program_run(comm, &program);
    leave(comm);
}

static void run_processes(const char *transport, int world) {
    char seed[64];
    snprintf(seed, sizeof seed, "WINDOW_SEED=%llu",
             (unsigned long long)check_seed() + (unsigned)world);
    const char *environment[] = {seed, NULL};
    ranks *all = ranks_start(
        "operate", world, &(ranks_options){.argument = transport, .environment = environment});
    ranks_finish(all, check_long() ? 600 : 60);
    ranks_check_passed(all);
    ranks_free(all);
}

static void processes(void) {
    run_processes("shm", 3);
    run_processes("tcp", 5);
}

/* ---- deaths ---- */

static rp_window *everybody(rp_comm *comm, double *x) {
    static int others[8];
    int count = 0;
    for (int rank = 0; rank < ranks_world(); rank++)
        if (rank != ranks_rank()) others[count++] = rank;
    for (int i = 0; i < COUNT; i++) x[i] = ranks_rank();
    rp_window_setup setup =
        RP_WINDOW_SETUP(.name = "everybody", .data = x, .count = COUNT, .dtype = RP_F64,
                        .sources = others, .source_count = (size_t)count,
                        .destinations = others, .destination_count = (size_t)count);
    rp_window *window = NULL;
    if (rp_window_create(comm, &setup, &window) != RP_OK) ranks_die();
    return window;
}

/* Puts and waits, until one fails. */
static void put_for_ever(void) {
    static double x[COUNT];
    rp_comm *comm = join();
    rp_window *window = everybody(comm, x);
    for (long round = 0;; round++) {
        rp_window_operation *operation = NULL;
        rp_status status = rp_window_put(window, NULL, COUNT, NULL, &operation);
        if (status == RP_OK) status = rp_window_wait(&operation, 30);
        if (status != RP_OK) break;
        if (round == 3) ranks_mark("going");
    }
    fprintf(stderr, "%s\n", rp_last_error()->message);
    /* Nobody waits for it, and nobody turns round in place of sleeping. */
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 2);
    getrusage(RUSAGE_SELF, &after);
    double used = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
                  (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec) / 1e6 +
                  (double)(after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
                  (double)(after.ru_stime.tv_usec - before.ru_stime.tv_usec) / 1e6;
    CHECK_MSG(used < 0.25, "%g s of processor time in half a second of rest", used);
    CHECK(rp_window_free(&window) != RP_OK);
    leave(comm);
    exit(check_failures() ? 2 : 1);
}

static void one_dies(const char *transport) {
    ranks *all = ranks_start("put_for_ever", 3, &(ranks_options){.argument = transport});
    for (int rank = 0; rank < 3; rank++) ranks_wait_for(all, rank, "going", 60);
    ranks_signal(all, 1, SIGKILL);
    ranks_finish(all, 60);
    ranks_check_exit(all, 0, 1, "rank 1");
    ranks_check_exit(all, 2, 1, "rank 1");
    ranks_free(all);
}

static void deaths(void) {
    one_dies("shm");
    one_dies("tcp");
}

/* ---- stops ---- */

/* Rank 1 is stopped: pushes to it cost nothing but their merging, others have theirs, and who
 * waits for it is told its name at the deadline. */
static void go_on(void) {
    static double x[COUNT];
    rp_comm *comm = join();
    rp_window *window = everybody(comm, x);
    rp_window_operation *operation = NULL;
    if (ranks_rank() == 1) {
        ranks_mark("ready");
        while (rp_window_version(window, 0) < 300) rpi_sleep_until_ns(rpi_now_ns() + 1000000);
    } else {
        ranks_mark("ready");
        rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS); /* it is stopped meanwhile */
        struct rusage before, after;
        int other = 2 - ranks_rank();
        rp_neighbor friend = {other, 1};
        rp_window_send send = RP_WINDOW_SEND(.targets = &friend, .count = 1);
        CHECK_OK(rp_window_put(window, NULL, COUNT, NULL, NULL));
        getrusage(RUSAGE_SELF, &before);
        for (int k = 1; k < 300; k++) CHECK_OK(rp_window_put(window, NULL, COUNT, NULL, NULL));
        getrusage(RUSAGE_SELF, &after);
        CHECK_MSG(after.ru_maxrss - before.ru_maxrss < 16 * 1024,
                  "299 pushes to a stopped rank took %ld KiB",
                  after.ru_maxrss - before.ru_maxrss);
        CHECK_OK(rp_window_put(window, NULL, COUNT, &send, &operation));
        CHECK_OK(rp_window_wait(&operation, 30)); /* the other one is not delayed */
        CHECK_OK(rp_window_put(window, NULL, COUNT, NULL, &operation));
        CHECK_FAILS(rp_window_wait(&operation, 1.5), TIMEOUT, "rank 1 (no heartbeat");
        ranks_mark("told");
        CHECK_OK(rp_window_wait(&operation, 30)); /* it goes on */
    }
    CHECK_OK(rp_window_free(&window));
    leave(comm);
}

static void stops(void) {
    ranks *all = ranks_start("go_on", 3, &(ranks_options){.argument = "tcp"});
    for (int rank = 0; rank < 3; rank++) ranks_wait_for(all, rank, "ready", 60);
    ranks_signal(all, 1, SIGSTOP);
    ranks_wait_for(all, 0, "told", 60);
    ranks_wait_for(all, 2, "told", 60);
    ranks_signal(all, 1, SIGCONT);
    ranks_finish(all, 60);
    ranks_check_passed(all);
    ranks_free(all);
}

static const ranks_function functions[] = {
    {"operate", operate}, {"put_for_ever", put_for_ever}, {"go_on", go_on}};
static const check_case cases[] = {
    {"processes", processes}, {"deaths", deaths}, {"stops", stops}};
RANKS_MAIN(functions, cases)
