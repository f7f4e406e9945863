/* Waits that end. Ranks that wait for each other in different communicators are failed by name;
 * those that wait for somebody who computes, by whatever way, are not. */
#include "redpoll/comm.h"

#include "base/clock.h"
#include "base/rng.h"
#include "harness/ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

static rp_store store;

static rp_comm *open_world_by(const char *transport, double timeout_s, int strict) {
    rp_comm_options options = RP_COMM_OPTIONS(.transport = transport, .connect_timeout_s = 30,
                                              .warn_after_s = timeout_s / 2,
                                              .timeout_s = timeout_s, .strict_timeout = strict);
    rp_comm *comm = NULL;
    if (ranks_store(&store) != RP_OK ||
        rp_comm_create(&store, ranks_rank(), ranks_world(), &options, &comm) != RP_OK)
        ranks_die();
    return comm;
}

static rp_comm *open_world(double timeout_s, int strict) {
    return open_world_by(ranks_argument()[0] ? ranks_argument() : NULL, timeout_s, strict);
}

/* NULL where this rank is no member. */
static rp_comm *group_of(rp_comm *parent, const char *name, int a, int b) {
    const int members[] = {a, b};
    rp_comm_options options = RP_COMM_OPTIONS(.name = name);
    rp_comm *group = NULL;
    if (ranks_rank() != a && ranks_rank() != b) return NULL;
    if (rp_comm_group(parent, members, 2, &options, &group) != RP_OK) ranks_die();
    return group;
}

static void compute(double seconds) {
    rpi_sleep_until_ns(rpi_now_ns() + (int64_t)(seconds * 1e9));
}

/* Ends with 1 and what was said, as a command would; 0 when all went well. group: NULL where
 * there is none. */
static void end_with(rp_status status, rp_comm *world, rp_comm *group) {
    if (status != RP_OK) fprintf(stderr, "%s\n", rp_last_error()->message);
    rp_comm_destroy(group);
    rp_comm_destroy(world);
    rp_store_close(&store);
    if (status != RP_OK) exit(1);
}

/* ---- ranks that wait for each other ---- */

static void cross_two(int strict) {
    rp_comm *world = open_world(1.5, strict), *pair = group_of(world, "pair", 0, 1);
    rp_status status = rp_barrier(ranks_rank() ? pair : world);
    CHECK_EQ(status, RP_TIMEOUT);
    end_with(status, world, pair);
}

static void crossed(void) {
    cross_two(0);
}

static void strictly_crossed(void) {
    cross_two(1);
}

/* Rank 1 waits in a group that only it has come to. */
static void crossed_in_making(void) {
    rp_comm *world = open_world(1.5, 0), *pair = NULL;
    const int members[] = {0, 1};
    rp_comm_options options = RP_COMM_OPTIONS(.name = "pair");
    rp_status status =
        ranks_rank() ? rp_comm_group(world, members, 2, &options, &pair) : rp_barrier(world);
    CHECK_EQ(status, RP_TIMEOUT);
    end_with(status, world, pair);
}

/* Ranks 1, 2 and 3, in groups that the first rank of all is no member of, which goes on. */
static void crossed_by_three(void) {
    rp_comm *world = open_world(1.5, 0);
    rp_comm *groups[3];
    float data = 0;
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"tp", "dp", "pp"};
        groups[i] = group_of(world, names[i], 1 + i, 1 + (i + 1) % 3);
    }
    CHECK_OK(rp_barrier(world));
    if (ranks_rank() == 0) {
        end_with(RP_OK, world, NULL);
        return;
    }
    int mine = ranks_rank() - 1;
    rp_status status = rp_recv(groups[mine], &data, 1, RP_F32, 1, 5);
    CHECK_EQ(status, RP_TIMEOUT);
    if (status != RP_OK) fprintf(stderr, "%s\n", rp_last_error()->message);
    for (int i = 0; i < 3; i++) rp_comm_destroy(groups[i]);
    rp_comm_destroy(world);
    rp_store_close(&store);
    if (status != RP_OK) exit(1);
}

/* A row: who runs, how many, who is the first that fails, and what all of these say. */
static const struct {
    const char *function;
    int world, first;
    const char *words[6];
} crossings[] = {
    {"crossed", 2, 0, {"timed out", "'world'", "'pair'", "which waits in"}},
    {"strictly_crossed", 2, 0, {"timed out", "'world'", "'pair'", "which waits in"}},
    {"crossed_in_making", 2, 0, {"timed out", "'world'", "'pair'", "which waits in"}},
    {"crossed_by_three", 4, 1, {"timed out", "'tp'", "'dp'", "'pp'"}},
};
enum { CROSSINGS = sizeof crossings / sizeof crossings[0] };

