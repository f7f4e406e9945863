/* Links that are made when they are first needed: how many there are after what, and that who
 * waits for a rank that has left hears of it without one. Counts, not times. */
#include "redpoll/comm.h"

#include "base/clock.h"
#include "comm/core/communicator.h"
#include "comm/core/progress_owner.h"
#include "comm/run/executor.h"
#include "comm/thread_world.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 1000, LARGE = 64 };

static int links_of(const rp_comm *comm) {
    int count = 0;
    rpi_progress_acquire(comm->context); /* whoever makes progress may take one in just now */
    for (int rank = 0; rank < comm->context->world; rank++)
        count += comm->context->connections[rank].link != NULL;
    rpi_progress_release(comm->context);
    return count;
}

static rp_status sum(rp_comm *comm, const char *algorithm) {
    float data[COUNT];
    int world = rp_comm_world(comm), wrong = 0;
    for (int i = 0; i < COUNT; i++) data[i] = (float)(rp_comm_rank(comm) + i % 3);
    rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_F32};
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = algorithm);
    RP_TRY(rp_all_reduce(comm, &segment, 1, &options));
    for (int i = 0; i < COUNT; i++)
        wrong += data[i] != (float)(world * (world - 1) / 2 + world * (i % 3));
    CHECK_EQ(wrong, 0);
    return RP_OK;
}

static long resident_kib(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    if (file) fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Descriptors and memory are the process's, so of all ranks: told by rank 0, while the others
 * wait. */
static int say(int rank, const char *when, int links) {
    int descriptors = 0;
    world_meet();
    if (rank == 0) descriptors = check_descriptors();
    if (rank == 0)
        printf("         %s: %d links of rank 0, %d descriptors and %ld KiB of all\n", when,
               links, descriptors, resident_kib());
    world_meet();
    return descriptors;
}

static void count_them(rp_comm *comm, int rank, int world, void *context) {
    int each = *(const int *)context;
    CHECK_EQ(links_of(comm), 0);
    int joined = say(rank, "joined", 0);
    CHECK_OK(sum(comm, "ring"));
    int links = links_of(comm);
    CHECK_MSG(links >= 1 && links <= 2, "%d links of rank %d for a ring", links, rank);
    int descriptors = say(rank, "after a ring", links);
    /* A ring of P ranks has P links, with two ends each. */
    CHECK_MSG(descriptors <= joined + 2 * each * world, "%d descriptors, before %d",
              descriptors, joined);
    CHECK_OK(rp_barrier(comm));
    (void)say(rank, "and a barrier", links_of(comm));
    CHECK_OK(sum(comm, "ring"));
    world_meet();
}

static void run_kind(const char *transport, int world, int each) {
    rp_comm_options options = RP_COMM_OPTIONS(.transport = transport, .connect_timeout_s = 60);
    printf("         %d ranks as threads, %s\n", world, transport);
    world_run(world, &options, count_them, &each);
}

/* Nobody says so: worlds above 16 ranks are like that. */
static void a_ring_opens_a_ring(void) {
    unsetenv("REDPOLL_CONNECT");
    run_kind("inproc", LARGE, 0);
    run_kind("tcp", 24, 1);
    run_kind("shm", 24, 2);
}

static void all_at_the_start(rp_comm *comm, int rank, int world, void *context) {
    (void)rank, (void)context;
    CHECK_EQ(links_of(comm), world - 1);
}

static void small_worlds_connect_at_the_start(void) {
    unsetenv("REDPOLL_CONNECT");
    world_run(16, NULL, all_at_the_start, NULL);
    setenv("REDPOLL_CONNECT", "start", 1);
    world_run(20, NULL, all_at_the_start, NULL);
    unsetenv("REDPOLL_CONNECT");
}

static void what_is_no_time_is_refused(void) {
    rp_store store = {0};
    rp_comm *comm = NULL;
    rp_comm_options options = RP_COMM_OPTIONS(.connect_timeout_s = 5);
    REQUIRE_OK(rp_store_open_local(&store));
    setenv("REDPOLL_CONNECT", "never", 1);
    CHECK_FAILS(rp_comm_create(&store, 0, 2, &options, &comm), INVALID,
                "REDPOLL_CONNECT: 'never' is no time of connecting: auto, start or need");
    unsetenv("REDPOLL_CONNECT");
    static const char *const streams[] = {"0", "17", "two", "2x", "-1"};
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        setenv("REDPOLL_STREAMS", streams[i], 1);
        CHECK_FAILS(rp_comm_create(&store, 0, 2, &options, &comm), INVALID,
                    "1 to 16 connections a link");
    }
    unsetenv("REDPOLL_STREAMS");
    rp_store_close(&store);
}

