#include "kernel_fixture.h"

#include "engine/backends/cpu/kernels/kernel_norm.h"

enum { SHAPES = 24 };

#define CALL(name)                                                                             \
    static void name(const rpi_kernel_run *run, const void *args) {                            \
        rpi_kernel_##name(run, (const rpi_kernel_norm *)args);                                 \
    }
CALL(norm_forward)
CALL(norm_backward_inputs)
CALL(norm_backward_weights)

/* Half of the draws are bf16 throughout; rows lie further apart than they are long. */
static rpi_kernel_rows matrix(bool bf16, int64_t rows, int64_t cols, uint64_t stream) {
    int64_t stride = cols + (int64_t)(stream % 3);
    if (bf16) return rpi_kernel_bf16(kernel_bf16s(rows * stride, 1, stream), stride);
    return rpi_kernel_f32(kernel_normal(rows * stride, 1, stream), stride);
}

static kernel_output output(const char *name, rpi_kernel_rows m, int64_t rows) {
    bool bf16 = m.dtype == RP_BF16;
    return (kernel_output){
        name, m.data, rows * m.stride, m.dtype, bf16 ? 0x1p-7 : 1e-5, bf16 ? 1e-4 : 1e-5};
}

static kernel_output floats(const char *name, float *data, int64_t count) {
    return (kernel_output){name, data, count, RP_F32, 1e-5, 1e-4};
}

static rpi_kernel_norm draw(rpi_rng *rng, int index) {
    int64_t rows = kernel_size(rng, 150), cols = index ? kernel_size(rng, 300) : 4099;
    bool bf16 = index % 3 == 2;
    rpi_kernel_norm it = {.rms = index % 2,
                          .rows = rows,
                          .cols = cols,
                          .epsilon = 1e-5f,
                          .gamma = index % 5 ? kernel_normal(cols, 1, 1) : NULL,
                          .beta = index % 4 ? kernel_normal(cols, 1, 2) : NULL,
                          .x = matrix(bf16, rows, cols, 3),
                          .y = matrix(bf16, rows, cols, 4),
                          .mean = kernel_floats(rows),
                          .inverse = kernel_floats(rows),
                          .dy = matrix(bf16, rows, cols, 5),
                          .dx = matrix(bf16, rows, cols, 6),
                          .dgamma = kernel_normal(cols, 1, 7),
                          .dbeta = index % 2 ? NULL : kernel_normal(cols, 1, 8),
                          .accumulate = index % 3 == 1};
    it.h = it.x;
    if (rpi_rng_below(rng, 2)) {
        it.residual = matrix(bf16, rows, cols, 9);
        it.h = it.sum = matrix(bf16, rows, cols, 10);
        it.dsum = matrix(bf16, rows, cols, 11);
    }
    return it;
}

static void kernels_match(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < SHAPES; i++) {
        rpi_kernel_norm it = draw(&rng, i);
        kernel_case forward = {it.rms ? "rms norm" : "layer norm",
                               norm_forward,
                               &it,
                               {output("y", it.y, it.rows),
                                floats("inverse", it.inverse, it.rows),
                                floats("mean", it.mean, it.rows)}};
        if (it.sum.data) forward.outputs[3] = output("sum", it.sum, it.rows);
        kernel_check(&forward);
        kernel_check(&(kernel_case){
            forward.name, norm_backward_inputs, &it, {output("dx", it.dx, it.rows)}});
        kernel_case weights = {
            forward.name, norm_backward_weights, &it, {floats("dgamma", it.dgamma, it.cols)}};
        if (it.dbeta) weights.outputs[1] = floats("dbeta", it.dbeta, it.cols);
        kernel_check(&weights);
        kernel_buffers_free();
    }
}

/* A mean far from 0 costs no precision: the variance is not a difference of two large sums. */
static void large_means_are_harmless(void) {
    enum { ROWS = 3, COLS = 777 };
    float *x = kernel_normal(ROWS * COLS, 1, 1), *y = kernel_floats(ROWS * COLS);
    for (int i = 0; i < ROWS * COLS; i++) x[i] += 1000;
    rpi_kernel_norm it = {.rows = ROWS,
                          .cols = COLS,
                          .epsilon = 1e-5f,
                          .x = rpi_kernel_f32(x, COLS),
                          .y = rpi_kernel_f32(y, COLS)};
    kernel_check(&(kernel_case){
        "layer norm", norm_forward, &it, {{"y", y, ROWS * COLS, RP_F32, 1e-4, 2e-4}}});
    kernel_buffers_free();
}

