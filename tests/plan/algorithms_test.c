#include "base/memory.h"
#include "harness/check.h"
#include "plan/algorithms.h"
#include "plan/schedule.h"

#include <stdlib.h>

static void names_are_found_and_unique(void) {
    const rpi_algorithm *algorithm;
    for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++) {
        const rpi_algorithm *found = NULL;
        REQUIRE_OK(rpi_algorithm_find(algorithm->collective, algorithm->name, &found));
        CHECK(found == algorithm);
        CHECK(algorithm->summary && algorithm->summary[0]);
    }
    CHECK(!rpi_algorithm_at(-1));
}

static void every_collective_has_an_algorithm(void) {
    for (int collective = 0; collective < RPI_COLLECTIVES; collective++) {
        const rpi_algorithm *algorithm;
        int count = 0;
        for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++)
            count += (int)algorithm->collective == collective;
        CHECK_MSG(count > 0, "%s has none", rpi_collective_name((rpi_collective)collective));
    }
    CHECK(strcmp(rpi_collective_name(RPI_COLLECTIVE_KINDS), "unknown") == 0);
    CHECK(strcmp(rpi_step_name(RPI_STEP_KINDS), "unknown") == 0);
}

static void unknown_names_get_a_suggestion(void) {
    const rpi_algorithm *found = NULL;
    CHECK_FAILS(rpi_algorithm_find(RPI_ALL_REDUCE, "rign", &found), NOT_FOUND,
                "no all-reduce algorithm 'rign' (there is: sra, ring, two-level, halving, "
                "doubling, oneshot, star); did you mean 'ring'?");
    CHECK_FAILS(rpi_algorithm_find(RPI_BROADCAST, "sra", &found), NOT_FOUND,
                "(there is: tree, scatter, two-level)");
    CHECK(!found);
}

static void bad_requests_are_refused(void) {
    static const struct {
        int world, rank, root;
        const char *words;
    } bad[] = {
        {0, 0, 0, "world is 0"}, {-1, 0, 0, "world is -1"}, {1 << 20, 0, 0, "world is 1048576"},
        {4, 4, 0, "rank 4"},     {4, -1, 0, "rank -1"},     {4, 0, 4, "root 4"},
        {4, 0, -1, "root -1"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rpi_plan_request request = {
            .world = bad[i].world, .rank = bad[i].rank, .root = bad[i].root};
        rpi_schedule schedule = {.count = 1};
        CHECK_FAILS(rpi_schedule_build(&rpi_algorithm_ring, &request, &schedule), INVALID,
                    bad[i].words);
        CHECK(schedule.count == 0 && !schedule.steps);
    }
    rpi_plan_request three = {.world = 3};
    rpi_schedule schedule;
    CHECK_FAILS(rpi_schedule_build(&rpi_algorithm_rendezvous, &three, &schedule), UNSUPPORTED,
                "world of 3");
}

/* A schedule is a handful of steps for each rank, and its order a handful of edges a step. */
static void schedules_are_small(void) {
    const rpi_algorithm *algorithm;
    for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++) {
        for (int world = 1; world <= 1024; world *= 4) {
            if (!rpi_algorithm_fits(algorithm, world)) continue;
            rpi_plan_request request = {.world = world, .rank = world / 2};
            rpi_schedule schedule;
            REQUIRE_OK(rpi_schedule_build(algorithm, &request, &schedule));
            CHECK(schedule.count <= 8 * world && schedule.encoded_slots <= 3 * world);
            CHECK(schedule.next_first[schedule.count] <= 3 * schedule.count);
            rpi_schedule_destroy(&schedule);
        }
    }
}

/* What people read of a schedule, and where an error says that it came to. */
static void check_rounds(const rpi_algorithm *algorithm, int world, const int *host_of) {
    enum { MOST = 64 };
    bool seen[MOST] = {false};
    int rounds = 0;
    for (int rank = 0; rank < world; rank++) {
        rpi_plan_request request = {.world = world, .rank = rank, .host_of = host_of};
        rpi_schedule schedule;
        REQUIRE_OK(rpi_schedule_build(algorithm, &request, &schedule));
        REQUIRE(schedule.rounds <= MOST);
        if (schedule.rounds > rounds) rounds = schedule.rounds;
        for (int k = 0; k < schedule.count; k++) seen[schedule.steps[k].round] = true;
        rpi_schedule_destroy(&schedule);
    }
    for (int round = 0; round < rounds; round++)
        CHECK_MSG(seen[round], "%s %s, world %d: nothing in round %d of %d",
                  rpi_collective_name(algorithm->collective), algorithm->name, world, round,
                  rounds);
}