/* ---- ranks that have left before there was a link ---- */

static const char *const kinds[] = {"inproc", "shm", "tcp"};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void run_all_kinds(world_function function) {
    setenv("REDPOLL_CONNECT", "need", 1);
    for (int i = 0; i < KINDS; i++) {
        rp_comm_options options =
            RP_COMM_OPTIONS(.transport = kinds[i], .connect_timeout_s = 60, .timeout_s = 60);
        world_run(3, &options, function, NULL);
    }
    unsetenv("REDPOLL_CONNECT");
}

static void wait_for_one_that_is_gone(rp_comm *comm, int rank, int world, void *context) {
    float value = 0;
    (void)world, (void)context;
    if (rank == 2) return; /* and destroys its communicator */
    CHECK_FAILS(rp_recv(comm, &value, 1, RP_F32, 2, 0), PEER, "rank 2");
}

static void who_has_left_is_named(void) {
    run_all_kinds(wait_for_one_that_is_gone);
}

static void wait_for_anybody(rp_comm *comm, int rank, int world, void *context) {
    float value = 0;
    (void)world, (void)context;
    rp_request *request = NULL;
    if (rank > 0) return;
    CHECK_OK(rp_recv_any_start(comm, &value, 1, RP_F32, 0, &request));
    CHECK_FAILS(rp_request_wait(&request), PEER, "rank");
}

static void nobody_is_left_to_send(void) {
    run_all_kinds(wait_for_anybody);
}

/* Whoever calls in vain just before it sleeps goes on at once: no deadline wakes it here. */
static void nothing_else_wakes(void) {
    setenv("REDPOLL_CONNECT", "need", 1);
    for (int i = 0; i < KINDS; i++) {
        rp_comm_options options =
            RP_COMM_OPTIONS(.transport = kinds[i], .connect_timeout_s = 60, .timeout_s = 1e6,
                            .warn_after_s = 1e6);
        world_run(3, &options, wait_for_anybody, NULL);
    }
    unsetenv("REDPOLL_CONNECT");
}

/* Members of a group whose context lives on: the word waits for the link. Making the group has
 * made some of the links; what is asked of it by ranks 0 and 1 needs all. */
static void wait_in_a_group(rp_comm *comm, int rank, int world, void *context) {
    static const int ranks[] = {0, 1, 2};
    rp_comm *group = NULL;
    int answer = 0;
    (void)world, (void)context;
    REQUIRE_OK(rp_comm_group(comm, ranks, 3, NULL, &group));
    if (rank == 2) rp_comm_destroy(group);
    world_meet();
    for (int from = 0; from < 2 && rank < 2; from++)
        if (from == rank) CHECK_FAILS(rp_recv(group, &answer, 1, RP_I32, 2, 5), PEER, "rank 2");
    world_meet();
    if (rank < 2) rp_comm_destroy(group);
    CHECK_OK(rp_barrier(comm)); /* which is none the worse for it */
}

static void who_has_left_a_group_is_named(void) {
    run_all_kinds(wait_in_a_group);
}

/* With a request in the progress owner's hands, and no progress from here on. */
static bool hold_still(rp_comm *comm, rp_request *request) {
    int64_t deadline_ns = rpi_deadline_ns(20);
    rpi_progress_acquire(comm->context);
    while (!comm->queue && rpi_now_ns() < deadline_ns) {
        rpi_progress_release(comm->context);
        CHECK_EQ(rp_request_test(request), RP_PENDING);
        rpi_progress_acquire(comm->context);
    }
    comm->called_ns = 0;
    rpi_comm_progressed(comm, rpi_now_ns() - 1);
    return comm->queue != NULL;
}

static bool was_called(const rp_comm *comm, int rank) {
    return comm->peers[rank].connection->state != RPI_CONNECTION_NONE;
}