static void nonfinite_values_pass(void) {
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    enum { COLS = 37, ROWS = 4, ODD = sizeof odd / sizeof odd[0] };
    for (int rms = 0; rms < 2; rms++) {
        float *x = kernel_normal(ROWS * COLS, 1, 1);
        for (int i = 0; i < ODD; i++) x[i * COLS + 5 + 10 * i] = odd[i];
        rpi_kernel_norm it = {.rms = rms,
                              .rows = ROWS,
                              .cols = COLS,
                              .epsilon = 1e-5f,
                              .x = rpi_kernel_f32(x, COLS),
                              .y = rpi_kernel_f32(kernel_floats(ROWS * COLS), COLS),
                              .mean = kernel_floats(ROWS),
                              .inverse = kernel_floats(ROWS),
                              .h = rpi_kernel_f32(x, COLS),
                              .dy = rpi_kernel_f32(kernel_normal(ROWS * COLS, 1, 2), COLS),
                              .dx = rpi_kernel_f32(kernel_floats(ROWS * COLS), COLS),
                              .dgamma = kernel_floats(COLS),
                              .dbeta = kernel_floats(COLS)};
        kernel_check(&(kernel_case){"nonfinite", norm_forward, &it, {output("y", it.y, ROWS)}});
        kernel_check(&(kernel_case){
            "nonfinite", norm_backward_inputs, &it, {output("dx", it.dx, ROWS)}});
        kernel_check(&(kernel_case){
            "nonfinite", norm_backward_weights, &it, {floats("dgamma", it.dgamma, COLS)}});
        const float *y = it.y.data;
        CHECK(isnan(y[5]) && isfinite(y[3 * COLS]));
        kernel_buffers_free();
    }
}

static void gradients_are_differences(void) {
    enum { ROWS = 3, COLS = 19, COUNT = ROWS * COLS };
    const rpi_kernel_run run = {.threads = 1, .isa = RPI_ISA_SCALAR};
    for (int rms = 0; rms < 2; rms++) {
        float *x = kernel_normal(COUNT, 1, 1), *y = kernel_floats(COUNT);
        float *gamma = kernel_normal(COLS, 1, 2), *beta = kernel_normal(COLS, 1, 3);
        float *dy = kernel_normal(COUNT, 1, 4), *dx = kernel_floats(COUNT);
        rpi_kernel_norm it = {.rms = rms,
                              .rows = ROWS,
                              .cols = COLS,
                              .epsilon = 1e-2f,
                              .gamma = gamma,
                              .beta = beta,
                              .x = rpi_kernel_f32(x, COLS),
                              .y = rpi_kernel_f32(y, COLS),
                              .mean = kernel_floats(ROWS),
                              .inverse = kernel_floats(ROWS),
                              .h = rpi_kernel_f32(x, COLS),
                              .dy = rpi_kernel_f32(dy, COLS),
                              .dx = rpi_kernel_f32(dx, COLS),
                              .dgamma = kernel_floats(COLS),
                              .dbeta = kernel_floats(COLS)};
        rpi_kernel_norm_forward(&run, &it);
        rpi_kernel_norm_backward_inputs(&run, &it);
        rpi_kernel_norm_backward_weights(&run, &it);
        kernel_gradient slope = {"norm x", norm_forward, &it,   x,    dx,  COUNT,
                                 y,        dy,           COUNT, 5e-3, 2e-3};
        kernel_check_gradient(&slope);
        slope.name = "norm gamma", slope.x = gamma, slope.dx = it.dgamma, slope.count = COLS;
        kernel_check_gradient(&slope);
        slope.name = "norm beta", slope.x = beta, slope.dx = it.dbeta;
        if (!rms) kernel_check_gradient(&slope);
        kernel_buffers_free();
    }
}

CASES({"kernels_match", kernels_match}, {"large_means_are_harmless", large_means_are_harmless},
      {"nonfinite_values_pass", nonfinite_values_pass},
      {"gradients_are_differences", gradients_are_differences})