static void rounds_are_counted_without_gaps(void) {
    static const int pairs[] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}, one[12];
    const rpi_algorithm *algorithm;
    for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++)
        for (int world = 1; world <= 12; world++) {
            if (!rpi_algorithm_fits(algorithm, world)) continue;
            check_rounds(algorithm, world, NULL);
            check_rounds(algorithm, world, pairs);
            check_rounds(algorithm, world, one);
        }
}

static void a_world_of_one_sends_nothing(void) {
    const rpi_algorithm *algorithm;
    for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++) {
        if (!rpi_algorithm_fits(algorithm, 1)) continue;
        rpi_plan_request request = {.world = 1};
        rpi_schedule schedule;
        REQUIRE_OK(rpi_schedule_build(algorithm, &request, &schedule));
        for (int k = 0; k < schedule.count; k++) CHECK_EQ(schedule.steps[k].peer, -1);
        rpi_schedule_destroy(&schedule);
    }
}

static void peers_are_visited_in_staggered_order(void) {
    rpi_plan_request request = {.world = 4, .rank = 2};
    rpi_schedule schedule;
    int sends = 0, wanted[] = {3, 0, 1, 3, 0, 1};
    REQUIRE_OK(rpi_schedule_build(&rpi_algorithm_sra, &request, &schedule));
    for (int k = 0; k < schedule.count; k++)
        if (schedule.steps[k].kind == RPI_STEP_SEND && sends < 6)
            CHECK_EQ(schedule.steps[k].peer, wanted[sends++]);
    CHECK_EQ(sends, 6);
    rpi_schedule_destroy(&schedule);
}

/* In round d of an all-to-all every rank sends to one and receives from one, all different. */
static void all_to_all_goes_in_pairs(void) {
    enum { WORLD = 6 };
    int from[WORLD][WORLD] = {{0}};
    for (int rank = 0; rank < WORLD; rank++) {
        rpi_plan_request request = {.world = WORLD, .rank = rank};
        rpi_schedule schedule;
        REQUIRE_OK(rpi_schedule_build(&rpi_algorithm_pairwise, &request, &schedule));
        CHECK_EQ(schedule.parts, 2 * WORLD);
        for (int k = 0; k < schedule.count; k++) {
            const rpi_step *step = &schedule.steps[k];
            if (step->kind == RPI_STEP_RECV) CHECK_EQ(step->part, WORLD + step->round);
            if (step->kind != RPI_STEP_SEND) continue;
            CHECK_EQ(step->part, step->round);
            CHECK_EQ(step->peer, (rank + step->round) % WORLD);
            from[step->round][step->peer]++;
        }
        rpi_schedule_destroy(&schedule);
    }
    for (int round = 1; round < WORLD; round++)
        for (int peer = 0; peer < WORLD; peer++) CHECK_EQ(from[round][peer], 1);
}

/* May b start before a has ended? By the definition in plan.h, not by the graph. */
static bool ordered(const rpi_schedule *schedule, int a, int b) {
    const rpi_step *x = &schedule->steps[a], *y = &schedule->steps[b];
    if (x->kind == RPI_STEP_FENCE || y->kind == RPI_STEP_FENCE) return true;
    if (x->peer >= 0 && x->peer == y->peer && x->kind == y->kind) return true;
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            bool x_has = i ? x->kind != RPI_STEP_SEND : x->kind != RPI_STEP_RECV;
            bool y_has = j ? y->kind != RPI_STEP_SEND : y->kind != RPI_STEP_RECV;
            int s = i ? x->into : x->from, t = j ? y->into : y->from;
            if (!x_has || !y_has || (!i && !j)) continue;
            bool caller = s <= RPI_SLOT_OUT && t <= RPI_SLOT_OUT;
            bool token = s == RPI_SLOT_RTR && t == RPI_SLOT_RTR;
            if (token || ((caller || s == t) && x->part == y->part)) return true;
        }
    }
    return false;
}

