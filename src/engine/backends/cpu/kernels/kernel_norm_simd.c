#include "engine/backends/cpu/kernels/kernel_norm.h"

#include "engine/backends/cpu/kernels/simd.h"

#include <math.h>

/* Sums run in four chains, so that they do not wait for each addition. */
enum { CHAINS = 4, SPAN = CHAINS * RPI_LANES };

typedef struct chains {
    vf at[CHAINS];
} chains;

SIMD float total(const chains *sum) {
    return vf_sum(vf_add(vf_add(sum->at[0], sum->at[2]), vf_add(sum->at[1], sum->at[3])));
}

SIMD vf add_residual(simd_row x, simd_row residual, simd_row sum, int64_t i, int64_t live) {
    vf h = vf_add(row_load(x, i, live), row_load(residual, i, live));
    row_store(sum, i, h, live);
    return sum.bf16 ? row_load(sum, i, live) : h;
}

/* The sum of h over a row; h = x + residual is written where there is a residual. */
SIMD float sum_row(const rpi_kernel_norm *it, int64_t row, simd_row h) {
    simd_row x = row_of(it->x, row);
    simd_row residual = row_of(it->residual.data ? it->residual : it->x, row);
    bool adds = it->residual.data != NULL;
    chains sum = {{vf_zero(), vf_zero(), vf_zero(), vf_zero()}};
    for (int64_t i = 0; i < it->cols; i += SPAN)
        for (int v = 0; v < CHAINS && i + v * RPI_LANES < it->cols; v++) {
            int64_t k = i + v * RPI_LANES, live = it->cols - k;
            vf value = adds ? add_residual(x, residual, h, k, live) : row_load(x, k, live);
            sum.at[v] = vf_add(sum.at[v], value);
        }
    return total(&sum);
}

SIMD float square_row(simd_row h, int64_t cols, float mean) {
    const vf shift = vf_set(mean);
    chains sum = {{vf_zero(), vf_zero(), vf_zero(), vf_zero()}};
    for (int64_t i = 0; i < cols; i += SPAN)
        for (int v = 0; v < CHAINS && i + v * RPI_LANES < cols; v++) {
            int64_t k = i + v * RPI_LANES, live = cols - k;
            vf d = vf_sub(row_load(h, k, live), shift);
            if (live < RPI_LANES) d = vf_first(d, live);
            sum.at[v] = vf_fma(d, d, sum.at[v]);
        }
    return total(&sum);
}

SIMD void write_row(const rpi_kernel_norm *it, int64_t row, simd_row h, float mean,
                    float inverse) {
    simd_row y = row_of(it->y, row);
    const vf shift = vf_set(mean), factor = vf_set(inverse);
    const float *beta = it->rms ? NULL : it->beta;
    EACH_VECTOR(i, live, it->cols) {
        vf n = vf_mul(vf_sub(row_load(h, i, live), shift), factor);
        if (it->gamma) n = vf_mul(n, vf_load_n(it->gamma + i, live));
        if (beta) n = vf_add(n, vf_load_n(beta + i, live));
        row_store(y, i, n, live);
    }
}

RPI_SIMD_BODY(norm_forward)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_norm *it = args;
    for (int64_t row = begin; row < end; row++) {
        simd_row h = row_of(it->residual.data ? it->sum : it->x, row);
        float mean = 0, count = (float)it->cols;
        if (!it->rms || it->residual.data) mean = sum_row(it, row, h) / count;
        if (it->rms) mean = 0;
        float inverse = 1 / sqrtf(square_row(h, it->cols, mean) / count + it->epsilon);
        write_row(it, row, h, mean, inverse);
        if (!it->rms && it->mean) it->mean[row] = mean;
        if (it->inverse) it->inverse[row] = inverse;
    }
}

/* ---- backward ---- */

/* What the elements of a row have in common. */
typedef struct backward_row {
    simd_row h, dy;
    vf mean, inverse;
} backward_row;

SIMD backward_row row_at(const rpi_kernel_norm *it, int64_t row) {
    return (backward_row){row_of(it->h, row), row_of(it->dy, row),
                          vf_set(it->rms ? 0 : it->mean[row]), vf_set(it->inverse[row])};
}

SIMD vf normal(const backward_row *row, int64_t i, int64_t live) {
    return vf_mul(vf_sub(row_load(row->h, i, live), row->mean), row->inverse);
}

SIMD vf weighted(const rpi_kernel_norm *it, const backward_row *row, int64_t i, int64_t live) {
    vf g = row_load(row->dy, i, live);
    return it->gamma ? vf_mul(g, vf_load_n(it->gamma + i, live)) : g;
}

