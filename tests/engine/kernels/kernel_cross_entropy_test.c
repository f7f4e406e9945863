#include "kernel_fixture.h"

#include "engine/backends/cpu/kernels/kernel_cross_entropy.h"

enum { IGNORED = -100 };

static void call(const rpi_kernel_run *run, const void *args) {
    (void)rpi_kernel_cross_entropy_run(run, args);
}

typedef struct problem {
    rpi_kernel_cross_entropy args;
    int32_t labels[64];
    uint8_t correct[64];
} problem;

static void fill(problem *it, rpi_rng *rng, int64_t rows, int64_t classes, bool bf16) {
    int64_t stride = classes + 3;
    *it = (problem){.args = {.rows = rows,
                             .classes = classes,
                             .ignored = IGNORED,
                             .scale = 0.37f,
                             .labels = it->labels,
                             .correct = it->correct,
                             .losses = kernel_floats(rows)}};
    it->args.logits = bf16 ? rpi_kernel_bf16(kernel_bf16s(rows * stride, 3, 1), stride)
                           : rpi_kernel_f32(kernel_normal(rows * stride, 3, 1), stride);
    it->args.dlogits = bf16 ? rpi_kernel_bf16(kernel_bf16s(rows * stride, 3, 2), stride)
                            : rpi_kernel_f32(kernel_normal(rows * stride, 3, 2), stride);
    for (int64_t r = 0; r < rows; r++)
        it->labels[r] = rpi_rng_below(rng, 5) == 0
                            ? IGNORED
                            : (int32_t)rpi_rng_below(rng, (uint32_t)classes);
}

static void check(problem *it) {
    const rpi_kernel_cross_entropy *args = &it->args;
    bool bf16 = args->dlogits.dtype == RP_BF16;
    kernel_case known = {"cross entropy",
                         call,
                         args,
                         {{"losses", args->losses, args->rows, RP_F32, 1e-5, 1e-5}}};
    if (args->dlogits.data)
        known.outputs[1] = (kernel_output){
            "dlogits",           args->dlogits.data,   args->rows * args->dlogits.stride,
            args->dlogits.dtype, bf16 ? 0x1p-7 : 1e-5, 1e-7};
    kernel_check(&known);
    /* The counts of every instruction set. */
    rpi_kernel_run run = {.threads = 1, .isa = RPI_ISA_SCALAR};
    rpi_kernel_cross_entropy forward = *args;
    forward.dlogits.data = NULL;
    rpi_cross_entropy_totals wanted = rpi_kernel_cross_entropy_run(&run, &forward);
    for (int isa = RPI_ISA_AVX2; isa <= (int)rpi_cpu_isa(); isa++) {
        run = (rpi_kernel_run){.threads = 2, .isa = (rpi_isa)isa};
        rpi_cross_entropy_totals totals = rpi_kernel_cross_entropy_run(&run, &forward);
        CHECK_EQ(totals.valid, wanted.valid);
        CHECK_EQ(totals.correct, wanted.correct);
        CHECK_EQ(totals.bad_row, wanted.bad_row);
        if (!isnan(wanted.loss))
            CHECK_NEAR(totals.loss, wanted.loss, 1e-4 * (double)args->rows);
    }
}

static void losses_and_gradients_match(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < 24; i++) {
        problem it;
        int64_t classes = i == 0 ? 30522 : kernel_size(&rng, 700);
        fill(&it, &rng, kernel_size(&rng, i == 0 ? 4 : 40), classes, i % 3 == 2);
        if (i % 2) it.args.smoothing = 0.1f;
        if (i % 4 == 3) it.args.dlogits.data = NULL;
        check(&it);
        kernel_buffers_free();
    }
}

/* In the logits' own memory the same bits come out. */
static void in_place(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 2);
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++) {
            rpi_kernel_run run = {.threads = 2, .isa = (rpi_isa)isa};
            problem it;
            fill(&it, &rng, 7, 1003, bf16);
            (void)rpi_kernel_cross_entropy_run(&run, &it.args);
            rpi_kernel_rows apart = it.args.dlogits;
            it.args.dlogits = it.args.logits;
            (void)rpi_kernel_cross_entropy_run(&run, &it.args);
            for (int64_t r = 0; r < 7; r++)
                for (int64_t j = 0; j < 1003; j++)
                    if (rpi_kernel_get(apart, r, j) != rpi_kernel_get(it.args.dlogits, r, j)) {
                        CHECK_MSG(false, "row %lld, class %lld differ", (long long)r,
                                  (long long)j);
                        return;
                    }
            kernel_buffers_free();
        }
}

/* A label that is no class is named; ties go to the first; -infinity is a class that cannot be.
 */
