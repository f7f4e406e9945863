/* Every schedule of the catalogue, made ready to run: nothing is lost, nothing waits for ever.
 */
#include "comm/core/routine.h"

#include "base/memory.h"
#include "harness/check.h"

#include <stdlib.h>

enum { MOST_RANKS = 17 };

static void each_routine(void (*check)(const rpi_routine *routine)) {
    for (int a = 0; rpi_algorithm_at(a); a++) {
        const rpi_algorithm *algorithm = rpi_algorithm_at(a);
        for (int world = 1; world <= MOST_RANKS; world++)
            for (int rank = 0; rank < world && rpi_algorithm_fits(algorithm, world); rank++)
                for (int form = 0; form < 8; form++) {
                    rpi_plan_request request = {
                        .world = world, .rank = rank, .root = world / 2, .mean = form / 4};
                    rpi_routine *routine = NULL;
                    REQUIRE_OK(rpi_routine_build(algorithm, &request, form % 2, form / 2 % 2,
                                                 &routine));
                    check(routine);
                    rpi_routine_destroy(routine);
                }
    }
}

/* Running whatever is ready, in any order, reaches every action once. */
static void run_to_the_end(const rpi_routine *routine) {
    int count = routine->schedule.count, ran = 0;
    uint16_t *waits = calloc((size_t)count + 1, sizeof *waits);
    bool *done = calloc((size_t)count + 1, sizeof *done);
    for (int i = 0; i < count; i++) waits[i] = routine->action[i].waits;
    for (int start = 0, moved = 1; moved; start = 7 * start + 3) {
        moved = 0;
        for (int k = 0; k < count; k++) {
            int i = (k + start % count) % count;
            const rpi_action *action = &routine->action[i];
            if (done[i] || waits[i] || action->fused) continue;
            done[i] = true;
            moved = 1;
            ran++;
            for (int n = 0; n < action->nexts; n++)
                waits[routine->next[action->first_next + n]]--;
        }
    }
    CHECK_MSG(ran == routine->actions, "%s, rank %d of %d: %d of %d actions ran",
              routine->schedule.algorithm->name, routine->schedule.rank,
              routine->schedule.world, ran, routine->actions);
    free(waits);
    free(done);
}

static void every_action_runs_once(void) {
    each_routine(run_to_the_end);
}

static void check_lists(const rpi_routine *routine) {
    const rpi_schedule *schedule = &routine->schedule;
    int recvs = 0, fused = 0, encoding = 0, of_two = 0;
    for (int i = 0; i < schedule->count; i++) {
        recvs += routine->action[i].kind == RPI_STEP_RECV;
        fused += routine->action[i].fused;
        encoding += routine->action[i].encodes;
        of_two += routine->action[i].first != RPI_NO_SLOT;
        if (routine->action[i].encodes) CHECK(routine->action[i].from < RPI_SLOT_TOKEN);
    }
    CHECK_EQ(routine->first_recv[schedule->world], recvs);
    if (!routine->plain) CHECK_EQ(fused, encoding + of_two);
    CHECK_EQ(routine->actions, schedule->count - fused);
    for (int peer = 0; peer < schedule->world; peer++)
        for (int k = routine->first_recv[peer]; k < routine->first_recv[peer + 1]; k++) {
            CHECK_EQ(routine->action[routine->recvs[k]].peer, peer);
            CHECK(k == routine->first_recv[peer] || routine->recvs[k - 1] < routine->recvs[k]);
        }
}

static void receives_are_listed_and_encodings_fused(void) {
    each_routine(check_lists);
}

/* What the zero-copy paths rest on: SRA's contributions go straight to the wire, and its sum
 * may stay where it is while it is sent. */
static void sra_is_fused_as_it_should_be(void) {
    const rpi_algorithm *sra = NULL;
    REQUIRE_OK(rpi_algorithm_find(RPI_ALL_REDUCE, "sra", &sra));
    rpi_plan_request request = {.world = 4, .rank = 2};
    rpi_routine *routine = NULL;
    REQUIRE_OK(rpi_routine_build(sra, &request, false, false, &routine));
    int straight = 0, lasting = 0;
    for (int i = 0; i < routine->schedule.count; i++)
        straight += routine->action[i].encodes && routine->action[i].from == RPI_SLOT_IN;
    for (int w = 0; w < routine->schedule.wires; w++)
        lasting += routine->wires[w].source == RPI_SLOT_SUM && routine->wires[w].readers == 4;
    CHECK_EQ(straight, 3);
    CHECK_EQ(lasting, 1);
    CHECK_EQ(routine->sums, 1);
    rpi_routine_destroy(routine);
}

static int actions_of(const rpi_routine *routine, rpi_step_kind kind) {
    int count = 0;
    for (int i = 0; i < routine->schedule.count; i++)
        count += routine->action[i].kind == kind && !routine->action[i].fused;
    return count;
}

