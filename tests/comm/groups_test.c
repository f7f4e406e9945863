/* Communicators made of another: what they cost, that they work beside each other, and that the
 * end of one is not the end of another. */
#include "redpoll/comm.h"

#include "comm/thread_world.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static const rp_comm_options over_tcp =
    RP_COMM_OPTIONS(.transport = "tcp", .connect_timeout_s = 60);
static const rp_comm_options over_shm =
    RP_COMM_OPTIONS(.transport = "shm", .connect_timeout_s = 60);

static rp_comm *group_of(rp_comm *parent, const int *ranks, int count, const char *name) {
    rp_comm_options options = RP_COMM_OPTIONS(.name = name, .connect_timeout_s = 60);
    rp_comm *comm = NULL;
    CHECK_OK(rp_comm_group(parent, ranks, count, &options, &comm));
    return comm;
}

static rp_request *start_sum(rp_comm *comm, float *data, int count, float value) {
    rp_request *request = NULL;
    for (int i = 0; i < count; i++) data[i] = value;
    rp_segment segment = {.data = data, .count = (size_t)count, .dtype = RP_F32};
    CHECK_OK(rp_all_reduce_start(comm, &segment, 1, NULL, &request));
    return request;
}

static void check_sum(rp_comm *comm, rp_request *request, const float *data, int count,
                      float value) {
    int wrong = 0;
    CHECK_OK(rp_request_wait(&request));
    for (int i = 0; i < count; i++) wrong += data[i] != value * (float)rp_comm_world(comm);
    CHECK_EQ(wrong, 0);
}

static void sum(rp_comm *comm, float value) {
    float data[100];
    check_sum(comm, start_sum(comm, data, 100, value), data, 100, value);
}

/* ---- what one costs ---- */

/* Taken while all other ranks wait: looking takes a descriptor, too. */
typedef struct counts {
    int descriptors, threads;
    size_t resident;
} counts;

