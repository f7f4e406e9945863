#include "engine/backends/cpu/kernels/kernel_activation.h"

#include <math.h>

/* f(z) and f'(z). */
typedef struct value_slope {
    double value, slope;
} value_slope;

static value_slope gelu_tanh(double z) {
    const double root = 0.79788456080286535588, cubic = 0.044715; /* sqrt(2 / pi) */
    double t = tanh(root * (z + cubic * z * z * z));
    double inner = root * (1 + 3 * cubic * z * z);
    return (value_slope){0.5 * z * (1 + t), 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * inner};
}

static value_slope gelu_erf(double z) {
    double cdf = 0.5 * erfc(-z * 0.70710678118654752440);
    double pdf = 0.39894228040143267794 * exp(-0.5 * z * z);
    return (value_slope){z * cdf, cdf + z * pdf};
}

static value_slope silu(double z) {
    double s = 1 / (1 + exp(-z));
    return (value_slope){z * s, s + z * s * (1 - s)};
}

static value_slope evaluate(rpi_activation kind, double z) {
    double t;
    switch (kind) {
    case RPI_ACTIVATION_RELU: return (value_slope){z < 0 ? 0 : z, z <= 0 ? 0 : 1};
    case RPI_ACTIVATION_GELU_TANH: return gelu_tanh(z);
    case RPI_ACTIVATION_GELU_ERF: return gelu_erf(z);
    case RPI_ACTIVATION_SILU: return silu(z);
    case RPI_ACTIVATION_TANH: t = tanh(z); return (value_slope){t, 1 - t * t};
    default: return (value_slope){z, 1};
    }
}

/* Work is counted in pieces of rows. */
typedef struct piece {
    int64_t row, begin, end;
} piece;

static piece piece_at(int64_t unit, int64_t cols) {
    int64_t pieces = rpi_kernel_pieces(cols), begin = unit % pieces * RPI_KERNEL_PIECE;
    int64_t end = begin + RPI_KERNEL_PIECE;
    return (piece){unit / pieces, begin, end < cols ? end : cols};
}

static double biased(rpi_kernel_rows x, const float *bias, int64_t row, int64_t col) {
    float z = rpi_kernel_get(x, row, col); /* the sum is rounded to f32, as GEMM + bias is */
    return bias ? z + bias[col] : z;
}

void rpi_activation_forward_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_activation *it = args;
    for (int64_t unit = begin; unit < end; unit++) {
        piece at = piece_at(unit, it->cols);
        for (int64_t c = at.begin; c < at.end; c++)
            rpi_kernel_put(it->y, at.row, c,
                           evaluate(it->kind, biased(it->x, it->bias, at.row, c)).value);
    }
}

void rpi_activation_backward_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_activation *it = args;
    for (int64_t unit = begin; unit < end; unit++) {
        piece at = piece_at(unit, it->cols);
        for (int64_t c = at.begin; c < at.end; c++) {
            double slope = evaluate(it->kind, biased(it->x, it->bias, at.row, c)).slope;
            rpi_kernel_put(it->dx, at.row, c, rpi_kernel_get(it->dy, at.row, c) * slope);
        }
    }
}

void rpi_gated_forward_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_gated *it = args;
    for (int64_t unit = begin; unit < end; unit++) {
        piece at = piece_at(unit, it->cols);
        for (int64_t c = at.begin; c < at.end; c++) {
            double open = evaluate(it->kind, rpi_kernel_get(it->gate, at.row, c)).value;
            rpi_kernel_put(it->y, at.row, c, open * rpi_kernel_get(it->up, at.row, c));
        }
    }
}

void rpi_gated_backward_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_gated *it = args;
    for (int64_t unit = begin; unit < end; unit++) {
        piece at = piece_at(unit, it->cols);
        for (int64_t c = at.begin; c < at.end; c++) {
            value_slope open = evaluate(it->kind, rpi_kernel_get(it->gate, at.row, c));
            double dy = rpi_kernel_get(it->dy, at.row, c);
            double up = rpi_kernel_get(it->up, at.row, c);
            rpi_kernel_put(it->dgate, at.row, c, dy * up * open.slope);
            rpi_kernel_put(it->dup, at.row, c, dy * open.value);
        }
    }
}

void rpi_add_bias_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_add *it = args;
    for (int64_t unit = begin; unit < end; unit++) {
        piece at = piece_at(unit, it->cols);
        for (int64_t c = at.begin; c < at.end; c++) {
            double sum = rpi_kernel_get(it->a, at.row, c);
            if (it->b.data) sum += rpi_kernel_get(it->b, at.row, c);
            if (it->bias) sum += it->bias[c];
            rpi_kernel_put(it->y, at.row, c, it->relu && sum < 0 ? 0 : sum);
        }
    }
}

void rpi_relu_backward_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_relu_gradient *it = args;
    for (int64_t unit = begin; unit < end; unit++) {
        piece at = piece_at(unit, it->cols);
        for (int64_t c = at.begin; c < at.end; c++) {
            bool closed = rpi_kernel_get(it->y, at.row, c) <= 0;
            double dy = rpi_kernel_get(it->dy, at.row, c);
            rpi_kernel_put(it->dx, at.row, c, closed ? 0 : dy);
        }
    }
}

/* Units are columns. */
void rpi_column_sums_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_sums *it = args;
    for (int64_t c = begin; c < end; c++) {
        double sum = it->accumulate ? it->sums[c] : 0;
        for (int64_t r = 0; r < it->rows; r++) sum += rpi_kernel_get(it->x, r, c);
        it->sums[c] = (float)sum;
    }
}

void rpi_kernel_activation_forward(const rpi_kernel_run *run, const rpi_kernel_activation *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(activation_forward);
    rpi_kernel_parallel(run, it->rows * rpi_kernel_pieces(it->cols), 1, bodies, it);
}

void rpi_kernel_activation_backward(const rpi_kernel_run *run,
                                    const rpi_kernel_activation *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(activation_backward);
    rpi_kernel_parallel(run, it->rows * rpi_kernel_pieces(it->cols), 1, bodies, it);
}

void rpi_kernel_gated_forward(const rpi_kernel_run *run, const rpi_kernel_gated *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(gated_forward);
    rpi_kernel_parallel(run, it->rows * rpi_kernel_pieces(it->cols), 1, bodies, it);
}

void rpi_kernel_gated_backward(const rpi_kernel_run *run, const rpi_kernel_gated *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(gated_backward);
    rpi_kernel_parallel(run, it->rows * rpi_kernel_pieces(it->cols), 1, bodies, it);
}

void rpi_kernel_add_bias(const rpi_kernel_run *run, const rpi_kernel_add *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(add_bias);
    rpi_kernel_parallel(run, it->rows * rpi_kernel_pieces(it->cols), 1, bodies, it);
}

void rpi_kernel_relu_backward(const rpi_kernel_run *run, const rpi_kernel_relu_gradient *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(relu_backward);
    rpi_kernel_parallel(run, it->rows * rpi_kernel_pieces(it->cols), 1, bodies, it);
}

void rpi_kernel_column_sums(const rpi_kernel_run *run, const rpi_kernel_sums *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(column_sums);
    rpi_kernel_parallel(run, it->cols, 64, bodies, it);
}