/* What a rank does to memory: it sends its half of the other's, adds and sends its own, and
 * takes the other's sum. No accumulator, no copy. */
static void check_pair(const char *name, int rank, bool mean) {
    const rpi_algorithm *algorithm = NULL;
    REQUIRE_OK(rpi_algorithm_find(RPI_ALL_REDUCE, name, &algorithm));
    rpi_plan_request request = {.world = 2, .rank = rank, .mean = mean};
    rpi_routine *routine = NULL;
    REQUIRE_OK(rpi_routine_build(algorithm, &request, true, false, &routine));
    bool halves = routine->schedule.parts == 2;
    CHECK_EQ(routine->sums, 0);
    CHECK_EQ(actions_of(routine, RPI_STEP_ADD), 1);
    CHECK_EQ(actions_of(routine, RPI_STEP_COPY), 0);
    CHECK_EQ(actions_of(routine, RPI_STEP_ENCODE), 0);
    CHECK_EQ(actions_of(routine, RPI_STEP_SEND), halves ? 2 : 1);
    CHECK_EQ(actions_of(routine, RPI_STEP_DECODE), halves ? 1 : 0);
    rpi_routine_destroy(routine);
}

/* An encoding is added to the rank's own values without a copy or an addition of its own; on a
 * GPU the two stay apart, each where its values lie. */
static void encodings_are_added_in_one_pass(void) {
    const rpi_algorithm *sra = NULL;
    REQUIRE_OK(rpi_algorithm_find(RPI_ALL_REDUCE, "sra", &sra));
    for (int form = 0; form < 4; form++) {
        rpi_plan_request request = {.world = 2, .rank = form % 2};
        rpi_routine *routine = NULL;
        bool device = form / 2;
        REQUIRE_OK(rpi_routine_build(sra, &request, false, device, &routine));
        int begins = actions_of(routine, RPI_STEP_COPY) + actions_of(routine, RPI_STEP_DECODE) +
                     actions_of(routine, RPI_STEP_ADD);
        CHECK_EQ(begins, device ? 4 : 3); /* two are the sums' way into OUT */
        CHECK_EQ(routine->sums, 1);
        rpi_routine_destroy(routine);
    }
}

static void exact_sums_of_two_are_one_pass(void) {
    static const char *const names[] = {"sra", "oneshot", "ring", "halving", "doubling"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (int form = 0; form < 4; form++) check_pair(names[n], form / 2, form % 2);
}

/* The frame that comes is the first wire slot of all. */
static void a_root_of_two_adds_in_one_pass(void) {
    static const char *const names[] = {"tree", "direct"};
    for (int form = 0; form < 4; form++) {
        const rpi_algorithm *algorithm = NULL;
        REQUIRE_OK(rpi_algorithm_find(RPI_REDUCE, names[form / 2], &algorithm));
        rpi_plan_request request = {.world = 2, .rank = 1, .root = 1, .mean = form % 2};
        rpi_routine *routine = NULL;
        REQUIRE_OK(rpi_routine_build(algorithm, &request, true, false, &routine));
        CHECK_EQ(routine->sums, 0);
        CHECK_EQ(actions_of(routine, RPI_STEP_ADD), 1);
        CHECK_EQ(actions_of(routine, RPI_STEP_COPY), 0);
        CHECK_EQ(actions_of(routine, RPI_STEP_DECODE), 0);
        rpi_routine_destroy(routine);
    }
}

static void building_may_run_out_of_memory(void) {
    const rpi_algorithm *ring = NULL;
    REQUIRE_OK(rpi_algorithm_find(RPI_ALL_REDUCE, "ring", &ring));
    rpi_plan_request request = {.world = 5, .rank = 1};
    rpi_routine *routine = NULL;
    rpi_memory_fail_after(0);
    REQUIRE_OK(rpi_routine_build(ring, &request, true, false, &routine));
    rpi_routine_destroy(routine);
    long allocations = rpi_memory_fail_after(0);
    for (long n = 1; n <= allocations; n++) {
        rpi_memory_fail_after(n);
        CHECK_EQ(rpi_routine_build(ring, &request, true, false, &routine), RP_NOMEM);
    }
    rpi_memory_fail_after(0);
}

CASES({"every action runs once", every_action_runs_once},
      {"receives are listed and encodings fused", receives_are_listed_and_encodings_fused},
      {"sra is fused as it should be", sra_is_fused_as_it_should_be},
      {"exact sums of two are one pass", exact_sums_of_two_are_one_pass},
      {"encodings are added in one pass", encodings_are_added_in_one_pass},
      {"a root of two adds in one pass", a_root_of_two_adds_in_one_pass},
      {"building may run out of memory", building_may_run_out_of_memory})