/* Worlds wait most of the time: all at once take no longer than one. */
static void crossed_waits_are_failed_with_all_names(void) {
    ranks *worlds[CROSSINGS];
    for (int i = 0; i < CROSSINGS; i++)
        worlds[i] = ranks_start(crossings[i].function, crossings[i].world, NULL);
    for (int i = 0; i < CROSSINGS; i++) {
        CHECK(ranks_finish(worlds[i], 60));
        for (int rank = crossings[i].first; rank < crossings[i].world; rank++)
            for (int word = 0; crossings[i].words[word]; word++)
                ranks_check_exit(worlds[i], rank, 1, crossings[i].words[word]);
        ranks_free(worlds[i]);
    }
}

/* ---- random ones ---- */

enum { RANKS = 7, RING = 3, RANDOM_WORLDS = 4, NAME_BYTES = 24 };

/* Whom each rank waits for; NOBODY: it goes on. Every path leads into a ring. */
enum { NOBODY = -1 };
typedef struct waits {
    int world, ring, waits_for[RANKS];
    bool in_ring[RANKS], by_barrier[RANKS];
} waits;

static waits make_waits(uint64_t seed) {
    rpi_rng rng = rpi_rng_make(seed, RPI_RNG_TEST, 31);
    waits w = {.world = 2 + (int)rpi_rng_below(&rng, RANKS - 1)};
    int most = w.world < RING ? w.world : RING;
    w.ring = 2 + (int)rpi_rng_below(&rng, (uint32_t)most - 1);
    uint32_t order[RANKS];
    for (int i = 0; i < w.world; i++) order[i] = (uint32_t)i;
    rpi_rng_shuffle(&rng, order, w.world);
    for (int i = 0; i < w.world; i++) {
        uint32_t behind =
            i < w.ring ? order[(i + 1) % w.ring] : order[rpi_rng_below(&rng, (uint32_t)w.ring)];
        bool has_wait = i < w.ring || rpi_rng_below(&rng, 2);
        w.waits_for[order[i]] = has_wait ? (int)behind : NOBODY;
        w.in_ring[order[i]] = i < w.ring;
        w.by_barrier[order[i]] = rpi_rng_below(&rng, 2);
    }
    return w;
}

/* "wait of 3", which has two members: its rank and the one that it waits for. */
static void name_wait(int rank, char name[NAME_BYTES]) {
    snprintf(name, NAME_BYTES, "wait of %d", rank);
}

/* In the group of its own wait, to which the other member does not come. */
static rp_status wait_as(const waits *w, int rank, rp_comm *group) {
    float data = 0;
    if (w->by_barrier[rank]) return rp_barrier(group);
    return rp_recv(group, &data, 1, RP_F32, 1, 5);
}

static void randomly_crossed(void) {
    waits w = make_waits(strtoull(ranks_argument(), NULL, 10));
    int rank = ranks_rank();
    rp_comm *world = open_world_by(NULL, 1.5, 0), *groups[RANKS] = {0};
    for (int i = 0; i < w.world; i++) {
        char name[NAME_BYTES];
        name_wait(i, name);
        if (w.waits_for[i] != NOBODY) groups[i] = group_of(world, name, i, w.waits_for[i]);
    }
    CHECK_OK(rp_barrier(world));
    rp_status status = w.waits_for[rank] == NOBODY ? RP_OK : wait_as(&w, rank, groups[rank]);
    if (status != RP_OK) fprintf(stderr, "%s\n", rp_last_error()->message);
    for (int i = 0; i < w.world; i++) rp_comm_destroy(groups[i]);
    end_with(RP_OK, world, NULL);
    if (status != RP_OK) exit(1);
}

/* One in the ring names all of it. One that waits for these may also see that they, which have
 * failed, are gone. */
static void check_random(const waits *w, ranks *world) {
    for (int rank = 0; rank < w->world; rank++) {
        char name[NAME_BYTES];
        bool goes_on = w->waits_for[rank] == NOBODY;
        name_wait(rank, name);
        ranks_check_exit(world, rank, !goes_on, goes_on ? NULL : name);
        if (w->in_ring[rank]) ranks_check_exit(world, rank, 1, "timed out");
        for (int other = 0; other < w->world && w->in_ring[rank]; other++) {
            name_wait(other, name);
            if (w->in_ring[other]) ranks_check_exit(world, rank, 1, name);
        }
    }
}

static void random_waits_in_a_ring_are_failed(void) {
    uint64_t seed = check_seed();
    ranks *worlds[RANDOM_WORLDS];
    for (uint64_t i = 0; i < RANDOM_WORLDS; i++) {
        char argument[24];
        uint64_t own = seed + i;
        snprintf(argument, sizeof argument, "%llu", (unsigned long long)own);
        worlds[i] = ranks_start("randomly_crossed", make_waits(own).world,
                                &(ranks_options){.argument = argument});
    }
    for (uint64_t i = 0; i < RANDOM_WORLDS; i++) {
        waits w = make_waits(seed + i);
        CHECK(ranks_finish(worlds[i], 60));
        check_random(&w, worlds[i]);
        ranks_free(worlds[i]);
    }
}

