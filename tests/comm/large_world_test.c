/* Worlds of many processes on one machine: they join, work and leave; who dies is named by all.
 * 32 ranks, and 256 in the long form. */
#include "redpoll/comm.h"

#include "base/clock.h"
#include "harness/ranks.h"

#include <signal.h>
#include <stdlib.h>

enum { COUNT = 1000, JOIN_S = 120 };

static int world_size(void) {
    return check_long() ? 256 : 32;
}

static rp_comm *join(const rp_store *store) {
    rp_comm *comm = NULL;
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = ranks_argument(), .connect_timeout_s = JOIN_S);
    if (rp_comm_create(store, ranks_rank(), ranks_world(), &options, &comm) != RP_OK)
        ranks_die();
    return comm;
}

static rp_status sum(rp_comm *comm, const char *algorithm) {
    float data[COUNT];
    for (int i = 0; i < COUNT; i++) data[i] = (float)(ranks_rank() + i % 3);
    rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_F32};
    int world = ranks_world(), base = world * (world - 1) / 2, wrong = 0;
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = algorithm);
    rp_status status = rp_all_reduce(comm, &segment, 1, &options);
    for (int i = 0; i < COUNT && status == RP_OK; i++)
        wrong += data[i] != (float)(base + world * (i % 3));
    CHECK_EQ(wrong, 0);
    return status;
}

static long number_in_status(const char *name) {
    char line[200];
    long number = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && number < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            number = strtol(line + strlen(name), NULL, 10);
    if (file) fclose(file);
    return number;
}

typedef struct cost {
    int descriptors;
    long memory; /* KiB */
} cost;

static cost cost_now(void) {
    return (cost){check_descriptors(), number_in_status("VmRSS:")};
}

/* By the store, which opens no link: all have come so far. */
static void meet(const rp_store *store, const char *when) {
    int64_t there = 0, deadline_ns = rpi_deadline_ns(JOIN_S);
    CHECK_OK(store->ops->add(store->context, when, 1, &there));
    while (there < ranks_world() && rpi_now_ns() < deadline_ns) {
        rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 20);
        CHECK_OK(store->ops->add(store->context, when, 0, &there));
    }
    CHECK_EQ(there, ranks_world());
}

/* Says what the world costs since before. */
static int say(cost before, const char *when) {
    cost now = cost_now();
    printf("rank %d of %d, %s, %s: %d descriptors and %ld KiB\n", ranks_rank(), ranks_world(),
           ranks_argument(), when, now.descriptors - before.descriptors,
           now.memory - before.memory);
    return now.descriptors - before.descriptors;
}

/* Of a link shm holds a socket and the peer's event; rank 0 has everybody's control line. Links
 * are made on need: two for a ring. */
static void come_and_go(void) {
    rp_store store = {0};
    REQUIRE_OK(ranks_store(&store));
    cost before = cost_now();
    int world = ranks_world(), lines = ranks_rank() == 0 ? world - 1 : 1;
    int each = !strcmp(ranks_argument(), "shm") ? 2 : 1;
    rp_comm *comm = join(&store);
    int joined = say(before, "joined");
    CHECK_MSG(joined <= lines + 12, "%d descriptors", joined);
    meet(&store, "joined");
    CHECK_OK(sum(comm, "ring"));
    int ring = say(before, "after a ring");
    CHECK_MSG(ring <= lines + 12 + 2 * each, "%d descriptors", ring);
    meet(&store, "ring");
    CHECK_OK(rp_barrier(comm));
    CHECK_OK(sum(comm, NULL));
    int opened = say(before, "and a barrier");
    CHECK_MSG(opened <= each * (world - 1) + lines + 12, "%d descriptors", opened);
    CHECK_OK(rp_barrier(comm)); /* nobody counts what others have closed */
    rp_comm_destroy(comm);
    rp_store_close(&store);
}

static void many_come_and_go(const char *transport) {
    ranks *world =
        ranks_start("come_and_go", world_size(), &(ranks_options){.argument = transport});
    CHECK(ranks_finish(world, 2 * JOIN_S));
    ranks_check_passed(world);
    printf("%s", ranks_output(world, 0));
    printf("%s", ranks_output(world, world_size() - 1));
    ranks_free(world);
}

static void by_shared_memory(void) {
    many_come_and_go("shm");
}

static void by_tcp(void) {
    many_come_and_go("tcp");
}

/* ranks_argument(): who dies. */
static void lose_one(void) {
    rp_store store = {0};
    char name[32];
    int victim = atoi(ranks_argument());
    snprintf(name, sizeof name, "rank %d ", victim);
    REQUIRE_OK(ranks_store(&store));
    rp_comm *comm = NULL;
    rp_comm_options options = RP_COMM_OPTIONS(.connect_timeout_s = JOIN_S);
    if (rp_comm_create(&store, ranks_rank(), ranks_world(), &options, &comm) != RP_OK)
        ranks_die();
    CHECK_OK(sum(comm, NULL));
    ranks_mark("ready");
    if (ranks_rank() == victim) {
        float none = 0; /* what nobody sends: it waits here for its end */
        (void)rp_recv(comm, &none, 1, RP_F32, (victim + 1) % ranks_world(), 7);
        return;
    }
    CHECK_FAILS(sum(comm, NULL), PEER, name);
    rp_comm_destroy(comm);
    rp_store_close(&store);
}

/* The first, which judges, the last, and one between. */
static void who_dies_is_named_by_all(void) {
    int world = world_size(), victims[] = {world - 1, world / 2 - 1, 0};
    for (int i = 0; i < 3; i++) {
        char who[16];
        snprintf(who, sizeof who, "%d", victims[i]);
        ranks *started = ranks_start("lose_one", world, &(ranks_options){.argument = who});
        for (int rank = 0; rank < world; rank++)
            CHECK(ranks_wait_for(started, rank, "ready", JOIN_S));
        ranks_signal(started, victims[i], SIGKILL);
        CHECK(ranks_finish(started, 60));
        for (int rank = 0; rank < world; rank++)
            if (rank != victims[i]) ranks_check_exit(started, rank, 0, NULL);
        ranks_free(started);
    }
}

static const ranks_function functions[] = {{"come_and_go", come_and_go},
                                           {"lose_one", lose_one}};
static const check_case cases[] = {{"by_shared_memory", by_shared_memory},
                                   {"by_tcp", by_tcp},
                                   {"who_dies_is_named_by_all", who_dies_is_named_by_all}};
RANKS_MAIN(functions, cases)
