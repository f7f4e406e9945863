#include "kernel_fixture.h"

#include "engine/backends/cpu/kernels/kernel_embedding.h"

static void forward(const rpi_kernel_run *run, const void *args) {
    CHECK_EQ(rpi_kernel_embedding_forward(run, (const rpi_kernel_embedding *)args), -1);
}

static void backward(const rpi_kernel_run *run, const void *args) {
    int64_t touched;
    rpi_kernel_embedding_backward(run, (const rpi_kernel_embedding *)args, &touched);
}

typedef struct problem {
    rpi_kernel_embedding args;
    int32_t ids[300], touched[300];
    uint64_t scratch[600];
} problem;

static rpi_kernel_rows matrix(bool bf16, int64_t rows, int64_t cols, uint64_t stream) {
    if (bf16) return rpi_kernel_bf16(kernel_bf16s(rows * cols, 1, stream), cols);
    return rpi_kernel_f32(kernel_normal(rows * cols, 1, stream), cols);
}

/* Few different tokens, so that they repeat; a vocabulary that needs 1, 2 or 3 bytes; every
 * third table is the middle of a larger one. */
static void draw(problem *it, rpi_rng *rng, int index) {
    static const int64_t vocabularies[] = {5, 256, 257, 66000};
    int64_t tokens = kernel_size(rng, 300), cols = kernel_size(rng, 150);
    int64_t vocabulary = vocabularies[index % 4];
    bool bf16 = index % 3 == 2;
    if (vocabulary == 66000) cols = 1 + cols % 6;
    *it = (problem){.args = {.tokens = tokens,
                             .cols = cols,
                             .vocabulary = vocabulary,
                             .ids = it->ids,
                             .scale = index % 2 ? 1 : 3.5f,
                             .table = matrix(bf16, vocabulary, cols, 1),
                             .out = matrix(bf16, tokens, cols, 2),
                             .add = index % 5 == 3,
                             .dout = matrix(bf16, tokens, cols, 3),
                             .dense = index % 2,
                             .touched = it->touched,
                             .scratch = it->scratch}};
    int64_t all = vocabulary;
    if (index % 3 == 1) {
        it->args.first = vocabulary / 2;
        it->args.whole = all = 2 * vocabulary;
    }
    it->args.sums = kernel_normal((it->args.dense ? vocabulary : tokens) * cols, 1, 4);
    for (int64_t t = 0; t < tokens; t++) {
        it->ids[t] = (int32_t)rpi_rng_below(rng, (uint32_t)all);
        if (t > 0 && rpi_rng_below(rng, 2))
            it->ids[t] = it->ids[rpi_rng_below(rng, (uint32_t)t)];
    }
}

static void kernels_match(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    static problem it;
    for (int i = 0; i < 24; i++) {
        draw(&it, &rng, i);
        const rpi_kernel_embedding *a = &it.args;
        bool bf16 = a->out.dtype == RP_BF16;
        kernel_output out = {"out",        a->out.data,          a->tokens * a->cols,
                             a->out.dtype, bf16 ? 0x1p-7 : 1e-6, 1e-6};
        kernel_check(&(kernel_case){"embedding", forward, a, {out}});
        kernel_output sums = {"sums", a->sums, (a->dense ? a->vocabulary : a->tokens) * a->cols,
                              RP_F32, 1e-5,    1e-4};
        kernel_check(&(kernel_case){"embedding", backward, a, {sums}});
        kernel_buffers_free();
    }
}

/* Touched rows are those that occur, each once, in order; their sums are right. */
static void touched_rows_are_those_that_occur(void) {
    static const int32_t ids[] = {900, 3, 3, 70000, 0, 900, 3};
    float dout[7], sums[7];
    int32_t touched[7];
    uint64_t scratch[14];
    for (int t = 0; t < 7; t++) dout[t] = (float)(1 << t);
    rpi_kernel_embedding it = {.tokens = 7,
                               .cols = 1,
                               .vocabulary = 70001,
                               .ids = ids,
                               .scale = 1,
                               .dout = rpi_kernel_f32(dout, 1),
                               .sums = sums,
                               .touched = touched,
                               .scratch = scratch};
    for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++) {
        int64_t count = 0;
        rpi_kernel_embedding_backward(&(rpi_kernel_run){2, (rpi_isa)isa}, &it, &count);
        CHECK_EQ(count, 4);
        CHECK(touched[0] == 0 && touched[1] == 3 && touched[2] == 900 && touched[3] == 70000);
        CHECK(sums[0] == 16 && sums[1] == 2 + 4 + 64 && sums[2] == 1 + 32 && sums[3] == 8);
    }
}

