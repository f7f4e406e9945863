#include "kernels.h"

#include "engine/backends/cpu/kernels/kernel_activation.h"

enum { ROWS = 1024, COLS = 3072, COUNT = ROWS * COLS, F32 = 4 };

#define CALL(name, type)                                                                       \
    static void name(const rpi_kernel_run *run, const void *args) {                            \
        rpi_kernel_##name(run, (const type *)args);                                            \
    }
CALL(activation_forward, rpi_kernel_activation)
CALL(activation_backward, rpi_kernel_activation)
CALL(gated_forward, rpi_kernel_gated)
CALL(gated_backward, rpi_kernel_gated)
CALL(add_bias, rpi_kernel_add)
CALL(column_sums, rpi_kernel_sums)

static rpi_kernel_rows matrix(int64_t cols) {
    return rpi_kernel_f32(bench_floats(ROWS * cols), cols);
}

static void add_activation(bench_list *list, rpi_activation kind, const char *forward,
                           const char *backward) {
    const void *args = BENCH_ARGS(rpi_kernel_activation, .kind = kind, .rows = ROWS,
                                  .cols = COLS, .x = matrix(COLS), .bias = bench_floats(COLS),
                                  .y = matrix(COLS), .dy = matrix(COLS), .dx = matrix(COLS));
    bench_add(list, (bench_kernel){forward, activation_forward, args, 2.0 * COUNT * F32, 0});
    bench_add(list, (bench_kernel){backward, activation_backward, args, 3.0 * COUNT * F32, 0});
}

void bench_activations(bench_list *list) {
    add_activation(list, RPI_ACTIVATION_GELU_TANH, "bias_gelu_tanh forward",
                   "bias_gelu_tanh backward");
    add_activation(list, RPI_ACTIVATION_GELU_ERF, "bias_gelu_erf forward",
                   "bias_gelu_erf backward");
    const void *gated =
        BENCH_ARGS(rpi_kernel_gated, .kind = RPI_ACTIVATION_SILU, .rows = ROWS, .cols = COLS,
                   .gate = matrix(COLS), .up = matrix(COLS), .y = matrix(COLS),
                   .dy = matrix(COLS), .dgate = matrix(COLS), .dup = matrix(COLS));
    bench_add(list,
              (bench_kernel){"swiglu forward", gated_forward, gated, 3.0 * COUNT * F32, 0});
    bench_add(list,
              (bench_kernel){"swiglu backward", gated_backward, gated, 5.0 * COUNT * F32, 0});
    const void *add =
        BENCH_ARGS(rpi_kernel_add, .rows = ROWS, .cols = COLS, .a = matrix(COLS),
                   .b = matrix(COLS), .bias = bench_floats(COLS), .y = matrix(COLS));
    bench_add(list, (bench_kernel){"add_bias", add_bias, add, 3.0 * COUNT * F32, 0});
    const void *sums = BENCH_ARGS(rpi_kernel_sums, .rows = ROWS, .cols = COLS,
                                  .x = matrix(COLS), .sums = bench_floats(COLS));
    bench_add(list, (bench_kernel){"column_sums", column_sums, sums, 1.0 * COUNT * F32, 0});
}
