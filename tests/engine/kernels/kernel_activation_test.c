#include "kernel_fixture.h"

#include "engine/backends/cpu/kernels/kernel_activation.h"

#include <string.h>

static const char *const names[RPI_ACTIVATION_COUNT] = {"none",     "relu", "gelu tanh",
                                                        "gelu erf", "silu", "tanh"};
enum { SHAPES = 12, BF16 = 1 };

#define CALL(name, type)                                                                       \
    static void name(const rpi_kernel_run *run, const void *args) {                            \
        rpi_kernel_##name(run, (const type *)args);                                            \
    }
CALL(activation_forward, rpi_kernel_activation)
CALL(activation_backward, rpi_kernel_activation)
CALL(gated_forward, rpi_kernel_gated)
CALL(gated_backward, rpi_kernel_gated)
CALL(add_bias, rpi_kernel_add)
CALL(relu_backward, rpi_kernel_relu_gradient)
CALL(column_sums, rpi_kernel_sums)

/* Half of all matrices are bf16, and rows lie further apart than they are long. */
static rpi_kernel_rows matrix(rpi_rng *rng, int64_t rows, int64_t cols, uint64_t stream) {
    int64_t stride = cols + rpi_rng_below(rng, 5);
    if (rpi_rng_below(rng, 2) == BF16)
        return rpi_kernel_bf16(kernel_bf16s(rows * stride, 2, stream), stride);
    return rpi_kernel_f32(kernel_normal(rows * stride, 2, stream), stride);
}

/* One rounding of bf16 may fall the other way. */
static kernel_output output(const char *name, rpi_kernel_rows m, int64_t rows) {
    double relative = m.dtype == RP_BF16 ? 0x1p-7 : 2e-6;
    return (kernel_output){name, m.data, rows * m.stride, m.dtype, relative, 1e-5};
}

typedef struct shape {
    int64_t rows, cols;
} shape;

static shape draw_shape(rpi_rng *rng, int index) {
    if (index == 0) return (shape){1, 3 * RPI_KERNEL_PIECE + 5};
    return (shape){kernel_size(rng, 40), kernel_size(rng, 300)};
}

static rpi_kernel_activation draw_activation(rpi_rng *rng, int index) {
    shape s = draw_shape(rng, index);
    rpi_kernel_activation it = {.kind = (rpi_activation)(index % RPI_ACTIVATION_COUNT),
                                .rows = s.rows,
                                .cols = s.cols,
                                .x = matrix(rng, s.rows, s.cols, 1),
                                .y = matrix(rng, s.rows, s.cols, 2),
                                .dy = matrix(rng, s.rows, s.cols, 3),
                                .dx = matrix(rng, s.rows, s.cols, 4)};
    if (index % 2) it.bias = kernel_normal(s.cols, 1, 5);
    return it;
}

static void activations_match(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < SHAPES * 2; i++) {
        rpi_kernel_activation it = draw_activation(&rng, i);
        kernel_check(&(kernel_case){
            names[it.kind], activation_forward, &it, {output("y", it.y, it.rows)}});
        kernel_check(&(kernel_case){
            names[it.kind], activation_backward, &it, {output("dx", it.dx, it.rows)}});
        kernel_buffers_free();
    }
}

static rpi_kernel_gated draw_gated(rpi_rng *rng, int index) {
    shape s = draw_shape(rng, index);
    /* gate and up as two halves of one matrix */
    float *both = kernel_normal(s.rows * 2 * s.cols, 2, 1);
    return (rpi_kernel_gated){.kind = (rpi_activation)(index % RPI_ACTIVATION_COUNT),
                              .rows = s.rows,
                              .cols = s.cols,
                              .gate = rpi_kernel_f32(both, 2 * s.cols),
                              .up = rpi_kernel_f32(both + s.cols, 2 * s.cols),
                              .y = matrix(rng, s.rows, s.cols, 2),
                              .dy = matrix(rng, s.rows, s.cols, 3),
                              .dgate = matrix(rng, s.rows, s.cols, 4),
                              .dup = matrix(rng, s.rows, s.cols, 5)};
}

static void gates_match(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 2);
    for (int i = 0; i < SHAPES; i++) {
        rpi_kernel_gated it = draw_gated(&rng, i);
        kernel_check(
            &(kernel_case){names[it.kind], gated_forward, &it, {output("y", it.y, it.rows)}});
        kernel_check(&(kernel_case){
            names[it.kind],
            gated_backward,
            &it,
            {output("dgate", it.dgate, it.rows), output("dup", it.dup, it.rows)}});
        kernel_buffers_free();
    }
}

static void sums_match(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 3);
    for (int i = 0; i < SHAPES; i++) {
        shape s = draw_shape(&rng, i);
        rpi_kernel_add add = {.rows = s.rows,
                              .cols = s.cols,
                              .a = matrix(&rng, s.rows, s.cols, 1),
                              .b = matrix(&rng, s.rows, s.cols, 2),
                              .bias = i % 2 ? kernel_normal(s.cols, 1, 3) : NULL,
                              .relu = i % 5 > 2,
                              .y = matrix(&rng, s.rows, s.cols, 4)};
        if (i % 3 == 2) add.b.data = NULL;
        kernel_check(&(kernel_case){"add", add_bias, &add, {output("y", add.y, s.rows)}});
        rpi_kernel_relu_gradient relu = {.rows = s.rows,
                                         .cols = s.cols,
                                         .y = add.y,
                                         .dy = add.a,
                                         .dx = matrix(&rng, s.rows, s.cols, 6)};
        kernel_check(&(kernel_case){
            "relu, backward", relu_backward, &relu, {output("dx", relu.dx, s.rows)}});
        s.rows = kernel_size(&rng, 400);
        rpi_kernel_sums sums = {.rows = s.rows,
                                .cols = s.cols,
                                .x = matrix(&rng, s.rows, s.cols, 1),
                                .sums = kernel_normal(s.cols, 1, 5),
                                .accumulate = i % 2};
        kernel_output out = {"sums", sums.sums, s.cols, RP_F32, 1e-5, 1e-4};
        kernel_check(&(kernel_case){"column sums", column_sums, &sums, {out}});
        kernel_buffers_free();
    }
}

