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
    const rpi_partition_part *area = &part->area;
    for (int64_t i = area->first; i < area->end; i++)
        for (int64_t j = area->left; j < area->right; j++) {
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

static rpi_kernel_cut cut(const rpi_kernel_sgemm *it, int threads) {
    static const rpi_partition_rule rule = {.row_grain = 24,
                                            .col_grain = RPI_SGEMM_COLS,
                                            .packing = 48,
                                            .most_rows = RPI_SGEMM_A / RPI_SGEMM_DEPTH};
    return rpi_partition_of(&rule, it->m, it->n, threads);
}

void rpi_kernel_sgemm_run(const rpi_kernel_run *run, const rpi_kernel_sgemm *args) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(sgemm);
    if (args->m == 0 || args->n == 0) return;
    const rpi_sgemm_work work = {args, cut(args, run->threads)};
    rpi_kernel_run how = *run;
    if (args->k == 0) how.isa = RPI_ISA_SCALAR; /* nothing to pack */
    rpi_kernel_parallel(&how, work.cut.down * work.cut.across, 1, bodies, &work);
}
