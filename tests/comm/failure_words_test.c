/* The words by which programs and schedulers tell kinds of failure apart: what misses a
 * deadline says "timed out", what has lost a peer "connection closed by peer" or "connection
 * reset by peer". One row a kind; whoever adds a wait, or a way to lose somebody, adds one
 * here. */
#include "redpoll/comm.h"
#include "redpoll/window.h"

#include "base/clock.h"
#include "harness/ranks.h"
#include "net/trust/tls.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static rp_store store;
static float data[100000];

static rp_status join(double timeout_s, rp_comm **out_comm) {
    const char *transport = ranks_argument();
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = strcmp(transport, "tls") ? transport : "tcp",
                        .connect_timeout_s = timeout_s, .warn_after_s = 100,
                        .timeout_s = timeout_s,
                        .tls = strcmp(transport, "tls") == 0 && rpi_tls_is_supported(),
                        .strict_timeout = 1);
    rp_status status = ranks_store(&store);
    if (status != RP_OK) return status;
    return rp_comm_create(&store, ranks_rank(), ranks_world(), &options, out_comm);
}

static rp_comm *meet(double timeout_s) {
    rp_comm *comm = NULL;
    if (join(timeout_s, &comm) != RP_OK) ranks_die();
    ranks_mark("going");
    return comm;
}

/* ---- deadlines: rank 1 leaves rank 0 waiting, at its mark ---- */

static void sleep_long(void) {
    rpi_sleep_until_ns(rpi_now_ns() + 60 * RPI_SECOND_NS);
}

static void late_for_collective(void) {
    rp_comm *comm = meet(20);
    if (ranks_rank() == 1) sleep_long();
    rp_segment segment = {.data = data, .count = 1000, .dtype = RP_F32};
    CHECK_OK(rp_comm_set_timeout(comm, 0.5));
    if (rp_all_reduce(comm, &segment, 1, NULL) != RP_OK) ranks_die();
}

static void late_for_barrier(void) {
    rp_comm *comm = meet(20);
    if (ranks_rank() == 1) sleep_long();
    CHECK_OK(rp_comm_set_timeout(comm, 0.5));
    if (rp_barrier(comm) != RP_OK) ranks_die();
}

static void late_for_message(void) {
    rp_comm *comm = meet(20);
    if (ranks_rank() == 1) sleep_long();
    CHECK_OK(rp_comm_set_timeout(comm, 0.5));
    if (rp_recv(comm, data, 10, RP_F32, 1, 0) != RP_OK) ranks_die();
}

static void late_for_group(void) {
    rp_comm *comm = meet(20), *group = NULL;
    const int pair[] = {0, 1};
    if (ranks_rank() == 1) sleep_long();
    rp_comm_options options = RP_COMM_OPTIONS(.name = "pair", .connect_timeout_s = 0.5);
    if (rp_comm_group(comm, pair, 2, &options, &group) != RP_OK) ranks_die();
}

static void late_for_joining(void) {
    rp_comm *comm = NULL;
    if (join(0.5, &comm) != RP_OK) ranks_die();
}

static void late_for_store(void) {
    char value[8];
    size_t bytes = 0;
    REQUIRE_OK(ranks_store(&store));
    if (store.ops->get(store.context, "nobody", 0.2, value, sizeof value, &bytes) != RP_OK)
        ranks_die();
}

static rp_window *open_window(rp_comm *comm) {
    static double x[10];
    const int peer[] = {1 - ranks_rank()};
    rp_window_setup setup =
        RP_WINDOW_SETUP(.name = "w", .data = x, .count = 10, .dtype = RP_F64, .sources = peer,
                        .source_count = 1, .destinations = peer, .destination_count = 1);
    rp_window *window = NULL;
    if (rp_window_create(comm, &setup, &window) != RP_OK) ranks_die();
    return window;
}

static void late_for_window(void) {
    rp_comm *comm = meet(20);
    const int peer[] = {1 - ranks_rank()};
    rp_window *window = open_window(comm);
    CHECK_OK(rp_barrier(comm));
    if (ranks_rank() == 1) {
        CHECK_OK(rp_window_lock(window, NULL, 0, 1, 5)); /* and does not give it back */
        sleep_long();
    }
    while (rp_window_lock(window, peer, 1, 0, 0.3) == RP_OK)
        CHECK_OK(rp_window_unlock(window, peer, 1, 0));
    ranks_die();
}

/* ---- losses: rank 1 leaves, or is killed ---- */

static void reduce_for_ever(void) {
    rp_comm *comm = meet(60);
    rp_segment segment = {.data = data, .count = 100000, .dtype = RP_F32};
    while (rp_all_reduce(comm, &segment, 1, NULL) == RP_OK) continue;
    ranks_die();
}

