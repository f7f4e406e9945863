/* Every legal layout is tried, and the fastest that fit come first. */
#include "plan/foresight/layout_search.h"

#include "base/memory.h"
#include "plan/foresight/trainings.h"

static const rpi_open_choices all_open = {true, true, true, true, true, true, true};

/* The same by plain loops over everything. */
static double fastest_of_all(const rpi_machine *m, int64_t ranks, int64_t *out_fitting) {
    double best = INFINITY;
    for (int64_t code = 0; code < ranks * ranks * 4 * 6 * 2; code++) {
        rpi_training_layout l = small_gpt();
        rpi_forecast f;
        l.tensor = 1 + code % ranks;
        l.pipeline = 1 + code / ranks % ranks;
        l.zero = (int)(code / ranks / ranks % 4);
        l.micro_batch = 1 << (code / ranks / ranks / 4 % 6);
        l.recompute = code / ranks / ranks / 24 ? RPI_RECOMPUTE_FULL : RPI_RECOMPUTE_NONE;
        if (ranks % (l.tensor * l.pipeline) || l.tensor > m->ranks_per_host) continue;
        l.data = ranks / l.tensor / l.pipeline;
        if (l.zero > (l.data == 1 ? 0 : l.pipeline > 1 ? 1 : 3)) continue;
        if (rpi_layout_check(&l) != RP_OK || rpi_forecast_step(&l, m, &f) != RP_OK) continue;
        if (!f.fits) continue;
        ++*out_fitting;
        best = fmin(best, f.step_s);
    }
    return best;
}

static void the_best_of_all_is_found(void) {
    rpi_training_layout l = small_gpt();
    rpi_found_layouts found;
    int64_t fitting = 0;
    rpi_machine m = perfect_machine(4);
    m.device.facts[RPI_FACT_GEMM_HALF_SIDE].value = 300;
    m.device.facts[RPI_FACT_MEMORY_BYTES].value = 1e9; /* so that many do not fit */
    REQUIRE_OK(rpi_layouts_search(&l, &all_open, &m, 8, 5, &found));
    CHECK_EQ(found.count, 5);
    CHECK(found.fitting < found.tried);
    CHECK_NEAR(found.best[0].forecast.step_s, fastest_of_all(&m, 8, &fitting), 1e-15);
    CHECK_EQ(found.fitting, fitting);
    for (int i = 0; i < found.count; i++) {
        CHECK(found.best[i].forecast.fits && rpi_layout_ranks(&found.best[i].layout) == 8);
        CHECK(i == 0 || found.best[i].forecast.step_s >= found.best[i - 1].forecast.step_s);
    }
    rpi_free(found.best);
}

static void what_is_said_stays(void) {
    rpi_training_layout l = small_gpt();
    rpi_found_layouts found;
    rpi_open_choices open = {.micro_batch = true};
    rpi_machine m = perfect_machine(4);
    l.tensor = 2;
    l.pipeline = 2;
    l.data = 2;
    l.zero = 1;
    REQUIRE_OK(rpi_layouts_search(&l, &open, &m, 8, 100, &found));
    CHECK_EQ(found.tried, 5); /* micro-batches of 1 to 16 */
    for (int i = 0; i < found.count; i++)
        CHECK(found.best[i].layout.tensor == 2 && found.best[i].layout.pipeline == 2 &&
              found.best[i].layout.zero == 1);
    rpi_free(found.best);
}

static void where_nothing_fits_the_smallest_is_known(void) {
    rpi_training_layout l = small_gpt();
    rpi_found_layouts found;
    rpi_machine m = perfect_machine(4);
    m.device.facts[RPI_FACT_MEMORY_BYTES].value = 1e3;
    REQUIRE_OK(rpi_layouts_search(&l, &all_open, &m, 8, 5, &found));
    CHECK(found.count == 0 && found.fitting == 0 && found.tried > 0);
    CHECK(found.least.forecast.memory.all > 1e3);
    rpi_free(found.best);
}

static void where_nothing_is_legal_the_reason_is_said(void) {
    rpi_training_layout l = small_gpt();
    rpi_found_layouts found;
    rpi_open_choices open = {.pipeline = true, .data = true};
    rpi_machine m = perfect_machine(4);
    l.tensor = 3;
    CHECK_FAILS(rpi_layouts_search(&l, &open, &m, 8, 5, &found), INVALID,
                "no layout of 8 ranks is legal: --tp 3 does not divide them");
    rpi_open_choices none = {0};
    l.tensor = 2;
    l.pipeline = 8;
    l.data = 1;
    CHECK_FAILS(rpi_layouts_search(&l, &none, &m, 8, 5, &found), INVALID,
                "--tp 2 times --pp 8 times --dp 1 does not divide them");
    l.pipeline = 1;
    CHECK_FAILS(rpi_layouts_search(&l, &none, &m, 8, 5, &found), INVALID,
                "no layout of 8 ranks is legal: --tp, --cp, --pp and --dp");
    l.data = 8;
    l.tensor = 1;
    l.global_batch = 7;
    open.pipeline = false;
    CHECK_FAILS(rpi_layouts_search(&l, &open, &m, 8, 5, &found), INVALID,
                "no layout of 8 ranks is legal: --dp 8 does not divide the global batch of 7");
    (void)rpi_memory_fail_after(1);
    CHECK_FAILS(rpi_layouts_search(&l, &all_open, &m, 8, 5, &found), NOMEM, "layouts");
    (void)rpi_memory_fail_after(0);
}

/* ---- the table: add a row. Where several numbers are open the reason is of what was said ----
 */