/* Rows 2 to 4 of 10: tokens of others are zeros, and have no gradient. */
static void a_part_of_a_table(void) {
    static const int32_t ids[] = {2, 9, 4, 0, 4};
    float table[] = {20, 30, 40}, out[5], sums[3] = {0}, dout[] = {1, 2, 4, 8, 16};
    int32_t touched[5];
    uint64_t scratch[10];
    rpi_kernel_embedding it = {.tokens = 5,
                               .cols = 1,
                               .vocabulary = 3,
                               .first = 2,
                               .whole = 10,
                               .ids = ids,
                               .scale = 1,
                               .table = rpi_kernel_f32(table, 1),
                               .out = rpi_kernel_f32(out, 1),
                               .dout = rpi_kernel_f32(dout, 1),
                               .dense = true,
                               .sums = sums,
                               .touched = touched,
                               .scratch = scratch};
    for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++) {
        const rpi_kernel_run run = {2, (rpi_isa)isa};
        int64_t count = 0;
        memset(sums, 0, sizeof sums);
        CHECK_EQ(rpi_kernel_embedding_forward(&run, &it), -1);
        CHECK(out[0] == 20 && out[1] == 0 && out[2] == 40 && out[3] == 0 && out[4] == 40);
        rpi_kernel_embedding_backward(&run, &it, &count);
        CHECK_EQ(count, 2);
        CHECK(sums[0] == 1 && sums[1] == 0 && sums[2] == 20);
    }
    it.whole = 9;
    CHECK_EQ(rpi_kernel_embedding_forward(&(rpi_kernel_run){1, rpi_cpu_isa()}, &it), 1);
}

static void bad_ids_are_named(void) {
    int32_t ids[] = {0, 4, 5, -1};
    float table[5] = {0}, out[4] = {7, 7, 7, 7};
    rpi_kernel_embedding it = {.tokens = 4,
                               .cols = 1,
                               .vocabulary = 5,
                               .ids = ids,
                               .scale = 1,
                               .table = rpi_kernel_f32(table, 1),
                               .out = rpi_kernel_f32(out, 1)};
    rpi_kernel_run run = {1, rpi_cpu_isa()};
    CHECK_EQ(rpi_kernel_embedding_forward(&run, &it), 2);
    CHECK(out[0] == 7);
    ids[2] = 1;
    CHECK_EQ(rpi_kernel_embedding_forward(&run, &it), 3);
    it.tokens = 0;
    int64_t count = 9;
    rpi_kernel_embedding_backward(&run, &it, &count);
    CHECK_EQ(count, 0);
}

/* out is linear in the table: its gradient is a difference, of NaN too. */
static void gradients_are_differences(void) {
    enum { ROWS = 6, COLS = 7, TOKENS = 10 };
    const rpi_kernel_run run = {.threads = 1, .isa = RPI_ISA_SCALAR};
    static const int32_t ids[TOKENS] = {0, 5, 5, 2, 3, 5, 0, 2, 2, 5};
    float *table = kernel_normal(ROWS * COLS, 1, 1), *out = kernel_floats(TOKENS * COLS);
    float *dout = kernel_normal(TOKENS * COLS, 1, 2), *sums = kernel_floats(ROWS * COLS);
    int32_t touched[TOKENS];
    uint64_t scratch[2 * TOKENS];
    rpi_kernel_embedding it = {.tokens = TOKENS,
                               .cols = COLS,
                               .vocabulary = ROWS,
                               .ids = ids,
                               .scale = 2,
                               .table = rpi_kernel_f32(table, COLS),
                               .out = rpi_kernel_f32(out, COLS),
                               .dout = rpi_kernel_f32(dout, COLS),
                               .dense = true,
                               .sums = sums,
                               .touched = touched,
                               .scratch = scratch};
    backward(&run, &it);
    kernel_check_gradient(&(kernel_gradient){"table", forward, &it, table, sums, ROWS * COLS,
                                             out, dout, TOKENS * COLS, 1e-2, 2e-3});
    dout[3 * COLS + 1] = NAN;
    for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++) {
        for (int i = 0; i < ROWS * COLS; i++) sums[i] = 0;
        backward(&(rpi_kernel_run){2, (rpi_isa)isa}, &it);
        for (int i = 0; i < ROWS * COLS; i++) CHECK(isnan(sums[i]) == (i == 2 * COLS + 1));
    }
    kernel_buffers_free();
}

CASES({"kernels_match", kernels_match},
      {"touched_rows_are_those_that_occur", touched_rows_are_those_that_occur},
      {"a part of a table", a_part_of_a_table}, {"bad_ids_are_named", bad_ids_are_named},
      {"gradients_are_differences", gradients_are_differences})
