/* Random lifetimes: what is alive together does not overlap, and the plan is no larger than
 * giving everybody a place of its own. */
#include "engine/memory_plan.h"
#include "harness/check.h"

#include "base/memory.h"
#include "base/rng.h"

#include <stdbool.h>

enum { BUFFERS = 60, STEPS = 40, ROUNDS = 200 };

static size_t padded(size_t bytes) {
    return (bytes + RPI_ALIGNMENT - 1) / RPI_ALIGNMENT * RPI_ALIGNMENT;
}

/* Reuses as a compiler makes them: at the step that first touches the output, of an input that
 * this step touches too; in the order of steps. */
static int make_reuses(rpi_rng *rng, const rpi_buffer *buffers, rpi_reuse *reuses) {
    int count = 0;
    for (int step = 0; step < STEPS; step++)
        for (int output = 0; output < BUFFERS; output++) {
            if (buffers[output].first != step || rpi_rng_below(rng, 3)) continue;
            int input = (int)rpi_rng_below(rng, BUFFERS);
            if (input != output && buffers[input].first < step && buffers[input].last >= step)
                reuses[count++] = (rpi_reuse){step, output, input};
        }
    return count;
}

static void draw(rpi_rng *rng, rpi_buffer *buffers) {
    for (int i = 0; i < BUFFERS; i++) {
        int first = (int)rpi_rng_below(rng, STEPS);
        int last = first + (int)rpi_rng_below(rng, (uint32_t)(STEPS - first));
        if (rpi_rng_below(rng, 20) == 0) first = last + 1; /* never touched */
        buffers[i] =
            (rpi_buffer){.bytes = 1 + rpi_rng_below(rng, 5000), .first = first, .last = last};
    }
}

static bool is_reuse(const rpi_reuse *reuses, int count, int output, int input, int step) {
    for (int i = 0; i < count; i++)
        if (reuses[i].output == output && reuses[i].input == input && reuses[i].step == step)
            return true;
    return false;
}

/* Two that overlap are never alive together, but for the step at which one takes over the
 * place. `alive` holds the lifetimes as they were drawn. */
static void check_pair(const rpi_buffer *plan, const rpi_buffer *alive, int a, int b,
                       const rpi_reuse *reuses, int reuse_count) {
    bool used = alive[a].first <= alive[a].last && alive[b].first <= alive[b].last;
    bool overlap = plan[a].arena == plan[b].arena &&
                   plan[a].offset < plan[b].offset + plan[b].bytes &&
                   plan[b].offset < plan[a].offset + plan[a].bytes;
    if (!used || !overlap || alive[a].last < alive[b].first || alive[b].last < alive[a].first)
        return;
    if (alive[a].last == alive[b].first)
        CHECK(is_reuse(reuses, reuse_count, b, a, alive[b].first));
    else if (alive[b].last == alive[a].first)
        CHECK(is_reuse(reuses, reuse_count, a, b, alive[a].first));
    else
        check_failed(__FILE__, __LINE__, "buffers %d and %d overlap", a, b);
}

static void random_lifetimes(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    for (int round = 0; round < ROUNDS; round++) {
        rpi_buffer buffers[BUFFERS], drawn[BUFFERS];
        rpi_reuse reuses[BUFFERS];
        size_t bytes[RPI_ARENAS], apart = 0, largest_step = 0;
        draw(&rng, buffers);
        int count = make_reuses(&rng, buffers, reuses);
        memcpy(drawn, buffers, sizeof drawn);
        REQUIRE_OK(rpi_memory_plan(buffers, BUFFERS, reuses, count, NULL, bytes));
        size_t total = bytes[RPI_ARENA_RUN];
        for (int a = 0; a < RPI_ARENAS; a++) CHECK(a == RPI_ARENA_RUN || bytes[a] == 0);
        for (int i = 0; i < BUFFERS; i++) {
            apart += padded(buffers[i].bytes);
            CHECK(buffers[i].offset % RPI_ALIGNMENT == 0);
            if (buffers[i].first <= buffers[i].last)
                CHECK(buffers[i].offset + buffers[i].bytes <= total);
            for (int j = 0; j < i; j++) check_pair(buffers, drawn, i, j, reuses, count);
        }
        for (int step = 0; step < STEPS; step++) {
            size_t alive = 0;
            for (int i = 0; i < BUFFERS; i++)
                if (buffers[i].shares == i && buffers[i].first <= step &&
                    buffers[i].last >= step)
                    alive += padded(buffers[i].bytes);
            if (alive > largest_step) largest_step = alive;
        }
        CHECK(total >= largest_step);
        CHECK(total <= apart);
        CHECK((double)total <= 1.5 * (double)largest_step);
    }
}

/* A chain of in-place steps takes one place; a value that is still needed keeps its own. */
static void in_place(void) {
    rpi_buffer buffers[] = {{.bytes = 100, .first = 0, .last = 1},
                            {.bytes = 100, .first = 1, .last = 2},
                            {.bytes = 100, .first = 2, .last = 4},
                            {.bytes = 100, .first = 3, .last = 4}};
    const rpi_reuse reuses[] = {{1, 1, 0}, {2, 2, 1}, {3, 3, 2}};
    size_t bytes[RPI_ARENAS];
    REQUIRE_OK(rpi_memory_plan(buffers, 4, reuses, 3, NULL, bytes));
    CHECK(buffers[1].offset == buffers[0].offset && buffers[2].offset == buffers[0].offset);
    CHECK(buffers[3].offset != buffers[2].offset);
    CHECK_EQ(bytes[RPI_ARENA_RUN], 256);
}

