#include "engine/backends/cpu/kernels/kernel_dropout.h"

#include "engine/backends/cpu/kernels/simd_dropout.h"

/* Units are groups of 128 elements of the whole tensor; the first may begin before x does. */
RPI_SIMD_BODY(dropout)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_dropout *it = args;
    uint32_t threshold = rpi_dropout_threshold(it->mask.probability);
    simd_row x = row_of(it->x, 0), y = row_of(it->y, 0);
    simd_row residual = row_of(it->residual.data ? it->residual : it->x, 0);
    bool adds = it->residual.data != NULL;
    int64_t before = it->first % RPI_DROPOUT_GROUP;
    if (begin == 0 && before) rpi_dropout_apply_groups(it, 0, 1);
    if (begin == 0 && before) begin = 1;
    for (int64_t group = begin; group < end; group++) {
        philox random =
            draw_group(&it->mask, (uint64_t)(it->first / RPI_DROPOUT_GROUP + group));
        for (int slot = 0; slot < 8; slot++) {
            int64_t i = group * RPI_DROPOUT_GROUP + slot * RPI_LANES - before,
                    live = it->count - i;
            if (live <= 0) break;
            vf value = vf_mul(row_load(x, i, live), dropout_factor(&random, slot, threshold));
            if (adds) value = vf_add(value, row_load(residual, i, live));
            row_store(y, i, value, live);
        }
    }
}
