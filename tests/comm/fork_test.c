/* Ranks that fork: the children forget the communicator, and are in nobody's way. */
#include "redpoll/comm.h"

#include "harness/ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 100000, ROUNDS = 5 };

static float data[COUNT];
static rp_store store;

/* The argument of a rank: "transport[,link]". */
static rp_comm *open_comm(void) {
    static char transport[64];
    snprintf(transport, sizeof transport, "%s", ranks_argument());
    char *link = strchr(transport, ',');
    if (link) *link++ = '\0';
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = transport, .link = link, .connect_timeout_s = 30,
                        .warn_after_s = 30, .timeout_s = 60,
                        .progress_thread = ranks_rank() % 2);
    rp_comm *comm = NULL;
    if (ranks_store(&store) != RP_OK ||
        rp_comm_create(&store, ranks_rank(), ranks_world(), &options, &comm) != RP_OK)
        ranks_die();
    return comm;
}

static void reduce(rp_comm *comm) {
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++) data[i] = (float)(i % 100 + ranks_rank());
        rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_F32};
        CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
        int world = ranks_world(), others = world * (world - 1) / 2, wrong = 0;
        for (int i = 0; i < COUNT; i++) wrong += data[i] != (float)(i % 100 * world + others);
        CHECK_EQ(wrong, 0);
    }
}

/* What a forked child does with what it finds: nothing of it may be left. */
static void forget(rp_comm *comm, int before) {
    rp_comm_forget(comm);
    rp_comm_forget(comm); /* a second time changes nothing */
    if (check_descriptors() != before) _exit(3);
}

/* A child of each rank comes and goes while the communicator works. */
static void parents(void) {
    rp_store mine = {0};
    CHECK_OK(ranks_store(&mine));
    rp_store_close(&mine);
    int before = check_descriptors();
    rp_comm *comm = open_comm();
    int with_store = before + 1;
    reduce(comm);
    pid_t child = fork();
    if (child == 0) {
        forget(comm, with_store);
        _exit(0);
    }
    reduce(comm);
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    reduce(comm);
    rp_comm_destroy(comm);
    rp_store_close(&store);
}

/* Lives on after its parent, and ends when rank 1 says that it has noticed. */
static _Noreturn void survive(rp_comm *comm) {
    rp_store own = {0};
    char text[8];
    size_t bytes;
    rp_comm_forget(comm);
    (void)setsid(); /* the harness ends what a dead rank leaves in its group */
    if (ranks_store(&own) != RP_OK) _exit(1);
    ranks_mark("orphan");
    rp_status status = own.ops->get(own.context, "noticed", 20, text, sizeof text, &bytes);
    if (status == RP_OK) status = own.ops->set(own.context, "alive", "yes", 3);
    _exit(status != RP_OK);
}

static void mourners(void) {
    rp_comm *comm = open_comm();
    reduce(comm);
    if (ranks_rank() == 0 && fork() == 0) survive(comm);
    reduce(comm);
    ranks_mark("going");
    CHECK_FAILS(rp_recv(comm, data, COUNT, RP_F32, 0, 0), PEER, "rank 0");
    char text[8];
    size_t bytes;
    CHECK_OK(store.ops->set(store.context, "noticed", "yes", 3));
    CHECK_OK(store.ops->get(store.context, "alive", 10, text, sizeof text, &bytes));
    rp_comm_destroy(comm);
    rp_store_close(&store);
}

/* ---- in the test's process ---- */

static const char *const transports[] = {"shm", "tcp", "auto,10Gbit,20us"};
enum { TRANSPORTS = sizeof transports / sizeof transports[0] };

static void children_come_and_go(void) {
    for (int t = 0; t < TRANSPORTS; t++) {
        ranks *world = ranks_start("parents", 3, &(ranks_options){.argument = transports[t]});
        CHECK(ranks_finish(world, 60));
        ranks_check_passed(world);
        ranks_free(world);
    }
}

static void a_death_is_seen_while_a_child_lives(void) {
    for (int t = 0; t < TRANSPORTS; t++) {
        ranks *world = ranks_start("mourners", 2, &(ranks_options){.argument = transports[t]});
        if (ranks_wait_for(world, 0, "orphan", 30) && ranks_wait_for(world, 1, "going", 30))
            ranks_signal(world, 0, SIGKILL);
        CHECK(ranks_finish(world, 40));
        ranks_check_exit(world, 1, 0, NULL);
        ranks_free(world);
    }
}

/* Ranks that are threads, and a world of one: what belongs to a process is closed once. */
static void a_world_of_one_is_forgotten(void) {
    rp_comm *comm = NULL;
    int before = check_descriptors();
    REQUIRE_OK(rp_comm_create(NULL, 0, 1, NULL, &comm));
    pid_t child = fork();
    if (child == 0) {
        forget(comm, before);
        rp_comm_forget(NULL);
        _exit(0);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_OK(rp_barrier(comm));
    rp_comm_destroy(comm);
}

static const ranks_function functions[] = {{"parents", parents}, {"mourners", mourners}};
static const check_case cases[] = {
    {"children come and go", children_come_and_go},
    {"a death is seen while a child lives", a_death_is_seen_while_a_child_lives},
    {"a world of one is forgotten", a_world_of_one_is_forgotten}};
RANKS_MAIN(functions, cases)