static void edges(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 3);
    problem it;
    fill(&it, &rng, 8, 33, false);
    float *x = it.args.logits.data;
    for (int j = 0; j < 36; j++) x[j] = 2;
    it.labels[0] = 0;
    for (int j = 0; j < 36; j++) x[36 + j] = 2;
    it.labels[1] = 1;
    x[2 * 36 + 32] = -INFINITY;
    it.labels[2] = 32;
    x[3 * 36 + 7] = NAN;
    x[4 * 36 + 8] = INFINITY;
    it.labels[3] = it.labels[4] = 3;
    it.labels[5] = 33;
    it.labels[6] = -1;
    x[7 * 36 + 5] = 1e4f;
    it.labels[7] = 5;
    check(&it);
    for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++) {
        rpi_kernel_run run = {.threads = 1, .isa = (rpi_isa)isa};
        rpi_cross_entropy_totals totals = rpi_kernel_cross_entropy_run(&run, &it.args);
        CHECK_EQ(totals.bad_row, 5);
        CHECK_EQ(it.correct[0], 1);
        CHECK_EQ(it.correct[1], 0);
        CHECK_EQ(it.correct[7], 1);
        CHECK(it.args.losses[2] == INFINITY && isnan(it.args.losses[3]));
        CHECK(isnan(it.args.losses[5]) && isnan(it.args.losses[6]));
    }
    kernel_buffers_free();
}

static void gradients_are_differences(void) {
    enum { ROWS = 4, CLASSES = 11, STRIDE = CLASSES + 3, COUNT = ROWS * STRIDE };
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 4);
    const rpi_kernel_run run = {.threads = 1, .isa = RPI_ISA_SCALAR};
    problem it;
    fill(&it, &rng, ROWS, CLASSES, false);
    it.args.smoothing = 0.2f;
    it.args.scale = 1;
    float *weights = kernel_floats(ROWS), *dx = kernel_floats(COUNT);
    it.args.dlogits.data = dx;
    for (int i = 0; i < ROWS; i++) weights[i] = 1;
    (void)rpi_kernel_cross_entropy_run(&run, &it.args);
    it.args.dlogits.data = NULL;
    kernel_check_gradient(&(kernel_gradient){"logits", call, &it.args, it.args.logits.data, dx,
                                             COUNT, it.args.losses, weights, ROWS, 1e-2, 3e-3});
    kernel_buffers_free();
}

/* ---- a slice of the classes ---- */

static void describe(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_statistics_run(run, args);
}

/* Slices with and without padding, labels within and without; both passes of every form. */
static void statistics_match(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 2);
    for (int i = 0; i < 24; i++) {
        problem drawn;
        int64_t classes = i == 0 ? 30522 : kernel_size(&rng, 700);
        int64_t rows = kernel_size(&rng, i == 0 ? 4 : 40), first = i % 2 ? classes : 0;
        fill(&drawn, &rng, rows, classes, false);
        for (int64_t r = 0; r < rows; r++)
            if (drawn.labels[r] != IGNORED && i % 3) drawn.labels[r] += (int32_t)first;
        rpi_kernel_statistics it = {.rows = rows,
                                    .classes = classes,
                                    .first = first,
                                    .whole = first + classes - (i % 4 == 3 ? classes / 3 : 0),
                                    .logits = drawn.args.logits,
                                    .labels = drawn.labels,
                                    .ignored = IGNORED,
                                    .statistics = kernel_floats(rows * RPI_STATISTICS)};
        kernel_check(&(kernel_case){
            "statistics",
            describe,
            &it,
            {{"statistics", it.statistics, rows * RPI_STATISTICS, RP_F32, 1e-5, 1e-3}}});
        it.gradients = kernel_normal(rows * RPI_STATISTICS, 1, 5);
        it.dlogits = drawn.args.dlogits;
        kernel_check(&(kernel_case){
            "statistics",
            describe,
            &it,
            {{"dlogits", it.dlogits.data, rows * it.dlogits.stride, RP_F32, 1e-5, 1e-6}}});
        kernel_buffers_free();
    }
}

/* What has no exponentials, or is no number, in every form. */
static void statistics_of_edges(void) {
    enum { CLASSES = 20 };
    static const int32_t labels[] = {3};
    float logits[CLASSES], of[RPI_STATISTICS];
    rpi_kernel_statistics it = {.rows = 1,
                                .classes = CLASSES,
                                .whole = CLASSES,
                                .logits = rpi_kernel_f32(logits, CLASSES),
                                .labels = labels,
                                .ignored = IGNORED,
                                .statistics = of};
    for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++) {
        const rpi_kernel_run run = {.threads = 1, .isa = (rpi_isa)isa};
        for (int c = 0; c < CLASSES; c++) logits[c] = -INFINITY;
        rpi_kernel_statistics_run(&run, &it);
        CHECK(of[RPI_STATISTICS_LSE] == -INFINITY && of[RPI_STATISTICS_LARGEST] == -INFINITY);
        logits[7] = 1000;
        rpi_kernel_statistics_run(&run, &it);
        CHECK(of[RPI_STATISTICS_LSE] == 1000 && of[RPI_STATISTICS_INDEX] == 7);
        logits[8] = NAN;
        rpi_kernel_statistics_run(&run, &it);
        CHECK(isnan(of[RPI_STATISTICS_LSE]));
        logits[8] = INFINITY;
        rpi_kernel_statistics_run(&run, &it);
        CHECK(isnan(of[RPI_STATISTICS_LSE]));
        it.first = it.whole; /* all is padding */
        rpi_kernel_statistics_run(&run, &it);
        CHECK(of[RPI_STATISTICS_LSE] == -INFINITY && of[RPI_STATISTICS_SUM] == 0);
        it.first = 0;
    }
}

CASES({"losses_and_gradients_match", losses_and_gradients_match}, {"in_place", in_place},
      {"edges", edges}, {"statistics match", statistics_match},
      {"statistics of edges", statistics_of_edges},
      {"gradients_are_differences", gradients_are_differences})
