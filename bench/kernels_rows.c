#include "kernels.h"

#include "engine/backends/cpu/kernels/kernel_cross_entropy.h"
#include "engine/backends/cpu/kernels/kernel_norm.h"

enum { ROWS = 2048, COLS = 768, COUNT = ROWS * COLS, F32 = 4, TOKENS = 256, CLASSES = 50257 };

#define CALL(name)                                                                             \
    static void name(const rpi_kernel_run *run, const void *args) {                            \
        rpi_kernel_##name(run, (const rpi_kernel_norm *)args);                                 \
    }
CALL(norm_forward)
CALL(norm_backward_inputs)
CALL(norm_backward_weights)

static rpi_kernel_rows matrix(void) {
    return rpi_kernel_f32(bench_floats(COUNT), COLS);
}

static const rpi_kernel_norm *norm(bool rms) {
    const float *x = bench_floats(COUNT);
    return BENCH_ARGS(rpi_kernel_norm, .rms = rms, .rows = ROWS, .cols = COLS, .epsilon = 1e-5f,
                      .gamma = bench_floats(COLS), .beta = bench_floats(COLS),
                      .x = rpi_kernel_f32(x, COLS), .y = matrix(), .mean = bench_floats(ROWS),
                      .inverse = bench_floats(ROWS), .h = rpi_kernel_f32(x, COLS),
                      .dy = matrix(), .dx = matrix(), .dgamma = bench_floats(COLS),
                      .dbeta = bench_floats(COLS));
}

void bench_norms(bench_list *list) {
    const double pass = 1.0 * COUNT * F32;
    const rpi_kernel_norm *layer = norm(false), *rms = norm(true);
    bench_add(list, (bench_kernel){"layer_norm forward", norm_forward, layer, 2 * pass, 0});
    bench_add(list, (bench_kernel){"layer_norm backward inputs", norm_backward_inputs, layer,
                                   3 * pass, 0});
    bench_add(list, (bench_kernel){"layer_norm backward weights", norm_backward_weights, layer,
                                   2 * pass, 0});
    bench_add(list, (bench_kernel){"rms_norm forward", norm_forward, rms, 2 * pass, 0});
    bench_add(list, (bench_kernel){"rms_norm backward inputs", norm_backward_inputs, rms,
                                   3 * pass, 0});
    bench_add(list, (bench_kernel){"rms_norm backward weights", norm_backward_weights, rms,
                                   2 * pass, 0});
}

static void cross_entropy(const rpi_kernel_run *run, const void *args) {
    (void)rpi_kernel_cross_entropy_run(run, args);
}

void bench_cross_entropy(bench_list *list) {
    static int32_t labels[TOKENS];
    static uint8_t correct[TOKENS];
    for (int i = 0; i < TOKENS; i++) labels[i] = i * 37 % CLASSES;
    float *logits = bench_floats((int64_t)TOKENS * CLASSES);
    float *dlogits = bench_floats((int64_t)TOKENS * CLASSES);
    const void *args =
        BENCH_ARGS(rpi_kernel_cross_entropy, .rows = TOKENS, .classes = CLASSES,
                   .logits = rpi_kernel_f32(logits, CLASSES), .labels = labels, .ignored = -100,
                   .scale = 1.0f / TOKENS, .losses = bench_floats(TOKENS), .correct = correct,
                   .dlogits = rpi_kernel_f32(dlogits, CLASSES));
    bench_add(list, (bench_kernel){"cross_entropy forward + backward", cross_entropy, args,
                                   2.0 * TOKENS * CLASSES * F32, 0});
}