/* ---- and those that do not ---- */

/* Rank 0 waits in the world for rank 1, which waits in a pair for rank 2, which computes for
 * longer than the timeout. */
static void behind_a_thinker(void) {
    rp_comm *world = open_world(2, 0), *pair = group_of(world, "pair", 1, 2);
    CHECK_OK(rp_barrier(world));
    if (ranks_rank() == 2) compute(5);
    if (pair) CHECK_OK(rp_barrier(pair));
    CHECK_OK(rp_barrier(world));
    end_with(RP_OK, world, pair);
}

/* Rank 1 has posted what rank 0 waits for, and waits elsewhere for rank 0: both wait for rank
 * 2, which computes. */
static void posted_before(void) {
    rp_comm *world = open_world(2, 0), *pair = group_of(world, "pair", 0, 1);
    rp_request *posted = NULL;
    CHECK_OK(rp_barrier(world));
    if (ranks_rank() == 2) compute(5);
    CHECK_OK(rp_barrier_start(world, &posted));
    if (ranks_rank() == 1) CHECK_OK(rp_barrier(pair));
    CHECK_OK(rp_request_wait(&posted));
    if (ranks_rank() == 0) CHECK_OK(rp_barrier(pair));
    end_with(RP_OK, world, pair);
}

/* Rank 0 has posted a receive in a pair, for which nobody waits yet; rank 1 waits in the pair
 * for what rank 0 will send later. */
static void receive_ahead(bool waits_elsewhere) {
    rp_comm *world = open_world(2, 0), *pair = group_of(world, "stages", 0, 1),
            *other = group_of(world, "layers", 0, 2);
    rp_request *ahead = NULL;
    float there = 1, back = 0;
    CHECK_OK(rp_barrier(world));
    if (ranks_rank() == 0) CHECK_OK(rp_recv_start(pair, &back, 1, RP_F32, 1, 2, &ahead));
    if (ranks_rank() == (waits_elsewhere ? 2 : 0)) compute(5);
    if (other) CHECK_OK(rp_barrier(other));
    if (ranks_rank() == 0) CHECK_OK(rp_send(pair, &there, 1, RP_F32, 1, 1));
    if (ranks_rank() == 1) CHECK_OK(rp_recv(pair, &there, 1, RP_F32, 0, 1));
    if (ranks_rank() == 1) CHECK_OK(rp_send(pair, &there, 1, RP_F32, 0, 2));
    if (ahead) CHECK_OK(rp_request_wait(&ahead));
    rp_comm_destroy(other);
    end_with(RP_OK, world, pair);
}

/* In another group it waits for rank 2, which computes. */
static void received_ahead_of_a_wait(void) {
    receive_ahead(true);
}

static void received_ahead_of_work(void) {
    receive_ahead(false);
}

static void *barrier_in(void *comm) {
    CHECK_OK(rp_barrier(comm));
    return NULL;
}

/* A thread of rank 0 waits in the world for rank 1, which waits in a pair for another thread of
 * rank 0: that one computes. */
static void two_threads(void) {
    rp_comm *world = open_world(2, 0), *pair = group_of(world, "pair", 0, 1);
    pthread_t other;
    CHECK_OK(rp_barrier(pair));
    if (ranks_rank() == 0) {
        pthread_create(&other, NULL, barrier_in, world);
        compute(5);
    }
    CHECK_OK(rp_barrier(pair));
    if (ranks_rank() == 0)
        pthread_join(other, NULL);
    else
        CHECK_OK(rp_barrier(world));
    end_with(RP_OK, world, pair);
}

/* A wait with a deadline of its own ends by itself, and then its caller comes. */
static void waits_in_slices(void) {
    rp_comm *world = open_world(2, 0), *pair = group_of(world, "pair", 0, 1);
    rp_request *posted = NULL;
    CHECK_OK(rp_barrier(world));
    if (ranks_rank() == 0) {
        CHECK_OK(rp_barrier_start(pair, &posted));
        CHECK_EQ(rp_request_wait_for(posted, 5), RP_PENDING);
    }
    CHECK_OK(rp_barrier(world));
    if (posted)
        CHECK_OK(rp_request_wait(&posted));
    else
        CHECK_OK(rp_barrier(pair));
    end_with(RP_OK, world, pair);
}

