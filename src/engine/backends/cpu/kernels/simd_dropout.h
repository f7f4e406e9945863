/* Masks of dropout, sixteen elements at a time (kernel_dropout.h has the definition). */
#ifndef RPI_ENGINE_SIMD_DROPOUT_H
#define RPI_ENGINE_SIMD_DROPOUT_H

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

/* The random numbers of the elements [128 group, 128 group + 128) of a mask. */
SIMD philox draw_group(const rpi_dropout_mask *mask, uint64_t group) {
    uint64_t block = group * RPI_DROPOUT_BLOCKS; /* the low word never wraps within a group */
    uint32_t k0 = (uint32_t)mask->seed, k1 = (uint32_t)(mask->seed >> 32);
    philox c = {{vi_add(vi_set((uint32_t)block), vi_lanes()), vi_set(mask->step),
                 vi_set(mask->tensor), vi_set(RPI_DROPOUT_PURPOSE + (uint32_t)(block >> 32))}};
    for (int round = 0; round < 10; round++) {
        c = philox_round(c, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

/* What 16 elements of a group are multiplied by: 0 or the scale. */
SIMD vf dropout_factor(const philox *random, int slot, uint32_t threshold) {
    vf number = vi_half_as_float(random->word[slot / 2], slot % 2);
    return vf_select(vf_lt(number, vf_set((float)threshold)), vf_zero(),
                     vf_set(rpi_dropout_scale(threshold)));
}

#endif