/* What is no number goes where the definition says; the values beside it stay right. */
static void nonfinite_values_pass(void) {
    static const float odd[] = {NAN,   INFINITY, -INFINITY, 3e38f,  -3e38f, 1e20f, -1e20f,
                                13.5f, -13.5f,   0.0f,      -0.0f,  1e-40f, 30,    -30,
                                100,   -100,     -5.5f,     -12.5f, 2,      1e-7f, -14.3f};
    enum { ODD = sizeof odd / sizeof odd[0] };
    for (int kind = 0; kind < RPI_ACTIVATION_COUNT; kind++) {
        float *x = kernel_floats(ODD), *y = kernel_floats(ODD), *dx = kernel_floats(ODD);
        float *dy = kernel_normal(ODD, 1, 9);
        memcpy(x, odd, sizeof odd);
        rpi_kernel_activation it = {.kind = (rpi_activation)kind,
                                    .rows = 1,
                                    .cols = ODD,
                                    .x = rpi_kernel_f32(x, ODD),
                                    .y = rpi_kernel_f32(y, ODD),
                                    .dy = rpi_kernel_f32(dy, ODD),
                                    .dx = rpi_kernel_f32(dx, ODD)};
        kernel_check(&(kernel_case){
            names[kind], activation_forward, &it, {{"y", y, ODD, RP_F32, 1e-6, 1e-20}}});
        kernel_check(&(kernel_case){
            names[kind], activation_backward, &it, {{"dx", dx, ODD, RP_F32, 1e-6, 2e-6}}});
        kernel_buffers_free();
    }
}

static void gradients_are_differences(void) {
    enum { ROWS = 3, COLS = 17, COUNT = ROWS * COLS };
    const rpi_kernel_run run = {.threads = 1, .isa = RPI_ISA_SCALAR};
    for (int kind = 0; kind < RPI_ACTIVATION_COUNT; kind++) {
        float *x = kernel_normal(COUNT, 1, 1), *up = kernel_normal(COUNT, 1, 2);
        float *y = kernel_floats(COUNT), *dy = kernel_normal(COUNT, 1, 3);
        float *dx = kernel_floats(COUNT), *dup = kernel_floats(COUNT);
        float *bias = kernel_normal(COLS, 1, 4);
        for (int i = 0; i < COUNT; i++) /* away from the corner of relu */
            if (fabsf(x[i] + bias[i % COLS]) < 0.02f || fabsf(x[i]) < 0.02f) x[i] += 0.1f;
        rpi_kernel_activation plain = {.kind = (rpi_activation)kind,
                                       .rows = ROWS,
                                       .cols = COLS,
                                       .x = rpi_kernel_f32(x, COLS),
                                       .bias = bias,
                                       .y = rpi_kernel_f32(y, COLS),
                                       .dy = rpi_kernel_f32(dy, COLS),
                                       .dx = rpi_kernel_f32(dx, COLS)};
        rpi_kernel_activation_backward(&run, &plain);
        kernel_gradient slope = {
            names[kind], activation_forward, &plain, x, dx, COUNT, y, dy, COUNT, 5e-3, 2e-3};
        kernel_check_gradient(&slope);
        rpi_kernel_gated gated = {.kind = (rpi_activation)kind,
                                  .rows = ROWS,
                                  .cols = COLS,
                                  .gate = plain.x,
                                  .up = rpi_kernel_f32(up, COLS),
                                  .y = plain.y,
                                  .dy = plain.dy,
                                  .dgate = plain.dx,
                                  .dup = rpi_kernel_f32(dup, COLS)};
        rpi_kernel_gated_backward(&run, &gated);
        slope.forward = gated_forward;
        slope.args = &gated;
        kernel_check_gradient(&slope);
        slope.x = up;
        slope.dx = dup;
        kernel_check_gradient(&slope);
        kernel_buffers_free();
    }
}

/* The output in place of the input, as inference wants it. */
static void in_place(void) {
    enum { COUNT = 1000 };
    rpi_kernel_run run = {.threads = 2, .isa = rpi_cpu_isa()};
    float *x = kernel_normal(COUNT, 2, 1), *y = kernel_floats(COUNT);
    rpi_kernel_activation it = {.kind = RPI_ACTIVATION_GELU_TANH,
                                .rows = 10,
                                .cols = 100,
                                .x = rpi_kernel_f32(x, 100),
                                .y = rpi_kernel_f32(y, 100)};
    rpi_kernel_activation_forward(&run, &it);
    it.y = it.x;
    rpi_kernel_activation_forward(&run, &it);
    for (int i = 0; i < COUNT; i++) CHECK(x[i] == y[i]);
    kernel_buffers_free();
}

CASES({"activations_match", activations_match}, {"gates_match", gates_match},
      {"sums_match", sums_match}, {"nonfinite_values_pass", nonfinite_values_pass},
      {"gradients_are_differences", gradients_are_differences}, {"in_place", in_place})