/* The means of g and g n over a row. Past the end g is 0, and n is finite unless h is not. */
SIMD void means_of(const rpi_kernel_norm *it, const backward_row *row, float *g_mean,
                   float *gn_mean) {
    chains g_sum = {{vf_zero(), vf_zero(), vf_zero(), vf_zero()}}, gn_sum = g_sum;
    for (int64_t i = 0; i < it->cols; i += SPAN)
        for (int v = 0; v < CHAINS && i + v * RPI_LANES < it->cols; v++) {
            int64_t k = i + v * RPI_LANES, live = it->cols - k;
            vf g = weighted(it, row, k, live), n = normal(row, k, live);
            if (live < RPI_LANES) n = vf_first(n, live);
            g_sum.at[v] = vf_add(g_sum.at[v], g);
            gn_sum.at[v] = vf_fma(g, n, gn_sum.at[v]);
        }
    *g_mean = it->rms ? 0 : total(&g_sum) / (float)it->cols;
    *gn_mean = total(&gn_sum) / (float)it->cols;
}

RPI_SIMD_BODY(norm_backward_inputs)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_norm *it = args;
    for (int64_t at = begin; at < end; at++) {
        backward_row row = row_at(it, at);
        simd_row dx = row_of(it->dx, at);
        simd_row dsum = row_of(it->dsum.data ? it->dsum : it->dx, at);
        bool adds = it->dsum.data != NULL;
        float g_mean, gn_mean;
        means_of(it, &row, &g_mean, &gn_mean);
        EACH_VECTOR(i, live, it->cols) {
            vf g = vf_sub(weighted(it, &row, i, live), vf_set(g_mean));
            vf d = vf_mul(vf_fnma(normal(&row, i, live), vf_set(gn_mean), g), row.inverse);
            if (adds) d = vf_add(d, row_load(dsum, i, live));
            row_store(dx, i, d, live);
        }
    }
}

enum { COLUMN_VECTORS = 4 };

typedef struct columns {
    vf gamma[COLUMN_VECTORS], beta[COLUMN_VECTORS];
} columns;

SIMD void clear(columns *it) {
    for (int v = 0; v < COLUMN_VECTORS; v++) it->gamma[v] = it->beta[v] = vf_zero();
}

SIMD void sum_rows(const rpi_kernel_norm *it, int64_t c, int64_t live, int64_t first,
                   columns *sums) {
    int64_t last = first + RPI_KERNEL_NORM_ROWS;
    columns sum;
    clear(&sum);
    for (int64_t r = first; r < last && r < it->rows; r++) {
        backward_row row = row_at(it, r);
        for (int v = 0; v < COLUMN_VECTORS; v++) {
            int64_t k = c + v * RPI_LANES, rest = live - v * RPI_LANES;
            if (rest <= 0) continue;
            vf dy = row_load(row.dy, k, rest);
            sum.gamma[v] = vf_fma(dy, normal(&row, k, rest), sum.gamma[v]);
            sum.beta[v] = vf_add(sum.beta[v], dy);
        }
    }
    for (int v = 0; v < COLUMN_VECTORS; v++) {
        sums->gamma[v] = vf_add(sums->gamma[v], sum.gamma[v]);
        sums->beta[v] = vf_add(sums->beta[v], sum.beta[v]);
    }
}

SIMD void write_sums(float *out, const vf *sum, int64_t live, bool accumulate) {
    if (!out) return;
    for (int v = 0; v < COLUMN_VECTORS && v * RPI_LANES < live; v++) {
        float *at = out + v * RPI_LANES;
        int64_t rest = live - v * RPI_LANES;
        vf_store_n(at, accumulate ? vf_add(sum[v], vf_load_n(at, rest)) : sum[v], rest);
    }
}

/* Units are columns. */
RPI_SIMD_BODY(norm_backward_weights)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_norm *it = args;
    for (int64_t c = begin; c < end; c += COLUMN_VECTORS * RPI_LANES) {
        int64_t live = end - c;
        columns sums;
        clear(&sums);
        for (int64_t first = 0; first < it->rows; first += RPI_KERNEL_NORM_ROWS)
            sum_rows(it, c, live, first, &sums);
        write_sums(it->dgamma ? it->dgamma + c : NULL, sums.gamma, live, it->accumulate);
        write_sums(it->dbeta ? it->dbeta + c : NULL, sums.beta, live, it->accumulate);
    }
}