/* The graph reaches b from a, if they are ordered; and only then has it an edge. */
static void the_graph_is_the_order(void) {
    const rpi_algorithm *algorithm;
    for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++) {
        rpi_plan_request request = {.world = rpi_algorithm_fits(algorithm, 6) ? 6 : 2};
        rpi_schedule it;
        REQUIRE_OK(rpi_schedule_build(algorithm, &request, &it));
        int *waits = calloc((size_t)it.count, sizeof *waits);
        bool *reached = calloc((size_t)it.count, sizeof *reached);
        for (int a = 0; a < it.count; a++) {
            memset(reached, 0, (size_t)it.count * sizeof *reached);
            reached[a] = true;
            for (int b = a; b < it.count; b++) {
                CHECK_MSG(reached[b] || !ordered(&it, a, b), "%s: step %d may pass step %d",
                          algorithm->name, b, a);
                for (int k = it.next_first[b]; reached[b] && k < it.next_first[b + 1]; k++)
                    reached[it.next[k]] = true;
            }
            for (int k = it.next_first[a]; k < it.next_first[a + 1]; k++) {
                CHECK(it.next[k] > a && ordered(&it, a, it.next[k]));
                waits[it.next[k]]++;
            }
        }
        for (int a = 0; a < it.count; a++) CHECK_EQ(waits[a], it.waits[a]);
        free(waits);
        free(reached);
        rpi_schedule_destroy(&it);
    }
}

