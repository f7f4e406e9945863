#include "engine/backends/cpu/kernels/kernel_sgemm.h"

/* ---- the definition ---- */

static double product_at(const rpi_kernel_sgemm *it, int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t k = 0; k < it->k; k++) {
        float a = it->a_transposed ? rpi_kernel_get(it->a, k, i) : rpi_kernel_get(it->a, i, k);
        float b = it->b_transposed ? rpi_kernel_get(it->b, j, k) : rpi_kernel_get(it->b, k, j);
        sum += (double)a * (double)b;
    }
    return sum;
}

static void define(const rpi_kernel_sgemm *it, const rpi_sgemm_part *part) {
    for (int64_t i = part->first; i < part->end; i++)
        for (int64_t j = part->left; j < part->right; j++) {
            double sum = product_at(it, i, j);
            if (it->accumulate) sum += (double)rpi_kernel_get(it->c, i, j);
            if (it->bias) sum += (double)it->bias[j];
            rpi_kernel_put(it->c, i, j, sum);
        }
}

void rpi_sgemm_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_sgemm_work *work = args;
    for (int64_t i = begin; i < end; i++) {
        const rpi_sgemm_part part = rpi_sgemm_part_of(work, i);
        define(work->it, &part);
    }
}

bool rpi_kernel_sgemm_is_fast(const rpi_kernel_run *run) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(sgemm);
    return bodies[run->isa] != rpi_sgemm_scalar;
}

size_t rpi_kernel_sgemm_workspace(const rpi_kernel_run *run) {
    return (size_t)run->threads * RPI_SGEMM_PACKED * sizeof(float);
}

/* ---- parts for threads ---- */

enum { ROW_GRAIN = 24, COL_GRAIN = 32 }; /* of which parts get whole ones */

static int64_t grains(int64_t count, int64_t grain) {
    return (count + grain - 1) / grain;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Each thread packs its rows of a and its columns of b, and to pack an element takes about as
 * long as to multiply one 48 times; the largest part decides how long all wait. */
static rpi_sgemm_work cut(const rpi_kernel_sgemm *it, int threads) {
    enum { PACKING = 48 };
    rpi_sgemm_work best = {.it = it, .down = 1, .across = 1};
    int64_t least_cost = INT64_MAX;
    for (int64_t across = 1; across <= threads; across++) {
        const int64_t down = least(threads / across, grains(it->m, ROW_GRAIN));
        if (across > grains(it->n, COL_GRAIN)) break;
        const int64_t rows = grains(grains(it->m, ROW_GRAIN), down) * ROW_GRAIN;
        const int64_t cols = grains(grains(it->n, COL_GRAIN), across) * COL_GRAIN;
        const int64_t cost = rows * cols + PACKING * (rows + cols);
        if (cost >= least_cost) continue;
        least_cost = cost;
        best.down = down;
        best.across = across;
    }
    return best;
}

rpi_sgemm_part rpi_sgemm_part_of(const rpi_sgemm_work *work, int64_t part) {
    const rpi_kernel_sgemm *it = work->it;
    const int64_t rows = grains(it->m, ROW_GRAIN), cols = grains(it->n, COL_GRAIN);
    const int64_t i = part / work->across, j = part % work->across;
    return (rpi_sgemm_part){
        .first = rows * i / work->down * ROW_GRAIN,
        .end = least(rows * (i + 1) / work->down * ROW_GRAIN, it->m),
        .left = cols * j / work->across * COL_GRAIN,
        .right = least(cols * (j + 1) / work->across * COL_GRAIN, it->n),
        .packed = it->workspace ? (float *)it->workspace + part * RPI_SGEMM_PACKED : NULL};
}

void rpi_kernel_sgemm_run(const rpi_kernel_run *run, const rpi_kernel_sgemm *args) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(sgemm);
    if (args->m == 0 || args->n == 0) return;
    const rpi_sgemm_work work = cut(args, run->threads);
    rpi_kernel_run how = *run;
    if (args->k == 0) how.isa = RPI_ISA_SCALAR; /* nothing to pack */
    rpi_kernel_parallel(&how, work.down * work.across, 1, bodies, &work);
}
