#include "kernels.h"

#include "engine/backends/cpu/kernels/kernel_dropout.h"
#include "engine/backends/cpu/kernels/kernel_embedding.h"
#include "engine/backends/cpu/kernels/kernel_optimizer.h"
#include "engine/backends/cpu/kernels/kernel_rope.h"
#include "engine/backends/cpu/kernels/kernel_square_sum.h"

enum {
    F32 = 4,
    PARAMETERS = 1 << 24,
    LENGTH = 1024,
    HEADS = 12,
    SIZE = 64,
    COLS = HEADS * SIZE,
    COUNT = 2 * LENGTH * COLS,
    VOCABULARY = 50257
};

static void sgd(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_sgd_step(run, (const rpi_kernel_sgd *)args);
}

static void adamw(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_adamw_step(run, (const rpi_kernel_adam *)args);
}

static void square_sum(const rpi_kernel_run *run, const void *args) {
    rpi_square_sum sum = {{0}, 0};
    rpi_kernel_square_sum(run, (const float *)args, PARAMETERS, &sum);
}

void bench_optimizers(bench_list *list) {
    float *p = bench_floats(PARAMETERS), *g = bench_floats(PARAMETERS);
    float *m = bench_floats(PARAMETERS), *v = bench_floats(PARAMETERS);
    for (int64_t i = 0; i < PARAMETERS; i++) v[i] *= v[i];
    const void *sgd_args = BENCH_ARGS(
        rpi_kernel_sgd, .count = PARAMETERS, .values = p, .gradients = g, .gradient_scale = 1,
        .momentum_buffer = m, .learning_rate = 1e-6f, .momentum = 0.9f, .weight_decay = 1e-4f);
    const void *adam_args = BENCH_ARGS(
        rpi_kernel_adam, .count = PARAMETERS, .values = p, .gradients = g, .gradient_scale = 1,
        .first = m, .second = v, .learning_rate = 1e-6, .beta1 = 0.9, .beta2 = 0.95,
        .epsilon = 1e-8, .weight_decay = 0.1, .step = 10);
    const double pass = 1.0 * PARAMETERS * F32;
    bench_add(list, (bench_kernel){"sgd with momentum", sgd, sgd_args, 5 * pass, 0});
    bench_add(list, (bench_kernel){"adamw", adamw, adam_args, 7 * pass, 0});
    bench_add(list, (bench_kernel){"square_sum", square_sum, g, pass, 0});
}

static void rope(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_rope_apply(run, (const rpi_kernel_rope *)args);
}

static void dropout(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_dropout_apply(run, (const rpi_kernel_dropout *)args);
}

static void embedding_forward(const rpi_kernel_run *run, const void *args) {
    (void)rpi_kernel_embedding_forward(run, (const rpi_kernel_embedding *)args);
}

static void embedding_backward(const rpi_kernel_run *run, const void *args) {
    int64_t touched;
    rpi_kernel_embedding_backward(run, (const rpi_kernel_embedding *)args, &touched);
}

void bench_tokens(bench_list *list) {
    enum { TOKENS = 2 * LENGTH };
    static int32_t ids[TOKENS], touched[TOKENS];
    static uint64_t scratch[2 * TOKENS];
    for (int t = 0; t < TOKENS; t++) ids[t] = t * t % 1999 * 25;
    float *x = bench_floats(COUNT), *y = bench_floats(COUNT),
          *tables = bench_floats(LENGTH * SIZE);
    rpi_kernel_rope_tables(10000, NULL, 0, LENGTH, SIZE, tables, tables + LENGTH * SIZE / 2);
    rpi_kernel_heads in = {x, LENGTH * COLS, COLS, SIZE, RP_F32}, out = in;
    out.data = y;
    const void *rope_args =
        BENCH_ARGS(rpi_kernel_rope, .batch = 2, .length = LENGTH, .heads = HEADS,
                   .head_size = SIZE, .rotary = SIZE, .cosines = tables,
                   .sines = tables + LENGTH * SIZE / 2, .x = in, .y = out);
    const void *dropout_args =
        BENCH_ARGS(rpi_kernel_dropout, .mask.probability = 0.1, .count = COUNT,
                   .x = rpi_kernel_f32(x, COUNT), .y = rpi_kernel_f32(y, COUNT));
    const void *embedding_args = BENCH_ARGS(
        rpi_kernel_embedding, .tokens = TOKENS, .cols = COLS, .vocabulary = VOCABULARY,
        .ids = ids, .scale = 1, .table = rpi_kernel_f32(bench_floats(VOCABULARY * COLS), COLS),
        .out = rpi_kernel_f32(y, COLS), .dout = rpi_kernel_f32(x, COLS),
        .sums = bench_floats(COUNT), .touched = touched, .scratch = scratch);
    const double pass = 1.0 * COUNT * F32;
    bench_add(list, (bench_kernel){"rope", rope, rope_args, 2 * pass, 0});
    bench_add(list, (bench_kernel){"dropout", dropout, dropout_args, 2 * pass, 0});
    bench_add(list, (bench_kernel){"embedding forward", embedding_forward, embedding_args,
                                   2 * pass, 0});
    bench_add(list, (bench_kernel){"embedding backward, row-sparse", embedding_backward,
                                   embedding_args, 2 * pass, 0});
}
