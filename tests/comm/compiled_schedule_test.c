/* Every schedule of the catalogue, made ready to run: nothing is lost, nothing waits for ever.
 */
#include "comm/core/compiled_schedule.h"
#include "comm/core/neighborhood.h"

#include "base/memory.h"
#include "harness/check.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 17 };

static void each_compiled(void (*check)(const rpi_compiled_schedule *compiled)) {
    for (int a = 0; rpi_algorithm_at(a); a++) {
        const rpi_algorithm *algorithm = rpi_algorithm_at(a);
        for (int world = 1; world <= MOST_RANKS; world++)
            for (int rank = 0; rank < world && rpi_algorithm_fits(algorithm, world); rank++)
                for (int form = 0; form < 8; form++) {
                    rpi_plan_request request = {
                        .world = world, .rank = rank, .root = world / 2, .mean = form / 4};
                    rpi_compiled_schedule *compiled = NULL;
                    REQUIRE_OK(rpi_schedule_compile(algorithm, &request, form % 2, form / 2 % 2,
                                                    &compiled));
                    check(compiled);
                    rpi_compiled_destroy(compiled);
                }
    }
}

/* Running whatever is ready, in any order, reaches every instruction once. */
static void run_to_the_end(const rpi_compiled_schedule *compiled) {
    int count = compiled->schedule.count, ran = 0;
    uint16_t *waits = calloc((size_t)count + 1, sizeof *waits);
    bool *done = calloc((size_t)count + 1, sizeof *done);
    for (int i = 0; i < count; i++) waits[i] = compiled->instruction[i].waits;
    for (int start = 0, moved = 1; moved; start = 7 * start + 3) {
        moved = 0;
        for (int k = 0; k < count; k++) {
            int i = (k + start % count) % count;
            const rpi_instruction *instruction = &compiled->instruction[i];
            if (done[i] || waits[i] || instruction->fused) continue;
            done[i] = true;
            moved = 1;
            ran++;
            for (int n = 0; n < instruction->nexts; n++)
                waits[compiled->next[instruction->first_next + n]]--;
        }
    }
    CHECK_MSG(ran == compiled->instructions, "%s, rank %d of %d: %d of %d instructions ran",
              compiled->schedule.algorithm->name, compiled->schedule.rank,
              compiled->schedule.world, ran, compiled->instructions);
    free(waits);
    free(done);
}

static void every_instruction_runs_once(void) {
    each_compiled(run_to_the_end);
}

static void check_lists(const rpi_compiled_schedule *compiled) {
    const rpi_schedule *schedule = &compiled->schedule;
    int recvs = 0, fused = 0, encoding = 0, of_two = 0;
    for (int i = 0; i < schedule->count; i++) {
        recvs += compiled->instruction[i].kind == RPI_STEP_RECV;
        fused += compiled->instruction[i].fused;
        encoding += compiled->instruction[i].encodes;
        of_two += compiled->instruction[i].first != RPI_NO_SLOT;
        if (compiled->instruction[i].encodes)
            CHECK(compiled->instruction[i].from < RPI_SLOT_RTR);
    }
    CHECK_EQ(compiled->first_recv[schedule->world], recvs);
    if (!compiled->plain) CHECK_EQ(fused, encoding + of_two);
    CHECK_EQ(compiled->instructions, schedule->count - fused);
    for (int peer = 0; peer < schedule->world; peer++)
        for (int k = compiled->first_recv[peer]; k < compiled->first_recv[peer + 1]; k++) {
            CHECK_EQ(compiled->instruction[compiled->recvs[k]].peer, peer);
            CHECK(k == compiled->first_recv[peer] ||
                  compiled->recvs[k - 1] < compiled->recvs[k]);
        }
}

static void receives_are_listed_and_encodings_fused(void) {
    each_compiled(check_lists);
}

/* What the zero-copy paths rest on: SRA's contributions go straight to the wire, and its sum
 * may stay where it is while it is sent. */