static void bad_shapes_are_named(void) {
    static const struct {
        rpi_step step;
        const char *words;
    } bad[] = {
        {{.kind = RPI_STEP_KINDS, .peer = -1}, "unknown kind"},
        {{.kind = RPI_STEP_ENCODE, .from = RPI_SLOT_OUT, .into = RPI_SLOT_ENCODED, .peer = -1},
         "cannot read slot 1"},
        {{.kind = RPI_STEP_ENCODE, .from = RPI_SLOT_IN, .into = RPI_SLOT_SUM, .peer = -1},
         "cannot write slot 2"},
        {{.kind = RPI_STEP_ENCODE, .into = RPI_SLOT_ENCODED + 99, .peer = -1},
         "cannot write slot"},
        {{.kind = RPI_STEP_ENCODE, .role = 2, .into = RPI_SLOT_ENCODED, .peer = -1}, "role 2"},
        {{.kind = RPI_STEP_ENCODE, .into = RPI_SLOT_ENCODED, .peer = 1}, "peer 1"},
        {{.kind = RPI_STEP_COPY, .from = RPI_SLOT_SUM, .into = RPI_SLOT_SUM, .peer = -1},
         "to itself"},
        {{.kind = RPI_STEP_ENCODE, .into = RPI_SLOT_ENCODED, .peer = -1, .weight = {1, 2}},
         "weight 1/2"},
        {{.kind = RPI_STEP_ENCODE, .into = RPI_SLOT_ENCODED, .peer = -1, .weight = {1, 0}},
         "weight 1/0"}, /* the first of a call's */
        {{.kind = RPI_STEP_COPY, .into = RPI_SLOT_SUM, .peer = -1, .weight = {-1, 0}},
         "weight -1/0 is none"},
        {{.kind = RPI_STEP_COPY, .into = RPI_SLOT_SUM, .peer = -1, .weight = {0, 2}},
         "weight 0/2 is none"},
        {{.kind = RPI_STEP_COPY, .into = RPI_SLOT_SUM, .peer = -1, .weight = {1, -2}},
         "weight 1/-2 is none"},
        {{.kind = RPI_STEP_COPY, .into = RPI_SLOT_OUT, .part = 4, .peer = -1}, "4 parts"},
        {{.kind = RPI_STEP_COPY, .into = RPI_SLOT_OUT, .part = -1, .peer = -1}, "4 parts"},
        {{.kind = RPI_STEP_SEND, .from = RPI_SLOT_RTR, .peer = 0}, "peer 0"},
        {{.kind = RPI_STEP_SEND, .from = RPI_SLOT_RTR, .peer = 4}, "peer 4"},
        {{.kind = RPI_STEP_SEND, .from = RPI_SLOT_ENCODED, .peer = 1}, "does not hold"},
        {{.kind = RPI_STEP_RECV, .into = RPI_SLOT_IN, .peer = 1}, "cannot write slot 0"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rpi_plan_request request = {.world = 4};
        rpi_schedule schedule;
        REQUIRE_OK(rpi_schedule_build(&rpi_algorithm_sra, &request, &schedule));
        schedule.steps[0] = bad[i].step;
        CHECK_FAILS(rpi_schedule_check_shape(&schedule), INTERNAL, bad[i].words);
        rpi_schedule_destroy(&schedule);
    }
}

static void a_wire_slot_is_written_once(void) {
    rpi_plan_request request = {.world = 4};
    rpi_schedule schedule;
    REQUIRE_OK(rpi_schedule_build(&rpi_algorithm_sra, &request, &schedule));
    schedule.steps[2].into = schedule.steps[0].into;
    CHECK_FAILS(rpi_schedule_check_shape(&schedule), INTERNAL, "written twice");
    rpi_schedule_destroy(&schedule);
    rpi_schedule_destroy(&schedule);
    rpi_schedule_destroy(NULL);
}

static void the_table_shows_every_step(void) {
    const rpi_algorithm *algorithm;
    for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++) {
        rpi_plan_request request = {.world = rpi_algorithm_fits(algorithm, 4) ? 4 : 2,
                                    .mean = true};
        rpi_schedule schedule;
        REQUIRE_OK(rpi_schedule_build(algorithm, &request, &schedule));
        char *text = NULL;
        size_t bytes = 0;
        FILE *stream = open_memstream(&text, &bytes);
        rpi_schedule_print(stream, &schedule);
        fclose(stream);
        int lines = 0;
        for (const char *c = text; *c; c++) lines += *c == '\n';
        CHECK_EQ(lines, schedule.count + 2);
        CHECK(strstr(text, algorithm->name) != NULL);
        CHECK(rpi_collective_has_root(algorithm->collective) ==
              (strstr(text, ", root 0") != NULL));
        if (algorithm == &rpi_algorithm_sra) {
            CHECK(strstr(text, "    0  encode     1  in -> wire 0\n") != NULL);
            CHECK(strstr(text, "copy       0  1/4 sum -> sum\n") != NULL);
        }
        free(text);
        rpi_schedule_destroy(&schedule);
    }
}

static void memory_failing_anywhere_is_reported(void) {
    const rpi_algorithm *algorithm;
    for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++) {
        rpi_plan_request request = {.world = rpi_algorithm_fits(algorithm, 9) ? 9 : 2};
        rp_status status = RP_NOMEM;
        for (long n = 1; status != RP_OK && n < 100; n++) {
            rpi_schedule schedule;
            rpi_memory_fail_after(n);
            status = rpi_schedule_build(algorithm, &request, &schedule);
            rpi_memory_fail_after(0);
            CHECK(status == RP_OK || status == RP_NOMEM);
            rpi_schedule_destroy(&schedule);
        }
        CHECK_EQ(status, RP_OK);
    }
}

CASES({"names are found and unique", names_are_found_and_unique},
      {"every collective has an algorithm", every_collective_has_an_algorithm},
      {"unknown names get a suggestion", unknown_names_get_a_suggestion},
      {"bad requests are refused", bad_requests_are_refused},
      {"schedules are small", schedules_are_small},
      {"rounds are counted without gaps", rounds_are_counted_without_gaps},
      {"a world of one sends nothing", a_world_of_one_sends_nothing},
      {"peers are visited in staggered order", peers_are_visited_in_staggered_order},
      {"all-to-all goes in pairs", all_to_all_goes_in_pairs},
      {"the graph is the order", the_graph_is_the_order},
      {"bad shapes are named", bad_shapes_are_named},
      {"a wire slot is written once", a_wire_slot_is_written_once},
      {"the table shows every step", the_table_shows_every_step},
      {"memory failing anywhere is reported", memory_failing_anywhere_is_reported})
