/* 16 elements at a time; most of them are passed over. */
#include "codec/topk_kernels.h"

#include <arm_neon.h>
#include <string.h>

static inline uint32x4_t magnitudes(const void *y) {
    uint32x4_t bits = vreinterpretq_u32_u8(vld1q_u8(y));
    return vandq_u32(bits, vdupq_n_u32(0x7fffffff));
}

static void group_max(const float *y, size_t count, size_t groups, uint32_t *max) {
    memset(max, 0, groups * sizeof *max);
    for (size_t i = 0; i < count; i += groups) {
        size_t n = count - i < groups ? count - i : groups, g = 0;
        for (; g + 4 <= n; g += 4)
            vst1q_u32(max + g, vmaxq_u32(vld1q_u32(max + g), magnitudes(y + i + g)));
        for (; g < n; g++) {
            uint32_t magnitude = rpi_magnitude(y + i + g);
            max[g] = magnitude > max[g] ? magnitude : max[g];
        }
    }
}

static size_t count_at_least(const void *values, size_t count, uint32_t least) {
    const float *y = values;
    uint32x4_t bound = vdupq_n_u32(least), found0 = vdupq_n_u32(0), found1 = found0;
    size_t i = 0;
    for (; i + 8 <= count; i += 8) { /* a comparison that holds is -1 */
        found0 = vsubq_u32(found0, vcgeq_u32(magnitudes(y + i), bound));
        found1 = vsubq_u32(found1, vcgeq_u32(magnitudes(y + i + 4), bound));
    }
    return vaddvq_u32(vaddq_u32(found0, found1)) +
           rpi_topk_scalar.count(y + i, count - i, least);
}

static inline uint16x4_t found4(const float *y, uint32x4_t bound) {
    return vmovn_u32(vcgeq_u32(magnitudes(y), bound));
}

/* Four bits for each of 16 elements, set where it is large. */
static inline uint64_t found16(const float *y, uint32x4_t bound) {
    uint16x8_t low = vcombine_u16(found4(y, bound), found4(y + 4, bound));
    uint16x8_t high = vcombine_u16(found4(y + 8, bound), found4(y + 12, bound));
    uint8x16_t large = vcombine_u8(vmovn_u16(low), vmovn_u16(high));
    uint8x8_t nibbles = vshrn_n_u16(vreinterpretq_u16_u8(large), 4);
    return vget_lane_u64(vreinterpret_u64_u8(nibbles), 0);
}

static size_t collect(const float *y, size_t count, uint32_t least, uint32_t *magnitude,
                      uint16_t *index) {
    uint32x4_t bound = vdupq_n_u32(least);
    size_t found = 0, i = 0;
    for (; i + 16 <= count; i += 16) {
        uint64_t mask = found16(y + i, bound) & 0x1111111111111111;
        for (; mask; mask &= mask - 1) {
            size_t at = i + (size_t)__builtin_ctzll(mask) / 4;
            magnitude[found] = rpi_magnitude(y + at);
            index[found++] = (uint16_t)at;
        }
    }
    size_t tail =
        rpi_topk_scalar.collect(y + i, count - i, least, magnitude + found, index + found);
    for (size_t k = 0; k < tail; k++) index[found + k] = (uint16_t)(index[found + k] + i);
    return found + tail;
}

const rpi_topk_kernels rpi_topk_neon = {group_max, count_at_least, collect};
