/* A rank that dies is named in every communicator that has it; the others go on. */
#include "redpoll/comm.h"

#include "harness/ranks.h"

#include <signal.h>
#include <stdlib.h>

static rp_comm *group_of(rp_comm *parent, int a, int b, int c) {
    int members[] = {a, b, c};
    rp_comm *comm = NULL;
    if (rp_comm_group(parent, members, c < 0 ? 2 : 3, NULL, &comm) != RP_OK) ranks_die();
    return comm;
}

static rp_status sum(rp_comm *comm) {
    float data[1000];
    for (int i = 0; i < 1000; i++) data[i] = 1;
    rp_segment segment = {.data = data, .count = 1000, .dtype = RP_F32};
    rp_status status = rp_all_reduce(comm, &segment, 1, NULL);
    if (status == RP_OK) CHECK(data[999] == (float)rp_comm_world(comm));
    return status;
}

static void check_named(rp_comm *comm, const char *name) {
    CHECK_FAILS(sum(comm), PEER, name);
    CHECK_FAILS(rp_comm_status(comm), PEER, name);
}

static void live_on(void) {
    rp_store store = {0};
    rp_comm *comm = NULL, *with = NULL, *without = NULL, *idle = NULL;
    int rank = ranks_rank();
    REQUIRE_OK(ranks_store(&store));
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = ranks_argument(), .connect_timeout_s = 30);
    if (rp_comm_create(&store, rank, ranks_world(), &options, &comm) != RP_OK) ranks_die();
    if (rank != 2) with = group_of(comm, 3, 1, 0);
    if (rank != 3) without = group_of(comm, 0, 1, 2);
    if (rank >= 2) idle = group_of(comm, 2, 3, -1);
    CHECK_OK(sum(comm));
    ranks_mark("ready");
    if (rank == 3) {
        float none = 0; /* nobody sends it: what rank 3 sent would let the others' sum end */
        (void)rp_recv(with, &none, 1, RP_F32, 1, 7);
        return;
    }
    /* Its places are 3 of all, 0 of `with` and 1 of `idle`. */
    check_named(comm, "rank 3");
    if (with) check_named(with, "rank 0");
    if (idle) check_named(idle, "rank 1");
    for (int i = 0; i < 3; i++) CHECK_OK(sum(without));
    if (rank) { /* of those that live new ones are made */
        rp_comm *later = NULL;
        int members[] = {2, 1};
        CHECK_OK(rp_comm_group(comm, members, 2, NULL, &later));
        CHECK_OK(sum(later));
        rp_comm_destroy(later);
    } else {
        rp_comm *never = NULL;
        int members[] = {0, 3};
        CHECK_FAILS(rp_comm_group(comm, members, 2, NULL, &never), PEER, "rank 1");
    }
    rp_comm_destroy(comm);
    rp_comm_destroy(idle);
    rp_comm_destroy(with);
    CHECK_OK(sum(without));
    rp_comm_destroy(without);
    rp_store_close(&store);
}

static void run(const char *transport) {
    ranks *world = ranks_start("live_on", 4, &(ranks_options){.argument = transport});
    for (int rank = 0; rank < 4; rank++) CHECK(ranks_wait_for(world, rank, "ready", 30));
    ranks_signal(world, 3, SIGKILL);
    CHECK(ranks_finish(world, 60));
    for (int rank = 0; rank < 3; rank++) ranks_check_exit(world, rank, 0, NULL);
    ranks_free(world);
}

static void the_dead_are_named_and_others_live_on(void) {
    run("shm");
    run("tcp");
}

static const ranks_function functions[] = {{"live_on", live_on}};
static const check_case cases[] = {
    {"the dead are named and others live on", the_dead_are_named_and_others_live_on}};
RANKS_MAIN(functions, cases)
