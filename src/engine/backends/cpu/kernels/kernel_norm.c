#include "engine/backends/cpu/kernels/kernel_norm.h"

#include <math.h>

static float weight(const rpi_kernel_norm *it, int64_t c) {
    return it->gamma ? it->gamma[c] : 1;
}

static rpi_kernel_rows add_residual(const rpi_kernel_norm *it, int64_t row) {
    if (!it->residual.data) return it->x;
    for (int64_t c = 0; c < it->cols; c++) {
        float sum = rpi_kernel_get(it->x, row, c) + rpi_kernel_get(it->residual, row, c);
        rpi_kernel_put(it->sum, row, c, sum);
    }
    return it->sum;
}

static double mean_of(rpi_kernel_rows h, int64_t row, int64_t cols) {
    double sum = 0;
    for (int64_t c = 0; c < cols; c++) sum += rpi_kernel_get(h, row, c);
    return sum / (double)cols;
}

static double mean_square(rpi_kernel_rows h, int64_t row, int64_t cols, double mean) {
    double sum = 0;
    for (int64_t c = 0; c < cols; c++) {
        double d = rpi_kernel_get(h, row, c) - mean;
        sum += d * d;
    }
    return sum / (double)cols;
}

static void forward_row(const rpi_kernel_norm *it, int64_t row) {
    rpi_kernel_rows h = add_residual(it, row);
    double mean = it->rms ? 0 : mean_of(h, row, it->cols);
    double inverse = 1 / sqrt(mean_square(h, row, it->cols, mean) + it->epsilon);
    for (int64_t c = 0; c < it->cols; c++) {
        double y = (rpi_kernel_get(h, row, c) - mean) * inverse * weight(it, c);
        if (!it->rms && it->beta) y += it->beta[c];
        rpi_kernel_put(it->y, row, c, y);
    }
    if (!it->rms && it->mean) it->mean[row] = (float)mean;
    if (it->inverse) it->inverse[row] = (float)inverse;
}

void rpi_norm_forward_scalar(const void *args, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) forward_row(args, row);
}

static double normal(const rpi_kernel_norm *it, int64_t row, int64_t c) {
    double mean = it->rms ? 0 : it->mean[row];
    return (rpi_kernel_get(it->h, row, c) - mean) * it->inverse[row];
}

static void backward_row(const rpi_kernel_norm *it, int64_t row) {
    double g_mean = 0, gn_mean = 0;
    for (int64_t c = 0; c < it->cols; c++) {
        double g = (double)rpi_kernel_get(it->dy, row, c) * weight(it, c);
        g_mean += g;
        gn_mean += g * normal(it, row, c);
    }
    g_mean = it->rms ? 0 : g_mean / (double)it->cols;
    gn_mean /= (double)it->cols;
    for (int64_t c = 0; c < it->cols; c++) {
        double g = (double)rpi_kernel_get(it->dy, row, c) * weight(it, c);
        double dx = it->inverse[row] * (g - g_mean - normal(it, row, c) * gn_mean);
        if (it->dsum.data) dx += rpi_kernel_get(it->dsum, row, c);
        rpi_kernel_put(it->dx, row, c, dx);
    }
}

void rpi_norm_backward_inputs_scalar(const void *args, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) backward_row(args, row);
}

/* Units are columns. */
void rpi_norm_backward_weights_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_norm *it = args;
    for (int64_t c = begin; c < end; c++) {
        double dgamma = it->accumulate && it->dgamma ? it->dgamma[c] : 0;
        double dbeta = it->accumulate && it->dbeta ? it->dbeta[c] : 0;
        for (int64_t row = 0; row < it->rows; row++) {
            double dy = rpi_kernel_get(it->dy, row, c);
            dgamma += dy * normal(it, row, c);
            dbeta += dy;
        }
        if (it->dgamma) it->dgamma[c] = (float)dgamma;
        if (it->dbeta) it->dbeta[c] = (float)dbeta;
    }
}

void rpi_kernel_norm_forward(const rpi_kernel_run *run, const rpi_kernel_norm *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(norm_forward);
    rpi_kernel_parallel(run, it->cols > 0 ? it->rows : 0, 1, bodies, it);
}

void rpi_kernel_norm_backward_inputs(const rpi_kernel_run *run, const rpi_kernel_norm *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(norm_backward_inputs);
    rpi_kernel_parallel(run, it->cols > 0 ? it->rows : 0, 1, bodies, it);
}

void rpi_kernel_norm_backward_weights(const rpi_kernel_run *run, const rpi_kernel_norm *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(norm_backward_weights);
    rpi_kernel_parallel(run, it->cols, 64, bodies, it);
}