static void sra_is_fused_as_it_should_be(void) {
    const rpi_algorithm *sra = NULL;
    REQUIRE_OK(rpi_algorithm_find(RPI_ALL_REDUCE, "sra", &sra));
    rpi_plan_request request = {.world = 4, .rank = 2};
    rpi_compiled_schedule *compiled = NULL;
    REQUIRE_OK(rpi_schedule_compile(sra, &request, false, false, &compiled));
    int straight = 0, lasting = 0;
    for (int i = 0; i < compiled->schedule.count; i++)
        straight +=
            compiled->instruction[i].encodes && compiled->instruction[i].from == RPI_SLOT_IN;
    for (int w = 0; w < compiled->schedule.encoded_slots; w++)
        lasting += compiled->encoded_slots[w].source == RPI_SLOT_SUM &&
                   compiled->encoded_slots[w].readers == 4;
    CHECK_EQ(straight, 3);
    CHECK_EQ(lasting, 1);
    CHECK_EQ(compiled->sums, 1);
    rpi_compiled_destroy(compiled);
}

static int instructions_of(const rpi_compiled_schedule *compiled, rpi_step_kind kind) {
    int count = 0;
    for (int i = 0; i < compiled->schedule.count; i++)
        count += compiled->instruction[i].kind == kind && !compiled->instruction[i].fused;
    return count;
}

/* What a rank does to memory: it sends its half of the other's, adds and sends its own, and
 * takes the other's sum. No accumulator, no copy. */
static void check_pair(const char *name, int rank, bool mean) {
    const rpi_algorithm *algorithm = NULL;
    REQUIRE_OK(rpi_algorithm_find(RPI_ALL_REDUCE, name, &algorithm));
    rpi_plan_request request = {.world = 2, .rank = rank, .mean = mean};
    rpi_compiled_schedule *compiled = NULL;
    REQUIRE_OK(rpi_schedule_compile(algorithm, &request, true, false, &compiled));
    bool halves = compiled->schedule.parts == 2;
    CHECK_EQ(compiled->sums, 0);
    CHECK_EQ(instructions_of(compiled, RPI_STEP_ADD), 1);
    CHECK_EQ(instructions_of(compiled, RPI_STEP_COPY), 0);
    CHECK_EQ(instructions_of(compiled, RPI_STEP_ENCODE), 0);
    CHECK_EQ(instructions_of(compiled, RPI_STEP_SEND), halves ? 2 : 1);
    CHECK_EQ(instructions_of(compiled, RPI_STEP_DECODE), halves ? 1 : 0);
    rpi_compiled_destroy(compiled);
}

/* An encoding is added to the rank's own values without a copy or an addition of its own; on a
 * GPU the two stay apart, each where its values lie. */
static void encodings_are_added_in_one_pass(void) {
    const rpi_algorithm *sra = NULL;
    REQUIRE_OK(rpi_algorithm_find(RPI_ALL_REDUCE, "sra", &sra));
    for (int form = 0; form < 4; form++) {
        rpi_plan_request request = {.world = 2, .rank = form % 2};
        rpi_compiled_schedule *compiled = NULL;
        bool device = form / 2;
        REQUIRE_OK(rpi_schedule_compile(sra, &request, false, device, &compiled));
        int begins = instructions_of(compiled, RPI_STEP_COPY) +
                     instructions_of(compiled, RPI_STEP_DECODE) +
                     instructions_of(compiled, RPI_STEP_ADD);
        CHECK_EQ(begins, device ? 4 : 3); /* two are the sums' way into OUT */
        CHECK_EQ(compiled->sums, 1);
        rpi_compiled_destroy(compiled);
    }
}