static void who_waits_for_one_that_computes_is_left_in_peace(void) {
    static const struct {
        const char *function;
        int world;
    } rows[] = {
        {"behind_a_thinker", 3},       {"posted_before", 3}, {"received_ahead_of_a_wait", 3},
        {"received_ahead_of_work", 3}, {"two_threads", 2},   {"waits_in_slices", 2}};
    enum { ROWS = sizeof rows / sizeof rows[0] };
    ranks *worlds[ROWS];
    for (int i = 0; i < ROWS; i++)
        worlds[i] = ranks_start(rows[i].function, rows[i].world, NULL);
    for (int i = 0; i < ROWS; i++) {
        CHECK(ranks_finish(worlds[i], 60));
        ranks_check_passed(worlds[i]);
        ranks_free(worlds[i]);
    }
}

/* ---- who passes on heartbeats is stopped ---- */

/* Ranks 2 and 3 have a pair of their own, and rank 3 computes in it for longer than the
 * timeout. The argument: what happens meanwhile to ranks 0 and 1, which the parent sees to. */
static void without_the_first(void) {
    rp_comm_options options =
        RP_COMM_OPTIONS(.connect_timeout_s = 30, .warn_after_s = 1, .timeout_s = 2);
    rp_comm_options lasting =
        RP_COMM_OPTIONS(.name = "all", .timeout_s = 60, .warn_after_s = 50);
    rp_comm *world = NULL, *all = NULL;
    const int everybody[] = {0, 1, 2, 3};
    if (ranks_store(&store) != RP_OK ||
        rp_comm_create(&store, ranks_rank(), ranks_world(), &options, &world) != RP_OK ||
        rp_comm_group(world, everybody, 4, &lasting, &all) != RP_OK)
        ranks_die();
    rp_comm *pair = group_of(world, "pair", 2, 3);
    CHECK_OK(rp_barrier(world));
    ranks_mark("going");
    if (pair) {
        compute(0.5);
        if (ranks_rank() == 3) compute(6);
        CHECK_OK(rp_barrier(pair));
        ranks_mark("waited");
    }
    if (strcmp(ranks_argument(), "stays") == 0) CHECK_OK(rp_barrier(all));
    rp_comm_destroy(all);
    end_with(RP_OK, world, pair);
}

/* A row: what becomes of rank 0, and whether rank 1 is stopped. */
static const struct {
    int first_signal;
    bool is_second_stopped;
} losses[] = {{SIGKILL, true}, {SIGSTOP, false}, {SIGSTOP, true}};
enum { LOSSES = sizeof losses / sizeof losses[0] };

static ranks *lose_some(int row) {
    bool stays = losses[row].first_signal == SIGSTOP;
    ranks_options options = {.argument = stays ? "stays" : "goes"};
    ranks *world = ranks_start("without_the_first", 4, &options);
    for (int rank = 0; rank < 4; rank++) CHECK(ranks_wait_for(world, rank, "going", 30));
    if (losses[row].is_second_stopped) ranks_signal(world, 1, SIGSTOP);
    ranks_signal(world, 0, losses[row].first_signal);
    return world;
}

static void find_some(int row, ranks *world) {
    bool stays = losses[row].first_signal == SIGSTOP;
    for (int rank = 2; rank < 4; rank++) CHECK(ranks_wait_for(world, rank, "waited", 30));
    if (stays) ranks_signal(world, 0, SIGCONT);
    if (losses[row].is_second_stopped) ranks_signal(world, 1, SIGCONT);
    CHECK(ranks_finish(world, 60));
    for (int rank = stays ? 0 : 1; rank < 4; rank++) ranks_check_exit(world, rank, 0, NULL);
    ranks_free(world);
}

static void groups_do_not_fail_for_ranks_that_they_lack(void) {
    ranks *worlds[LOSSES];
    for (int row = 0; row < LOSSES; row++) worlds[row] = lose_some(row);
    for (int row = 0; row < LOSSES; row++) find_some(row, worlds[row]);
}

static const ranks_function functions[] = {
    {"crossed", crossed},
    {"strictly_crossed", strictly_crossed},
    {"crossed_in_making", crossed_in_making},
    {"crossed_by_three", crossed_by_three},
    {"randomly_crossed", randomly_crossed},
    {"behind_a_thinker", behind_a_thinker},
    {"posted_before", posted_before},
    {"received_ahead_of_a_wait", received_ahead_of_a_wait},
    {"received_ahead_of_work", received_ahead_of_work},
    {"two_threads", two_threads},
    {"waits_in_slices", waits_in_slices},
    {"without_the_first", without_the_first}};
static const check_case cases[] = {
    {"crossed waits are failed with all names", crossed_waits_are_failed_with_all_names},
    {"random waits in a ring are failed", random_waits_in_a_ring_are_failed},
    {"who waits for one that computes is left in peace",
     who_waits_for_one_that_computes_is_left_in_peace},
    {"groups do not fail for ranks that they lack",
     groups_do_not_fail_for_ranks_that_they_lack}};
RANKS_MAIN(functions, cases)