/* An output larger than its input does not fit into its place. */
static void larger_output(void) {
    rpi_buffer buffers[] = {{.bytes = 100, .first = 0, .last = 1},
                            {.bytes = 200, .first = 1, .last = 2}};
    const rpi_reuse reuses[] = {{1, 1, 0}};
    size_t bytes[RPI_ARENAS];
    REQUIRE_OK(rpi_memory_plan(buffers, 2, reuses, 1, NULL, bytes));
    CHECK(buffers[1].shares == 1);
    CHECK_EQ(bytes[RPI_ARENA_RUN], 128 + 256);
}

/* ---- arenas by passes ---- */

static int pass_of(const rpi_pass_ends *ends, int step) {
    return (step >= ends->forward_end) + (step >= ends->inputs_end);
}

/* Each lies where it is held as long as it is needed, and no longer than from the first pass
 * that touches it, or what it took its place over from, to the last one. */
static void check_arena(const rpi_buffer *plan, const rpi_pass_ends *ends, const size_t *bytes,
                        int i) {
    static const rpi_arena_kind kinds[3][3] = {
        {RPI_ARENA_PASSING, RPI_ARENA_TO_INPUTS, RPI_ARENA_RUN},
        {RPI_ARENAS, RPI_ARENA_PASSING, RPI_ARENA_BETWEEN},
        {RPI_ARENAS, RPI_ARENAS, RPI_ARENA_PASSING}};
    const rpi_buffer *root = &plan[plan[i].shares];
    if (plan[i].first > plan[i].last) return;
    CHECK_EQ(plan[i].arena, kinds[pass_of(ends, root->first)][pass_of(ends, root->last)]);
    CHECK(plan[i].offset + plan[i].bytes <= bytes[plan[i].arena]);
    CHECK(root->first <= plan[i].first && root->last >= plan[i].last);
}

static void random_passes(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int round = 0; round < ROUNDS; round++) {
        rpi_buffer buffers[BUFFERS], drawn[BUFFERS];
        rpi_reuse reuses[BUFFERS];
        size_t bytes[RPI_ARENAS], one[RPI_ARENAS], sum = 0;
        int forward = (int)rpi_rng_below(&rng, STEPS + 1);
        const rpi_pass_ends ends = {
            forward, forward + (int)rpi_rng_below(&rng, (uint32_t)(STEPS + 1 - forward))};
        draw(&rng, buffers);
        int count = make_reuses(&rng, buffers, reuses);
        memcpy(drawn, buffers, sizeof drawn);
        REQUIRE_OK(rpi_memory_plan(buffers, BUFFERS, reuses, count, &ends, bytes));
        for (int i = 0; i < BUFFERS; i++) {
            check_arena(buffers, &ends, bytes, i);
            for (int j = 0; j < i; j++) check_pair(buffers, drawn, i, j, reuses, count);
        }
        memcpy(buffers, drawn, sizeof buffers);
        REQUIRE_OK(rpi_memory_plan(buffers, BUFFERS, reuses, count, NULL, one));
        for (int a = 0; a < RPI_ARENAS; a++) sum += bytes[a];
        CHECK(bytes[RPI_ARENA_RUN] <= one[RPI_ARENA_RUN]);
        CHECK((double)sum <= 3.0 * (double)one[RPI_ARENA_RUN]);
    }
}

/* One of each kind. */
static void kinds_of_arenas(void) {
    rpi_buffer buffers[] = {
        {.bytes = 64, .first = 0, .last = 1},   {.bytes = 128, .first = 1, .last = 3},
        {.bytes = 256, .first = 0, .last = 5},  {.bytes = 512, .first = 2, .last = 4},
        {.bytes = 1024, .first = 3, .last = 3}, {.bytes = 2048, .first = 4, .last = 5}};
    static const rpi_arena_kind kinds[] = {RPI_ARENA_PASSING, RPI_ARENA_TO_INPUTS,
                                           RPI_ARENA_RUN,     RPI_ARENA_BETWEEN,
                                           RPI_ARENA_PASSING, RPI_ARENA_PASSING};
    size_t bytes[RPI_ARENAS];
    REQUIRE_OK(rpi_memory_plan(buffers, 6, NULL, 0, &(rpi_pass_ends){2, 4}, bytes));
    for (int i = 0; i < 6; i++) CHECK_EQ(buffers[i].arena, kinds[i]);
    CHECK_EQ(bytes[RPI_ARENA_RUN], 256);
    CHECK_EQ(bytes[RPI_ARENA_TO_INPUTS], 128);
    CHECK_EQ(bytes[RPI_ARENA_BETWEEN], 512);
    CHECK_EQ(bytes[RPI_ARENA_PASSING], 2048);
}

static void no_memory(void) {
    rpi_buffer buffer = {.bytes = 1, .first = 0, .last = 0};
    size_t bytes[RPI_ARENAS];
    rpi_memory_fail_after(1);
    CHECK_FAILS(rpi_memory_plan(&buffer, 1, NULL, 0, NULL, bytes), NOMEM, "memory plan");
    rpi_memory_fail_after(0);
}

CASES({"random_lifetimes", random_lifetimes}, {"in_place", in_place},
      {"random_passes", random_passes}, {"kinds_of_arenas", kinds_of_arenas},
      {"larger_output", larger_output}, {"no_memory", no_memory})