static void look_for_late_ones(rp_comm *comm, rp_request *request, bool on_need) {
    if (!hold_still(comm, request)) {
        CHECK_MSG(false, "a receive is not in the queue");
    } else if (!on_need) {
        CHECK_EQ(rpi_links_next_ns(comm), RPI_NEVER_NS);
    } else {
        int64_t idle_ns = rpi_links_next_ns(comm) - comm->progress_ns;
        CHECK(idle_ns > 0 && idle_ns < RPI_SECOND_NS);
        rpi_links_call_late(comm, idle_ns - 1);
        CHECK_EQ(comm->called_ns, 0);
        rpi_links_call_late(comm, idle_ns);
        CHECK(comm->called_ns > comm->progress_ns);
        /* The question waits for the link, and is looked after at intervals. */
        CHECK(comm->peers[1].asked || rpi_links_next_ns(comm) > comm->called_ns);
        comm->peers[1].asked = true;
        comm->called_ns -= RPI_SECOND_NS;
        rpi_links_call_late(comm, idle_ns);
        CHECK_EQ(rpi_links_next_ns(comm), RPI_NEVER_NS);
        CHECK(was_called(comm, 1) && !was_called(comm, 2));
    }
    rpi_progress_release(comm->context);
}

/* Of a tree, in which rank 0 takes from the root, and has nothing to say to it. */
static void wait_for_a_late_root(rp_comm *comm, int rank, int world, void *context) {
    float value = (float)rank;
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.algorithm = "tree", .root = 1);
    rp_request *request = NULL;
    (void)world;
    if (rank == 0) {
        rpi_progress_acquire(comm->context);
        CHECK_EQ(rpi_links_next_ns(comm), RPI_NEVER_NS); /* nothing is waited for */
        rpi_progress_release(comm->context);
        CHECK_OK(rp_broadcast_start(comm, &value, 1, RP_F32, &options, &request));
        look_for_late_ones(comm, request, *(const bool *)context);
    }
    world_meet();
    if (rank > 0) CHECK_OK(rp_broadcast_start(comm, &value, 1, RP_F32, &options, &request));
    CHECK_OK(rp_request_wait(&request));
    CHECK_EQ((int)value, 1);
}

/* Who waits in vain calls whom it waits for when it is time, not before, and once: else it
 * would not sleep. */
static void who_is_late_is_called_once(void) {
    for (int on_need = 0; on_need < 2; on_need++) {
        setenv("REDPOLL_CONNECT", on_need ? "need" : "start", 1);
        world_run(3, NULL, wait_for_a_late_root, &(bool){on_need});
    }
    unsetenv("REDPOLL_CONNECT");
}

/* Communicators of names of their own, whose members are not all linked: nothing is remembered
 * of them once they are gone, and who has left one is named all the same. */
static void make_and_forget(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    int ranks[8];
    for (int i = 0; i < world; i++) ranks[i] = i;
    for (int i = 0; i < 40; i++) {
        char name[32];
        rp_comm *group = NULL;
        snprintf(name, sizeof name, "step %d", i);
        rp_comm_options options = RP_COMM_OPTIONS(.name = name);
        if (rank < world - i % 3)
            CHECK_OK(rp_comm_group(comm, ranks, world - i % 3, &options, &group));
        rp_comm_destroy(group);
    }
    CHECK_OK(rp_barrier(comm));
    world_meet();
    rpi_progress_acquire(comm->context);
    (void)rpi_progress_iterate(comm->context);
    CHECK(!comm->context->fins && !comm->context->offers && !comm->context->declined);
    CHECK(!comm->context->unopened && comm->context->unnumbered == 0);
    rpi_progress_release(comm->context);
    world_meet();
}

static void nothing_is_remembered_of_groups(void) {
    for (int on_need = 0; on_need < 2; on_need++) {
        setenv("REDPOLL_CONNECT", on_need ? "need" : "start", 1);
        world_run(8, NULL, make_and_forget, NULL);
        world_run(5, &(rp_comm_options)RP_COMM_OPTIONS(.transport = "shm"), make_and_forget,
                  NULL);
    }
    unsetenv("REDPOLL_CONNECT");
}

CASES({"nothing is remembered of groups", nothing_is_remembered_of_groups},
      {"a ring opens a ring", a_ring_opens_a_ring},
      {"small worlds connect at the start", small_worlds_connect_at_the_start},
      {"what is no time is refused", what_is_no_time_is_refused},
      {"who has left is named", who_has_left_is_named},
      {"who is late is called once", who_is_late_is_called_once},
      {"nothing else wakes who waits for it", nothing_else_wakes},
      {"nobody is left to send", nobody_is_left_to_send},
      {"who has left a group is named", who_has_left_a_group_is_named})