static void the_reason_is_of_what_was_said(void) {
    static const struct {
        int64_t ranks, interleave, global_batch, micro_batch; /* 0: open */
        const char *message;
    } rows[] = {
        {8, 99, 64, 0, "--pp 2 with --interleave 99: 198 chunks are more than the 8 layers"},
        {1, 2, 64, 0, "--interleave 2 is of a pipeline; say --pp, too"},
        {8, 2, 3, 0, "--dp 4 does not divide the global batch of 3"},
        {8, 1, 64, 7, "--micro-batch-size 7 does not divide the 8 samples of a replica"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_training_layout l = small_gpt();
        rpi_machine m = perfect_machine(8);
        rpi_open_choices open = all_open;
        rpi_found_layouts found;
        l.interleave = rows[i].interleave;
        l.global_batch = rows[i].global_batch;
        l.global_batch = rows[i].global_batch;
        open.micro_batch = rows[i].micro_batch == 0;
        if (!open.micro_batch) l.micro_batch = rows[i].micro_batch;
        char message[128] = "";
        snprintf(message, sizeof message, "no layout of %lld ranks is legal: %s",
                 (long long)rows[i].ranks, rows[i].message);
        CHECK_FAILS(rpi_layouts_search(&l, &open, &m, rows[i].ranks, 5, &found), INVALID,
                    message);
        CHECK_FAILS(rpi_layouts_frontier(&l, &open, &m, rows[i].ranks, &found), INVALID,
                    message);
    }
}

/* ---- the table: add a row. How many ranks share sequences in what is tried ---- */

static void sequences_are_shared_where_they_are_long_or_have_to_be(void) {
    static const struct {
        int64_t sequence, said; /* 0: open */
        double share;           /* memory, of what is needed where none share */
        int64_t found;          /* of 1, 2, 4 and 8 ranks that share sequences, each a bit */
    } rows[] = {
        {512, 0, 2, 1},
        {RPI_LONG_SEQUENCE, 0, 2, 1 + 2 + 4 + 8},
        {RPI_LONG_SEQUENCE - 4, 0, 2, 1},
        {RPI_LONG_SEQUENCE + 4, 0, 2, 1 + 2}, /* does not divide further */
        {512, 0, .99, 2 + 4 + 8},             /* needed */
        {511, 0, .99, 0},                     /* needed, and does not divide */
        {512, 4, 2, 4},
        {512, 1, .99, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_training_layout l = small_gpt();
        rpi_found_layouts found;
        rpi_open_choices open = {.data = true, .context = !rows[i].said};
        rpi_machine m = perfect_machine(8);
        int64_t bits = 0;
        l.sequence = rows[i].sequence;
        l.zero = 1;
        l.data = 8;
        m.device.facts[RPI_FACT_MEMORY_BYTES].value =
            rpi_rank_memory_most(&l, 0, 0).all * rows[i].share;
        if (rows[i].said) l.context = rows[i].said;
        REQUIRE_OK(rpi_layouts_search(&l, &open, &m, 8, 100, &found));
        for (int k = 0; k < found.count; k++) bits |= found.best[k].layout.context;
        CHECK_MSG(bits == rows[i].found, "row %d: %d, not %d", (int)i, (int)bits,
                  (int)rows[i].found);
        rpi_free(found.best);
    }
}

/* Each of the frontier is beaten by none of all layouts, and each of all by one of it. */
static void the_frontier_is_what_no_other_beats(void) {
    rpi_training_layout l = small_gpt();
    rpi_found_layouts all, frontier;
    rpi_machine m = perfect_machine(4);
    m.device.facts[RPI_FACT_GEMM_HALF_SIDE].value = 300;
    m.device.facts[RPI_FACT_MEMORY_BYTES].value = 1e9;
    REQUIRE_OK(rpi_layouts_search(&l, &all_open, &m, 8, 1000, &all));
    REQUIRE_OK(rpi_layouts_frontier(&l, &all_open, &m, 8, &frontier));
    CHECK_EQ(frontier.tried, all.tried);
    CHECK_EQ(frontier.fitting, all.fitting);
    CHECK(frontier.count > 2 && frontier.count < all.count);
    CHECK_NEAR(frontier.best[0].forecast.step_s, all.best[0].forecast.step_s, 1e-15);
    for (int i = 1; i < frontier.count; i++) {
        const rpi_forecast *f = &frontier.best[i].forecast;
        const rpi_forecast *before = &frontier.best[i - 1].forecast;
        CHECK(f->step_s > before->step_s && f->memory.all < before->memory.all);
    }
    for (int i = 0; i < all.count; i++) {
        const rpi_forecast *f = &all.best[i].forecast;
        int better = 0;
        for (int k = 0; k < frontier.count; k++) {
            const rpi_forecast *g = &frontier.best[k].forecast;
            better += g->step_s <= f->step_s && g->memory.all <= f->memory.all;
        }
        CHECK(better >= 1);
    }
    rpi_free(all.best);
    rpi_free(frontier.best);
    for (int after = 1; after < 4; after++) {
        (void)rpi_memory_fail_after(after);
        CHECK_FAILS(rpi_layouts_frontier(&l, &all_open, &m, 8, &frontier), NOMEM, "layouts");
        (void)rpi_memory_fail_after(0);
    }
}

CASES({"the best of all is found", the_best_of_all_is_found},
      {"what is said stays", what_is_said_stays},
      {"where nothing fits the smallest is known", where_nothing_fits_the_smallest_is_known},
      {"sequences are shared where they are long or have to be",
       sequences_are_shared_where_they_are_long_or_have_to_be},
      {"the frontier is what no other beats", the_frontier_is_what_no_other_beats},
      {"where nothing is legal the reason is said", where_nothing_is_legal_the_reason_is_said},
      {"the reason is of what was said", the_reason_is_of_what_was_said})