static size_t resident_bytes(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%*u %lu", &pages) != 1) pages = 0;
    if (file) fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static counts count(int rank) {
    counts now = {0};
    world_meet();
    if (rank == 0) now = (counts){check_descriptors(), check_threads(), resident_bytes()};
    world_meet();
    return now;
}

/* What rank 0 saw of a world: "" where nothing was opened. */
static char opened[100];

static void look_what_opened(int rank, counts before, counts now) {
    if (rank) return;
    /* Fewer: what joining needed may be closed a moment later. */
    bool nothing = now.descriptors <= before.descriptors && now.threads <= before.threads;
    snprintf(opened, sizeof opened, nothing ? "" : "%d descriptors, before %d; %d threads, %d",
             now.descriptors, before.descriptors, now.threads, before.threads);
}

/* A world opens nothing behind joining but for one thing: where a rank does not run for
 * seconds, on a machine that has no time for it, others look for it elsewhere. What a group
 * opens it opens in each of some worlds. */
static void run_and_open_nothing(int world, const rp_comm_options *options,
                                 world_function function, void *context) {
    enum { WORLDS = 5 };
    for (int i = 0; i == 0 || (i < WORLDS && opened[0]); i++)
        world_run(world, options, function, context);
    CHECK_MSG(!opened[0], "%s", opened);
}

static void split_and_count(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    rp_comm *half = NULL, *none = (rp_comm *)&none;
    counts before = count(rank);
    /* Rank 3 before rank 1, and 2 before 0. */
    CHECK_OK(rp_comm_split(comm, rank % 2, -rank, NULL, &half));
    CHECK_OK(rp_comm_split(comm, rank == 0 ? -1 : 5, 0, NULL, &none));
    look_what_opened(rank, before, count(rank));
    CHECK_EQ(rp_comm_world(half), 2);
    CHECK_EQ(rp_comm_rank(half), rank >= 2 ? 0 : 1);
    CHECK((none == NULL) == (rank == 0));
    if (none) CHECK_EQ(rp_comm_rank(none), rank - 1);
    CHECK(strcmp(rp_comm_transport(half), rp_comm_transport(comm)) == 0);
    sum(half, 2);
    sum(comm, 3);
    if (none) sum(none, 4);
    int from = -1, mine = 10 * rank;
    int other = 1 - rp_comm_rank(half);
    rp_request *receive = NULL;
    CHECK_OK(rp_recv_start(half, &from, 1, RP_I32, other, 0, &receive));
    CHECK_OK(rp_send(half, &mine, 1, RP_I32, other, 0));
    CHECK_OK(rp_request_wait(&receive));
    CHECK_EQ(from, 10 * ((rank + 2) % world));
    rp_comm_destroy(half);
    rp_comm_destroy(none);
}

/* But for links, where these are made on need. */
static void a_split_opens_nothing(void) {
    const char *before = getenv("REDPOLL_CONNECT");
    setenv("REDPOLL_CONNECT", "start", 1);
    run_and_open_nothing(4, &over_tcp, split_and_count, NULL);
    run_and_open_nothing(4, &over_shm, split_and_count, NULL);
    run_and_open_nothing(4, NULL, split_and_count, NULL);
    rp_comm_options threads = over_tcp;
    threads.progress_thread = 1;
    run_and_open_nothing(4, &threads, split_and_count, NULL);
    if (before && strcmp(before, "need") == 0)
        setenv("REDPOLL_CONNECT", "need", 1);
    else
        unsetenv("REDPOLL_CONNECT");
}

enum { GROUPS = 500, WORLD = 8, SMALL = 40 };

/* Group i has the ranks whose bit is set in 1 + i % 255, and rank 0: of any size and shape. */
static int members_of(int i, int *ranks) {
    int count = 0, mask = (1 + i % 255) | 1;
    for (int rank = 0; rank < WORLD; rank++)
        if (mask >> rank & 1) ranks[count++] = rank;
    return count;
}

static size_t members_in_all(int groups) {
    int ranks[WORLD];
    size_t all = 0;
    for (int i = 0; i < groups; i++) all += (size_t)members_of(i, ranks);
    return all;
}

static rp_comm *open_group(rp_comm *comm, int rank, int i) {
    int ranks[WORLD], count = members_of(i, ranks);
    char name[32];
    bool is_member = false;
    for (int k = 0; k < count; k++) is_member |= ranks[k] == rank;
    snprintf(name, sizeof name, "group %d", i);
    return is_member ? group_of(comm, ranks, count, name) : NULL;
}

static void use_many(rp_comm *comm, int rank, int world, void *context) {
    const int groups = *(const int *)context;
    static rp_comm *all[WORLD][GROUPS];
    static float data[WORLD][GROUPS][SMALL];
    static rp_request *requests[WORLD][GROUPS];
    rp_comm **mine = all[rank];
    sum(comm, 1);
    counts before = count(rank);
    for (int i = 0; i < groups; i++) mine[i] = open_group(comm, rank, i);
    for (int i = 0; i < groups; i++)
        if (mine[i]) requests[rank][i] = start_sum(mine[i], data[rank][i], SMALL, (float)i);
    /* Each rank waits in an order of its own. */
    for (int k = 0; k < groups; k++) {
        int i = (k * (rank % 2 ? 7 : 3) + rank) % groups;
        if (mine[i]) check_sum(mine[i], requests[rank][i], data[rank][i], SMALL, (float)i);
    }
    counts now = count(rank);
    look_what_opened(rank, before, now);
    size_t each = (now.resident - before.resident) / members_in_all(groups);
    if (!SANITIZED) CHECK_MSG(each < 65536, "%zu bytes for each group and rank", each);
    if (rank == 0) printf("         %d groups: %zu bytes each a rank\n", groups, each);
    for (int k = 0; k < groups; k++) rp_comm_destroy(mine[(k * 11 + rank) % groups]);
    sum(comm, (float)world);
}

static void many_groups_are_cheap(void) {
    int groups = SANITIZED ? 89 : 499; /* primes: orders above are permutations */
    run_and_open_nothing(WORLD, &over_shm, use_many, &groups);
    groups = SANITIZED ? 29 : 97;
    run_and_open_nothing(WORLD, &over_tcp, use_many, &groups);
}

/* ---- beside each other ---- */

/* Neighbours in a ring make a group each, in an order that makes some come early everywhere. */
static void make_a_ring(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    int next[] = {rank, (rank + 1) % world}, previous[] = {(rank + world - 1) % world, rank};
    rp_comm *up = NULL, *down = NULL;
    for (int round = 0; round < 5; round++) {
        if (rank) down = group_of(comm, previous, 2, "edge");
        up = group_of(comm, next, 2, "edge"); /* of other ranks: another one */
        if (!rank) down = group_of(comm, previous, 2, "edge");
        float data[2][SMALL];
        rp_request *first = start_sum(up, data[0], SMALL, 1);
        rp_request *second = start_sum(down, data[1], SMALL, 1);
        check_sum(down, second, data[1], SMALL, 1);
        check_sum(up, first, data[0], SMALL, 1);
        rp_comm_destroy(round % 2 ? up : down);
        rp_comm_destroy(round % 2 ? down : up);
    }
    sum(comm, 3);
}

static void names_come_back(void) {
    world_run(5, NULL, make_a_ring, NULL);
    world_run(3, &over_tcp, make_a_ring, NULL);
}

enum { MUCH = 3 << 20 };

/* What one communicator sends to who has not asked for it does not stand in the way of others:
 * the broadcast's frames would fill the link many times over. */
static void flood(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    rp_comm *half = NULL;
    CHECK_OK(rp_comm_split(comm, 0, 0, NULL, &half));
    float *data = calloc(MUCH, sizeof *data);
    rp_request *broadcast = NULL;
    if (rank == 0) CHECK_OK(rp_broadcast_start(half, data, MUCH, RP_F32, NULL, &broadcast));
    for (int i = 0; i < 20; i++) sum(comm, (float)i);
    world_meet();
    if (rank) CHECK_OK(rp_broadcast_start(half, data, MUCH, RP_F32, NULL, &broadcast));
    for (int i = 0; i < 20; i++) sum(comm, (float)(i + world));
    CHECK_OK(rp_request_wait(&broadcast));
    rp_comm_destroy(half);
    free(data);
}

/* Many are made at once, in another order on each rank, and given up before they are there. */
static void start_groups(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    enum { AT_ONCE = 8 };
    rp_comm *made[AT_ONCE];
    rp_request *requests[AT_ONCE];
    int ranks[WORLD];
    for (int i = 0; i < world; i++) ranks[i] = i;
    for (int k = 0; k < AT_ONCE; k++) {
        int i = (k + 3 * rank) % AT_ONCE;
        char name[32];
        snprintf(name, sizeof name, "started %d", i);
        rp_comm_options options = RP_COMM_OPTIONS(.name = name);
        CHECK_OK(rp_comm_group_start(comm, ranks, world, &options, &made[i], &requests[i]));
    }
    for (int i = 0; i < AT_ONCE; i++) {
        CHECK_OK(rp_request_wait(&requests[i]));
        sum(made[i], (float)i);
        rp_comm_destroy(made[i]);
    }
    rp_comm_options impatient = RP_COMM_OPTIONS(.name = "given up");
    rp_comm *never = NULL;
    rp_request *request = NULL;
    if (rank == 0) {
        CHECK_OK(rp_comm_group_start(comm, ranks, world, &impatient, &never, &request));
        rp_comm_destroy(never);
    }
    world_meet();
    if (rank) CHECK_FAILS(rp_comm_group(comm, ranks, world, &impatient, &never), CANCELLED, "");
    sum(comm, 1);
}

static void making_one_does_not_block(void) {
    world_run(4, NULL, start_groups, NULL);
    world_run(3, &over_tcp, start_groups, NULL);
}

/* On rank 0 one thread waits for what rank 1 begins only behind the group that another thread
 * makes: who waits makes progress, and gives progress up for a moment. */
typedef struct maker {
    rp_comm *parent, *made;
} maker;

static void *make_both(void *context) {
    maker *m = context;
    const int both[] = {0, 1};
    /* The other thread waits already, as a rule. */
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    m->made = group_of(m->parent, both, 2, "beside a wait");
    return NULL;
}

static void make_beside_a_wait(rp_comm *comm, int rank, int world, void *context) {
    (void)world, (void)context;
    maker m = {.parent = comm};
    float data[100];
    if (rank == 0) {
        pthread_t thread;
        rp_request *request = start_sum(comm, data, 100, 1);
        REQUIRE(pthread_create(&thread, NULL, make_both, &m) == 0);
        check_sum(comm, request, data, 100, 1);
        pthread_join(thread, NULL);
    } else {
        make_both(&m);
        sum(comm, 1);
    }
    sum(m.made, 2);
    rp_comm_destroy(m.made);
}

static void a_waiter_does_not_keep_others_from_making_one(void) {
    static const rp_comm_options with_thread = RP_COMM_OPTIONS(.progress_thread = 1);
    world_run(2, NULL, make_beside_a_wait, NULL);
    world_run(2, &over_shm, make_beside_a_wait, NULL);
    world_run(2, &over_tcp, make_beside_a_wait, NULL);
    world_run(2, &with_thread, make_beside_a_wait, NULL);
}

static void one_does_not_block_another(void) {
    world_run(3, &over_shm, flood, NULL);
    world_run(3, &over_tcp, flood, NULL);
    world_run(2, NULL, flood, NULL);
}

/* Groups of groups, which outlive what they are made of. */
static void outlive(rp_comm *comm, int rank, int world, void *context) {
    const rp_comm_options *options = context;
    static rp_store store;
    if (rank == 0) CHECK_OK(rp_store_open_local(&store));
    world_meet();
    rp_comm_options own = *options;
    own.name = "a parent of its own";
    rp_comm *parent = NULL, *child = NULL, *grandchild = NULL;
    CHECK_OK(rp_comm_create(&store, rank, world, &own, &parent));
    CHECK_OK(rp_comm_split(parent, rank / 2, 0, NULL, &child));
    CHECK_OK(rp_comm_split(child, 0, -rank, NULL, &grandchild));
    rp_comm_destroy(parent);
    sum(child, 1);
    rp_comm_destroy(rank % 2 ? child : grandchild);
    rp_comm_destroy(rank % 2 ? grandchild : child);
    sum(comm, 2);
    world_meet();
    if (rank == 0) rp_store_close(&store);
}

static void the_order_of_destroying_is_free(void) {
    world_run(4, &over_shm, outlive, (void *)(uintptr_t)&over_shm);
    world_run(4, &over_tcp, outlive, (void *)(uintptr_t)&over_tcp);
}

/* ---- failures ---- */

static void fail_one(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    rp_comm *first = NULL, *second = NULL;
    CHECK_OK(rp_comm_split(comm, 0, -rank, NULL, &first));
    CHECK_OK(rp_comm_split(comm, rank > 0, 0, NULL, &second));
    float data[100] = {0};
    rp_segment segment = {.data = data, .count = rank ? 100 : 50, .dtype = RP_F32};
    CHECK_FAILS(rp_all_reduce(first, &segment, 1, NULL), MISMATCH, "50");
    sum(second, 1);
    sum(comm, 2);
    if (rank == world - 1) rp_comm_abort(second, RP_IO, "its disk is full");
    if (rank) CHECK_FAILS(rp_barrier(second), IO, "its disk is full");
    if (!rank) CHECK_OK(rp_barrier(second)); /* rank 0 is alone there */
    sum(comm, 3);
    rp_comm_destroy(second);
    rp_comm *third = NULL;
    CHECK_OK(rp_comm_split(comm, 0, 0, NULL, &third));
    sum(third, 4);
    rp_comm_destroy(third);
    rp_comm_destroy(first);
}

static void a_failure_is_of_one_communicator(void) {
    world_run(3, NULL, fail_one, NULL);
    world_run(4, &over_tcp, fail_one, NULL);
}

static void leave_early(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    rp_comm *all = NULL;
    CHECK_OK(rp_comm_split(comm, 0, 0, NULL, &all));
    if (rank == world - 1) {
        rp_comm_destroy(all);
        all = NULL;
    } else {
        char wanted[32];
        snprintf(wanted, sizeof wanted, "rank %d", world - 1);
        CHECK_FAILS(rp_barrier(all), PEER, wanted);
        CHECK_MSG(strstr(rp_last_error()->message, "destroyed"), "%s",
                  rp_last_error()->message);
    }
    for (int i = 0; i < 3; i++) sum(comm, 1);
    rp_comm_destroy(all);
}

static void who_leaves_is_named(void) {
    world_run(2, NULL, leave_early, NULL);
    world_run(3, &over_tcp, leave_early, NULL);
    world_run(3, &over_shm, leave_early, NULL);
}

static void never_come(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    rp_comm_options impatient = RP_COMM_OPTIONS(.connect_timeout_s = 2);
    int ranks[] = {0, 1, 2};
    rp_comm *group = NULL;
    world_meet();
    if (rank < 2)
        CHECK_FAILS(rp_comm_group(comm, ranks, world, &impatient, &group), TIMEOUT, "rank 2");
    CHECK(!group);
    sum(comm, 1);
}

static void who_does_not_come_is_named(void) {
    world_run(3, NULL, never_come, NULL);
}

/* One rank's call is refused where it is made, and the others' end in vain: that spoils
 * nothing. All try again, by whoever's word, and under the same name. */
typedef struct retry {
    int refused; /* the rank whose first call is refused */
    int members; /* how many ranks there are, from rank 0 on */
} retry;

static void try_again(rp_comm *comm, int rank, int world, void *context) {
    const retry *r = context;
    int ranks[] = {0, 1, 2};
    rp_comm *made = NULL;
    (void)world;
    for (int attempt = 0; attempt < 3; attempt++) {
        rp_comm_options options =
            RP_COMM_OPTIONS(.name = "tp", .connect_timeout_s = attempt < 2 ? 0.3 : 60);
        bool is_in = rank < r->members;
        if (rank == r->refused && attempt < 2) options.chunks_in_flight = 5000;
        rp_status status =
            is_in ? rp_comm_group(comm, ranks, r->members, &options, &made) : RP_OK;
        rp_status wanted = attempt == 2 || !is_in ? RP_OK
                           : rank == r->refused   ? RP_INVALID
                                                  : RP_TIMEOUT;
        /* Who is behind another that has given up hears of that. */
        bool as_wanted = status == wanted || (wanted == RP_TIMEOUT && status == RP_PEER);
        CHECK_MSG(as_wanted, "rank %d, attempt %d: %s (%s)", rank, attempt,
                  rp_status_name(status), status == RP_OK ? "" : rp_last_error()->message);
        world_meet();
    }
    if (made) sum(made, 1);
    rp_comm_destroy(made);
    sum(comm, 2);
}

static void a_making_that_failed_can_be_tried_again(void) {
    const rp_comm_options *worlds[] = {NULL, &over_shm, &over_tcp};
    for (int w = 0; w < 3; w++)
        for (int members = 2; members <= 3; members++)
            for (int refused = 0; refused < members; refused++)
                world_run(3, worlds[w], try_again, &(retry){refused, members});
}

/* Names and members whose CRC-32C is the same: rank 0 is in both. */
static void make_twins(rp_comm *comm, int rank, int world, void *context) {
    (void)context, (void)world;
    int first[] = {0, 1}, second[] = {0, 2};
    rp_comm *stage = NULL, *expert = NULL;
    if (rank < 2) stage = group_of(comm, first, 2, "stage 5c288cc394");
    if (rank != 1) expert = group_of(comm, second, 2, "expert 355fbdbba7");
    if (stage) sum(stage, 1);
    if (expert) sum(expert, 2);
    sum(comm, 3);
    rp_comm_destroy(stage);
    if (expert) sum(expert, 4);
    rp_comm_destroy(expert);
}

static void names_are_not_taken_for_each_other(void) {
    world_run(3, NULL, make_twins, NULL);
    world_run(3, &over_tcp, make_twins, NULL);
}

/* Groups of one name and the same ranks, in the order in which all make them, while one of them
 * is behind by several. */
static void fall_behind(rp_comm *comm, int rank, int world, void *context) {
    enum { SEVERAL = 6 };
    rp_comm *made[SEVERAL];
    rp_request *requests[SEVERAL];
    int ranks[] = {0, 1, 2};
    (void)context;
    if (rank == world - 1) world_meet();
    for (int i = 0; i < SEVERAL; i++)
        CHECK_OK(rp_comm_group_start(comm, ranks, world, NULL, &made[i], &requests[i]));
    if (rank != world - 1) world_meet();
    for (int i = SEVERAL - 1; i >= 0; i--) CHECK_OK(rp_request_wait(&requests[i]));
    for (int i = 0; i < SEVERAL; i++) {
        float data[SMALL];
        check_sum(made[i], start_sum(made[i], data, SMALL, (float)i), data, SMALL, (float)i);
        rp_comm_destroy(made[i]);
    }
}

static void who_is_behind_meets_each_in_its_turn(void) {
    world_run(3, NULL, fall_behind, NULL);
    world_run(3, &over_shm, fall_behind, NULL);
    world_run(3, &over_tcp, fall_behind, NULL);
}

static void refuse(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    rp_comm *made = NULL;
    int twice[] = {rank, rank}, strange[] = {rank, world}, other[] = {(rank + 1) % world};
    int self[] = {rank};
    rp_comm_options link = RP_COMM_OPTIONS(.link = "1Gbit,1us"),
                    epoch = RP_COMM_OPTIONS(.epoch = 1),
                    memory = RP_COMM_OPTIONS(.memory = RP_MEMORY_CUDA);
    CHECK_FAILS(rp_comm_group(comm, twice, 2, NULL, &made), INVALID, "twice");
    CHECK_FAILS(rp_comm_group(comm, strange, 2, NULL, &made), INVALID, "is not in");
    CHECK_FAILS(rp_comm_group(comm, other, 1, NULL, &made), INVALID, "only members call");
    CHECK_FAILS(rp_comm_group(comm, self, 0, NULL, &made), INVALID, "a rank at least");
    CHECK_FAILS(rp_comm_group(comm, self, 1, &link, &made), INVALID, "link is the parent's");
    CHECK_FAILS(rp_comm_split(comm, 0, 0, &epoch, &made), INVALID, "epoch is the parent's");
    CHECK_FAILS(rp_comm_split(comm, 0, 0, &memory, &made), INVALID, "memory is the parent's");
    CHECK(!made);
    CHECK_OK(rp_comm_group(comm, self, 1, NULL, &made));
    sum(made, 7);
    rp_comm_destroy(made);
    sum(comm, 1);
}

static void what_cannot_be_is_refused(void) {
    world_run(2, NULL, refuse, NULL);
    world_run(3, &over_tcp, refuse, NULL);
}

/* Rank 0, by which heartbeats went, has left: that a rank which computes for longer than the
 * timeout is alive is known still. */
static void wait_for_who_computes(rp_comm *comm, int rank, int world, void *context) {
    static const int ranks[] = {1, 2, 3};
    rp_comm_options options =
        RP_COMM_OPTIONS(.name = "left", .connect_timeout_s = 60, .timeout_s = 2);
    rp_comm *group = NULL;
    (void)world, (void)context;
    if (rank == 0) return; /* and destroys its communicator, and with it its context */
    REQUIRE_OK(rp_comm_group(comm, ranks, 3, &options, &group));
    if (rank == 1) sleep(4); /* two seconds of it beyond the timeout, and long without rank 0 */
    CHECK_OK(rp_barrier(group));
    rp_comm_destroy(group);
}

static void a_group_beats_on_without_rank_0(void) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "tcp", .connect_timeout_s = 60, .timeout_s = 2);
    world_run(4, &options, wait_for_who_computes, NULL);
}

CASES({"a_group_beats_on_without_rank_0", a_group_beats_on_without_rank_0},
      {"a split opens nothing", a_split_opens_nothing},
      {"many groups are cheap", many_groups_are_cheap}, {"names come back", names_come_back},
      {"making one does not block", making_one_does_not_block},
      {"a waiter does not keep others from making one",
       a_waiter_does_not_keep_others_from_making_one},
      {"one does not block another", one_does_not_block_another},
      {"the order of destroying is free", the_order_of_destroying_is_free},
      {"a failure is of one communicator", a_failure_is_of_one_communicator},
      {"who leaves is named", who_leaves_is_named},
      {"who does not come is named", who_does_not_come_is_named},
      {"a making that failed can be tried again", a_making_that_failed_can_be_tried_again},
      {"names are not taken for each other", names_are_not_taken_for_each_other},
      {"who is behind meets each in its turn", who_is_behind_meets_each_in_its_turn},
      {"what cannot be is refused", what_cannot_be_is_refused})
