#include "engine/backends/cpu/kernels/kernel_dropout.h"

#include "engine/backends/cpu/kernels/simd.h"

/* Sixteen blocks of Philox4x32-10 at a time, one a lane. */
typedef struct philox {
    vi word[4];
} philox;

SIMD philox philox_round(philox c, uint32_t k0, uint32_t k1) {
    vi high0, low0, high1, low1;
    vi_multiply(c.word[0], 0xD2511F53u, &high0, &low0);
    vi_multiply(c.word[2], 0xCD9E8D57u, &high1, &low1);
    return (philox){{vi_xor(vi_xor(high1, c.word[1]), vi_set(k0)), low1,
                     vi_xor(vi_xor(high0, c.word[3]), vi_set(k1)), low0}};
}

SIMD philox draw(const rpi_kernel_dropout *it, uint64_t group) {
    uint64_t block = group * RPI_DROPOUT_BLOCKS; /* the low word never wraps within a group */
    uint32_t k0 = (uint32_t)it->seed, k1 = (uint32_t)(it->seed >> 32);
    philox c = {{vi_add(vi_set((uint32_t)block), vi_lanes()), vi_set(it->step),
                 vi_set(it->tensor), vi_set(RPI_DROPOUT_PURPOSE + (uint32_t)(block >> 32))}};
    for (int round = 0; round < 10; round++) {
        c = philox_round(c, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

/* Units are groups of 128 elements. */
RPI_SIMD_BODY(dropout)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_dropout *it = args;
    uint32_t threshold = rpi_dropout_threshold(it->probability);
    const vf scale = vf_set(rpi_dropout_scale(threshold));
    simd_row x = row_of(it->x, 0), y = row_of(it->y, 0);
    simd_row residual = row_of(it->residual.data ? it->residual : it->x, 0);
    bool adds = it->residual.data != NULL;
    for (int64_t group = begin; group < end; group++) {
        philox random = draw(it, (uint64_t)(it->first / RPI_DROPOUT_GROUP + group));
        for (int slot = 0; slot < 8; slot++) {
            int64_t i = group * RPI_DROPOUT_GROUP + slot * RPI_LANES, live = it->count - i;
            if (live <= 0) break;
            vf number = vi_half_as_float(random.word[slot / 2], slot % 2);
            vf factor = vf_select(vf_lt(number, vf_set((float)threshold)), vf_zero(), scale);
            vf value = vf_mul(row_load(x, i, live), factor);
            if (adds) value = vf_add(value, row_load(residual, i, live));
            row_store(y, i, value, live);
        }
    }
}
