/* Element-wise kernels with a bias: activations, gated activations, sums.
 *
 * Shapes: every matrix is [rows, cols], f32 or bf16, each with its own stride and dtype; bias
 * is [cols] f32 or NULL. Arithmetic is f32. An output may be an input of the same stride and
 * dtype. NaN and infinity go where the equations take them.
 *
 * Hendrycks, Gimpel, "Gaussian error linear units (GELUs)", 2016. Shazeer, "GLU variants
 * improve transformer", 2020 (SwiGLU is SILU here, GEGLU is a GELU). */
#ifndef RPI_ENGINE_KERNEL_ACTIVATION_H
#define RPI_ENGINE_KERNEL_ACTIVATION_H

#include "engine/backends/cpu/kernels/kernel.h"

typedef enum rpi_activation {
    RPI_ACTIVATION_NONE,      /* z */
    RPI_ACTIVATION_RELU,      /* max(z, 0) */
    RPI_ACTIVATION_GELU_TANH, /* z (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))) / 2 */
    RPI_ACTIVATION_GELU_ERF,  /* z (1 + erf(z / sqrt 2)) / 2 */
    RPI_ACTIVATION_SILU,      /* z / (1 + e^-z) */
    RPI_ACTIVATION_TANH,
    RPI_ACTIVATION_COUNT
} rpi_activation;

/* y = f(x + bias), and backward dx = dy f'(x + bias): x is what went in, before the bias. The
 * gradient of the bias is rpi_kernel_column_sums of dx. */
typedef struct rpi_kernel_activation {
    rpi_activation kind;
    int64_t rows, cols;
    rpi_kernel_rows x;
    const float *bias;
    rpi_kernel_rows y;      /* forward: the output */
    rpi_kernel_rows dy, dx; /* backward: dy is read, dx written */
} rpi_kernel_activation;

void rpi_kernel_activation_forward(const rpi_kernel_run *run, const rpi_kernel_activation *it);
void rpi_kernel_activation_backward(const rpi_kernel_run *run, const rpi_kernel_activation *it);

/* y = f(gate) up; backward: dgate = dy up f'(gate), dup = dy f(gate). gate and up may be two
 * halves of the rows of one matrix: data apart by cols, stride 2 cols. */
typedef struct rpi_kernel_gated {
    rpi_activation kind;
    int64_t rows, cols;
    rpi_kernel_rows gate, up, y;
    rpi_kernel_rows dy, dgate, dup;
} rpi_kernel_gated;

void rpi_kernel_gated_forward(const rpi_kernel_run *run, const rpi_kernel_gated *it);
void rpi_kernel_gated_backward(const rpi_kernel_run *run, const rpi_kernel_gated *it);

/* y = a + b + bias, a residual connection after a linear layer, or max(0, that). b.data NULL:
 * y = a + bias. */
typedef struct rpi_kernel_add {
    int64_t rows, cols;
    rpi_kernel_rows a, b;
    const float *bias;
    bool relu;
    rpi_kernel_rows y;
} rpi_kernel_add;

void rpi_kernel_add_bias(const rpi_kernel_run *run, const rpi_kernel_add *it);

/* dx = 0 where y, which relu made, is 0, else dy: also where dy is no number. */
typedef struct rpi_kernel_relu_gradient {
    int64_t rows, cols;
    rpi_kernel_rows y, dy, dx;
} rpi_kernel_relu_gradient;

void rpi_kernel_relu_backward(const rpi_kernel_run *run, const rpi_kernel_relu_gradient *it);

/* sums[c] = the sum of x[., c], added to what is there where `accumulate` is true; f32. Sums
 * run in row order over blocks of 64 rows, whose sums are added in order. */
typedef struct rpi_kernel_sums {
    int64_t rows, cols;
    rpi_kernel_rows x;
    float *sums;
    bool accumulate;
} rpi_kernel_sums;

void rpi_kernel_column_sums(const rpi_kernel_run *run, const rpi_kernel_sums *it);

/* ---- inside ---- */

enum { RPI_KERNEL_SUM_ROWS = 64 };

RPI_KERNEL_DECLARE(activation_forward);
RPI_KERNEL_DECLARE(activation_backward);
RPI_KERNEL_DECLARE(gated_forward);
RPI_KERNEL_DECLARE(gated_backward);
RPI_KERNEL_DECLARE(add_bias);
RPI_KERNEL_DECLARE(relu_backward);
RPI_KERNEL_DECLARE(column_sums);

#endif