static void exact_sums_of_two_are_one_pass(void) {
    static const char *const names[] = {"sra", "oneshot", "ring", "halving", "doubling"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (int form = 0; form < 4; form++) check_pair(names[n], form / 2, form % 2);
}

/* The frame that comes is the first encoded slot of all. */
static void a_root_of_two_adds_in_one_pass(void) {
    static const char *const names[] = {"tree", "direct"};
    for (int form = 0; form < 4; form++) {
        const rpi_algorithm *algorithm = NULL;
        REQUIRE_OK(rpi_algorithm_find(RPI_REDUCE, names[form / 2], &algorithm));
        rpi_plan_request request = {.world = 2, .rank = 1, .root = 1, .mean = form % 2};
        rpi_compiled_schedule *compiled = NULL;
        REQUIRE_OK(rpi_schedule_compile(algorithm, &request, true, false, &compiled));
        CHECK_EQ(compiled->sums, 0);
        CHECK_EQ(instructions_of(compiled, RPI_STEP_ADD), 1);
        CHECK_EQ(instructions_of(compiled, RPI_STEP_COPY), 0);
        CHECK_EQ(instructions_of(compiled, RPI_STEP_DECODE), 0);
        rpi_compiled_destroy(compiled);
    }
}

static void building_may_run_out_of_memory(void) {
    const rpi_algorithm *ring = NULL;
    REQUIRE_OK(rpi_algorithm_find(RPI_ALL_REDUCE, "ring", &ring));
    rpi_plan_request request = {.world = 5, .rank = 1};
    rpi_compiled_schedule *compiled = NULL;
    rpi_memory_fail_after(0);
    REQUIRE_OK(rpi_schedule_compile(ring, &request, true, false, &compiled));
    rpi_compiled_destroy(compiled);
    long allocations = rpi_memory_fail_after(0);
    for (long n = 1; n <= allocations; n++) {
        rpi_memory_fail_after(n);
        CHECK_EQ(rpi_schedule_compile(ring, &request, true, false, &compiled), RP_NOMEM);
    }
    rpi_memory_fail_after(0);
}

/* ---- neighbourhoods, of rank 4 of 20 ---- */

enum { SELF = 4, WORLD = 20, NEIGHBORS = 12 };

/* `count` ranks from `first` on, without rank 4, the last one first; all by `weight`. */
static size_t fill_list(rp_neighbor *list, int first, int count, double weight) {
    for (int i = 0, rank = first; i < count; rank++)
        if (rank != SELF) list[count - 1 - i++] = (rp_neighbor){rank, weight};
    return (size_t)count;
}

/* Add a row: so many neighbours, and what is said of them. */
static const struct {
    int first_source, sources, first_destination, destinations;
    const char *text;
} neighborhoods[] = {
    {0, 0, 0, 0, "expects vectors from none and sends to none"},
    {3, 1, 7, 1, "expects vectors from rank 3 and sends to rank 7"},
    {3, 2, 0, 0, "expects vectors from ranks 3 and 5 and sends to none"},
    {0, 0, 3, 3, "expects vectors from none and sends to ranks 3, 5 and 6"},
    {5, 2, 1, 2, "expects vectors from ranks 5 and 6 and sends to ranks 1 and 2"},
    {0, 8, 5, 8,
     "expects vectors from ranks 0, 1, 2, 3, 5, 6, 7 and 8 and sends to ranks 5, 6, 7, 8, 9, "
     "10, 11 and 12"},
    {0, 9, 5, 12,
     "expects vectors from ranks 0, 1, 2, 3, 5, 6, 7, 8 and 1 more and sends to ranks 5, 6, 7, "
     "8, 9, 10, 11, 12 and 4 more"},
};

static void neighborhoods_are_told_and_found(void) {
    rpi_neighborhood made = {0};
    for (size_t i = 0; i < sizeof neighborhoods / sizeof neighborhoods[0]; i++) {
        rp_neighbor from[NEIGHBORS], to[NEIGHBORS];
        char text[256];
        int sources = neighborhoods[i].sources;
        double weight = 1.0 / (sources + 1);
        rp_neighbors lists = {
            .sources = from, .destinations = to, .self_weight = weight + weight / 1e10};
        lists.source_count =
            fill_list(from, neighborhoods[i].first_source, sources, weight - weight / 1e10);
        lists.destination_count =
            fill_list(to, neighborhoods[i].first_destination, neighborhoods[i].destinations, 1);
        REQUIRE_OK(rpi_neighborhood_make(&made, SELF, WORLD, &lists));
        CHECK(made.divides); /* as good as the same */
        rpi_neighborhood_text(&made, text, sizeof text);
        CHECK_MSG(strcmp(text, neighborhoods[i].text) == 0, "%s", text);
        CHECK_EQ(made.places[made.self].rank, SELF);
        CHECK(rpi_neighborhood_source(&made, SELF) == -1);
        CHECK(rpi_neighborhood_destination(&made, SELF) == -1);
        for (size_t k = 0; k < lists.source_count; k++) {
            int place = rpi_neighborhood_source(&made, from[k].rank);
            CHECK(place >= 0 && place <= sources && made.places[place].rank == from[k].rank);
        }
        for (size_t k = 0; k < lists.destination_count; k++) {
            int place = rpi_neighborhood_destination(&made, to[k].rank);
            CHECK(place > sources && made.places[place].rank == to[k].rank);
        }
        lists.self_weight = weight * (1 + 1e-8);
        REQUIRE_OK(rpi_neighborhood_make(&made, SELF, WORLD, &lists));
        CHECK(!made.divides);
    }
    rpi_neighborhood_free(&made);
}

/* A compiled schedule serves again for what has the same form: as many neighbours, the same
 * place among them, the same way of weighing, the same memory. */
static void compiled_neighborhoods_serve_again_by_form(void) {
    static const struct {
        int first_source, sources, destinations;
        double self_weight;
        bool device, fits;
    } others[] = {
        {2, 2, 3, 1.0 / 3, false, true},  {1, 2, 3, 1.0 / 3, false, true},
        {3, 2, 3, 1.0 / 3, false, false}, {2, 2, 2, 1.0 / 3, false, false},
        {2, 2, 3, 0.5, false, false},     {2, 2, 3, 1.0 / 3, true, false},
        {2, 3, 2, 0.25, false, false},
    };
    rpi_neighborhood made = {0};
    rpi_compiled_schedule *compiled = NULL;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        rp_neighbor from[NEIGHBORS], to[NEIGHBORS];
        rp_neighbors lists = {
            .sources = from, .destinations = to, .self_weight = others[i].self_weight};
        int sources = others[i].sources;
        lists.source_count =
            fill_list(from, others[i].first_source, sources, 1.0 / (sources + 1));
        lists.destination_count = fill_list(to, 7, others[i].destinations, 1);
        REQUIRE_OK(rpi_neighborhood_make(&made, SELF, WORLD, &lists));
        if (!compiled) REQUIRE_OK(rpi_neighborhood_compiled_schedule(&made, false, &compiled));
        CHECK_MSG(rpi_neighborhood_fits(&made, others[i].device, compiled) == others[i].fits,
                  "row %zu", i);
    }
    rpi_compiled_destroy(compiled);
    rpi_neighborhood_free(&made);
}

CASES({"every instruction runs once", every_instruction_runs_once},
      {"receives are listed and encodings fused", receives_are_listed_and_encodings_fused},
      {"sra is fused as it should be", sra_is_fused_as_it_should_be},
      {"exact sums of two are one pass", exact_sums_of_two_are_one_pass},
      {"encodings are added in one pass", encodings_are_added_in_one_pass},
      {"a root of two adds in one pass", a_root_of_two_adds_in_one_pass},
      {"building may run out of memory", building_may_run_out_of_memory},
      {"neighborhoods are told and found", neighborhoods_are_told_and_found},
      {"compiled neighborhoods serve again by form",
       compiled_neighborhoods_serve_again_by_form})