/* Properly, without having sent what is waited for. */
static void leaves_early(void) {
    rp_comm *comm = meet(60);
    CHECK_OK(rp_barrier(comm));
    if (ranks_rank() == 1) {
        rp_comm_destroy(comm);
        return;
    }
    if (rp_recv(comm, data, 10, RP_F32, 1, 0) != RP_OK) ranks_die();
}

static void leaves_group(void) {
    rp_comm *comm = meet(60), *group = NULL;
    const int pair[] = {0, 1};
    REQUIRE_OK(rp_comm_group(comm, pair, 2, &(rp_comm_options)RP_COMM_OPTIONS(.name = "pair"),
                             &group));
    if (ranks_rank() == 1) {
        rp_comm_destroy(group);
        sleep_long();
    }
    if (rp_recv(group, data, 10, RP_F32, 1, 0) != RP_OK) ranks_die();
}

static void window_for_ever(void) {
    rp_comm *comm = meet(60);
    rp_window *window = open_window(comm);
    CHECK_OK(rp_barrier(comm));
    for (;;) {
        rp_window_operation *operation = NULL;
        if (rp_window_get(window, NULL, 0, 0, &operation) != RP_OK) break;
        if (rp_window_wait(&operation, 0) != RP_OK) break;
    }
    ranks_die();
}

/* ---- the table ---- */

typedef struct kind {
    const char *function, *transport;
    int signal;  /* to rank 1 once it goes; 0: none */
    int missing; /* ranks that are not started */
    const char *words;
} kind;

static const char late[] = "timed out", lost[] = "by peer";

static const kind kinds[] = {
    {"late_for_collective", "shm", 0, 0, late}, /* computes */
    {"late_for_collective", "tcp", SIGSTOP, 0, late},
    {"late_for_barrier", "shm", SIGSTOP, 0, late},
    {"late_for_message", "tcp", 0, 0, late},
    {"late_for_group", "shm", 0, 0, late},
    {"late_for_joining", "shm", 0, 1, late},
    {"late_for_store", "shm", 0, 1, late},
    {"late_for_window", "shm", 0, 0, late},
    {"late_for_window", "tcp", 0, 0, late},
    {"reduce_for_ever", "shm", SIGKILL, 0, lost},
    {"reduce_for_ever", "tcp", SIGKILL, 0, lost},
    {"reduce_for_ever", "tls", SIGKILL, 0, lost},
    {"reduce_for_ever", "shm", SIGTERM, 0, lost},
    {"leaves_early", "shm", 0, 0, lost},
    {"leaves_early", "tcp", 0, 0, lost},
    {"leaves_group", "shm", 0, 0, lost},
    {"window_for_ever", "shm", SIGKILL, 0, lost},
    {"window_for_ever", "tcp", SIGKILL, 0, lost},
};

static void check_kind(const kind *k) {
    bool tls = strcmp(k->transport, "tls") == 0 && rpi_tls_is_supported();
    if (tls) setenv("REDPOLL_SECRET", "the secret of these ranks", 1);
    ranks *world = ranks_start(
        k->function, 2, &(ranks_options){.argument = k->transport, .missing = k->missing});
    unsetenv("REDPOLL_SECRET");
    if (!k->missing) ranks_wait_for(world, 1, "going", 15);
    if (k->signal) ranks_signal(world, 1, k->signal);
    for (double waited_s = 0; waited_s < 15 && !strstr(ranks_output(world, 0), k->words);
         waited_s += 0.05)
        rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 20);
    const char *said = ranks_output(world, 0);
    CHECK_MSG(strstr(said, k->words), "%s by %s: '%s' does not say '%s'", k->function,
              k->transport, said, k->words);
    if (k->words == lost)
        CHECK_MSG(strstr(said, "connection closed by peer") ||
                      strstr(said, "connection reset by peer"),
                  "%s by %s: '%s' has not the field's words", k->function, k->transport, said);
    ranks_signal(world, 1, SIGKILL);
    ranks_finish(world, 30);
    ranks_free(world);
}

static void deadlines(void) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].words == late) check_kind(&kinds[i]);
}

static void losses(void) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].words == lost) check_kind(&kinds[i]);
}

static void statuses(void) {
    CHECK(strstr(rp_status_text(RP_TIMEOUT), late));
    CHECK(strstr(rp_status_text(RP_PEER), "connection closed by peer"));
}

#define ROW(name)                                                                              \
    { #name, name }
static const ranks_function functions[] = {
    ROW(late_for_collective), ROW(late_for_barrier), ROW(late_for_message),
    ROW(late_for_group),      ROW(late_for_joining), ROW(late_for_store),
    ROW(late_for_window),     ROW(reduce_for_ever),  ROW(leaves_early),
    ROW(leaves_group),        ROW(window_for_ever),
};
static const check_case cases[] = {
    {"deadlines", deadlines}, {"losses", losses}, {"statuses", statuses}};
RANKS_MAIN(functions, cases)
