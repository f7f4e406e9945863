#include "engine/backends/cpu/kernels/kernel_embedding.h"

#include "engine/backends/cpu/kernels/simd.h"

RPI_SIMD_BODY(embedding_forward)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_embedding *it = args;
    for (int64_t t = begin; t < end; t++) {
        int64_t row = rpi_embedding_row(it, t);
        simd_row from = row_of(it->table, row < 0 ? 0 : row), out = row_of(it->out, t);
        EACH_VECTOR(c, live, it->cols) {
            vf value = vf_zero();
            if (row >= 0) value = vf_mul(row_load(from, c, live), vf_set(it->scale));
            if (it->add) value = vf_add(row_load(out, c, live), value);
            row_store(out, c, value, live);
        }
    }
}

enum { SPAN = 4 }; /* vectors of a row at a time */

SIMD void sum_run(const rpi_embedding_runs *runs, int64_t i, int64_t c, float *sums) {
    const rpi_kernel_embedding *it = runs->it;
    vf sum[SPAN] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    for (uint64_t at = rpi_embedding_start(runs, i); at < runs->ends[i]; at++) {
        simd_row dout = row_of(it->dout, (int64_t)(uint32_t)runs->sorted[at]);
        for (int v = 0; v < SPAN && c + v * RPI_LANES < it->cols; v++) {
            int64_t k = c + v * RPI_LANES;
            sum[v] = vf_add(sum[v], row_load(dout, k, it->cols - k));
        }
    }
    for (int v = 0; v < SPAN && c + v * RPI_LANES < it->cols; v++) {
        int64_t k = c + v * RPI_LANES, live = it->cols - k;
        vf value = vf_mul(sum[v], vf_set(it->scale));
        if (it->dense) value = vf_add(value, vf_load_n(sums + k, live));
        vf_store_n(sums + k, value, live);
    }
}

/* Units are touched rows. */
RPI_SIMD_BODY(embedding_backward)(const void *args, int64_t begin, int64_t end) {
    const rpi_embedding_runs *runs = args;
    const rpi_kernel_embedding *it = runs->it;
    for (int64_t i = begin; i < end; i++) {
        float *sums = it->sums + (it->dense ? it->touched[i] : i) * it->cols;
        for (int64_t c = 0; c < it->cols; c += SPAN * RPI_LANES) sum_run(runs, i, c, sums);
    }
}
