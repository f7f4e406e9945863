/* The quantiser with NEON (Advanced SIMD of AArch64): 16 elements at a time. quant_vector.h is
 * its shape. */
#include "codec/quant_kernels.h"

#include <arm_neon.h>
#include <string.h>

#define LANES 4
#define V(op) neon_##op
typedef float32x4_t floats;
typedef int32x4_t integers;

/* What quant_vector.h calls, by the names that the other instruction sets have for it. */
#define neon_set1_ps(value)    vdupq_n_f32(value)
#define neon_set1_epi32(value) vdupq_n_s32(value)
#define neon_cvtepi32_ps(a)    vcvtq_f32_s32(a)
#define neon_cvttps_epi32(a)   vcvtq_s32_f32(a)
#define neon_min_ps(a, b)      vminq_f32(a, b)
#define neon_max_ps(a, b)      vmaxq_f32(a, b)
#define neon_add_ps(a, b)      vaddq_f32(a, b)
#define neon_sub_ps(a, b)      vsubq_f32(a, b)
#define neon_mul_ps(a, b)      vmulq_f32(a, b)
#define neon_div_ps(a, b)      vdivq_f32(a, b)
#define neon_loadu_ps(from)    vld1q_f32(from)
#define neon_storeu_ps(to, a)  vst1q_f32(to, a)
#define neon_srli_epi64(a, count)                                                              \
    vreinterpretq_s32_u64(vshrq_n_u64(vreinterpretq_u64_s32(a), count))

static inline int32x4_t neon_add_epi64(int32x4_t a, int32x4_t b) {
    return vreinterpretq_s32_s64(vaddq_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}

/* Of the lower dword of each qword. */
static inline int32x4_t neon_mul_epu32(int32x4_t a, int32x4_t b) {
    uint32x2_t low_a = vmovn_u64(vreinterpretq_u64_s32(a));
    uint32x2_t low_b = vmovn_u64(vreinterpretq_u64_s32(b));
    return vreinterpretq_s32_u64(vmull_u32(low_a, low_b));
}

/* What packing 16 levels needs, the same for a whole run. */
typedef struct packing {
    int16x8_t pair; /* shifts that bring a level, two and four of them next to the lower */
    int32x4_t quad;
    int64x2_t eight;
    int bits;
    int reach; /* bytes that pack_block() writes, of which 2 * bits count */
} packing;

static inline packing packing_of(int bits) {
    return (packing){
        .pair = vdupq_n_s16((int16_t)bits),
        .quad = vdupq_n_s32(2 * bits),
        .eight = vdupq_n_s64(4 * bits),
        .bits = bits,
        .reach = bits + 8,
    };
}

/* level[v] holds elements 4v to 4v + 3. */
static inline void pack_block(const packing *how, const int32x4_t level[4], uint8_t *out) {
    uint16x8_t low = vcombine_u16(vmovn_u32(vreinterpretq_u32_s32(level[0])),
                                  vmovn_u32(vreinterpretq_u32_s32(level[1])));
    uint16x8_t high = vcombine_u16(vmovn_u32(vreinterpretq_u32_s32(level[2])),
                                   vmovn_u32(vreinterpretq_u32_s32(level[3])));
    uint16x8_t even = vuzp1q_u16(low, high), odd = vuzp2q_u16(low, high);
    uint32x4_t pairs = vreinterpretq_u32_u16(vorrq_u16(even, vshlq_u16(odd, how->pair)));
    uint32x4_t upper = vshlq_u32(vshrq_n_u32(pairs, 16), how->quad);
    uint32x4_t fours = vorrq_u32(vandq_u32(pairs, vdupq_n_u32(0xffff)), upper);
    uint64x2_t wide = vreinterpretq_u64_u32(fours);
    uint64x2_t top = vshlq_u64(vshrq_n_u64(wide, 32), how->eight);
    uint64x2_t eights = vorrq_u64(vandq_u64(wide, vdupq_n_u64(0xffffffff)), top);
    uint8x16_t bytes = vreinterpretq_u8_u64(eights);
    vst1_u8(out, vget_low_u8(bytes));
    vst1_u8(out + how->bits, vget_high_u8(bytes));
}

static inline int32x4_t widen16(const uint16_t *random) {
    return vreinterpretq_s32_u32(vmovl_u16(vld1_u16(random)));
}

static inline int32x4_t set1_64(long long number) {
    return vreinterpretq_s32_s64(vdupq_n_s64(number));
}

static inline int32x4_t xor3(int32x4_t a, int32x4_t b, int32x4_t c) {
    return veorq_s32(a, veorq_s32(b, c));
}

static inline int32x4_t block_order(void) {
    return vreinterpretq_s32_s64(vcombine_s64(vcreate_s64(0), vcreate_s64(1)));
}

static inline void philox_store(const int32x4_t word[4], uint16_t out[16]) {
    int64x2_t first = vreinterpretq_s64_s32(vtrn1q_s32(word[0], word[1]));
    int64x2_t second = vreinterpretq_s64_s32(vtrn1q_s32(word[2], word[3]));
    vst1q_u16(out, vreinterpretq_u16_s64(vzip1q_s64(first, second)));
    vst1q_u16(out + 8, vreinterpretq_u16_s64(vzip2q_s64(first, second)));
}

#include "codec/quant_vector.h"

static inline float32x4_t fed(const float *x, const float *residual, size_t i) {
    float32x4_t y = vld1q_f32(x + i);
    return residual ? vaddq_f32(y, vld1q_f32(residual + i)) : y;
}

/* Comparisons, since FMINNM makes a signaling NaN of the data its result. */
static inline float32x4_t smaller(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

static inline float32x4_t larger(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

static void range(const float *x, const float *residual, size_t count, rpi_quant_range *range) {
    float32x4_t min0 = vdupq_n_f32(range->min), min1 = min0;
    float32x4_t max0 = vdupq_n_f32(range->max), max1 = max0;
    uint32x4_t numbers = vdupq_n_u32(~0u);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        float32x4_t a = fed(x, residual, i), b = fed(x, residual, i + 4);
        min0 = smaller(a, min0);
        max0 = larger(a, max0);
        min1 = smaller(b, min1);
        max1 = larger(b, max1);
        numbers = vandq_u32(numbers, vandq_u32(vceqq_f32(a, a), vceqq_f32(b, b)));
    }
    range->min = vminvq_f32(smaller(min0, min1));
    range->max = vmaxvq_f32(larger(max0, max1));
    range->has_nan |= vminvq_u32(numbers) == 0;
    rpi_quant_scalar.range(x + i, residual ? residual + i : NULL, count - i, range);
}

/* Levels of 8 elements: every dword gets the two bytes its level lies in, then shifts. */
static void moments(const float *x, const float *residual, size_t count, double shift,
                    double out[2]) {
    enum { PAIRS = RPI_MOMENT_LANES / 2 };
    float64x2_t sum[PAIRS], square[PAIRS], shifts = vdupq_n_f64(shift);
    for (int p = 0; p < PAIRS; p++) sum[p] = square[p] = vdupq_n_f64(0);
    size_t i = 0;
    for (; i + RPI_MOMENT_LANES <= count; i += RPI_MOMENT_LANES)
        for (size_t p = 0; p < PAIRS; p += 2) {
            float32x4_t y = fed(x, residual, i + 2 * p);
            float64x2_t d[2] = {vcvt_f64_f32(vget_low_f32(y)), vcvt_high_f64_f32(y)};
            for (size_t half = 0; half < 2; half++) {
                d[half] = vsubq_f64(d[half], shifts);
                sum[p + half] = vaddq_f64(sum[p + half], d[half]);
                square[p + half] = vaddq_f64(square[p + half], vmulq_f64(d[half], d[half]));
            }
        }
    double lane[2][RPI_MOMENT_LANES];
    for (int p = 0; p < PAIRS; p++) {
        vst1q_f64(lane[0] + 2 * p, sum[p]);
        vst1q_f64(lane[1] + 2 * p, square[p]);
    }
    rpi_moment_rest(x, residual, i, count, shift, lane);
    out[0] = rpi_moment_fold(lane[0]);
    out[1] = rpi_moment_fold(lane[1]);
}

typedef struct unpacking {
    int bits;
    uint8x16_t bytes[2];
    int32x4_t shift[2];
    scaling scale;
} unpacking;

static inline unpacking unpacking_of(int bits, rpi_quant_scale scale) {
    unpacking how = {.bits = bits, .scale = scaling_of(scale, bits)};
    for (int half = 0; half < 2; half++) {
        uint8_t bytes[16];
        int32_t shift[4];
        memset(bytes, 0xff, sizeof bytes); /* reads as 0 */
        for (int lane = 0; lane < 4; lane++) {
            int bit = (4 * half + lane) * bits;
            bytes[4 * lane] = (uint8_t)(bit / 8);
            bytes[4 * lane + 1] = (uint8_t)(bit / 8 + 1);
            shift[lane] = -(bit % 8);
        }
        how.bytes[half] = vld1q_u8(bytes);
        how.shift[half] = vld1q_s32(shift);
    }
    return how;
}

/* packed: the `bits` bytes of 8 elements; what is above them does not matter. */
INLINE float32x4_t unpack4(const unpacking *how, uint64_t packed, int half) {
    uint8x16_t all = vcombine_u8(vcreate_u8(packed), vcreate_u8(0));
    uint32x4_t spread = vreinterpretq_u32_u8(vqtbl1q_u8(all, how->bytes[half]));
    int32x4_t level = vreinterpretq_s32_u32(vshlq_u32(spread, how->shift[half]));
    return value_of(vandq_s32(level, how->scale.top), &how->scale);
}

static inline void dequantise_run(const uint8_t *in, int bits, rpi_quant_scale scale,
                                  size_t count, const float *base, float *y) {
    unpacking how = unpacking_of(bits, scale);
    const uint8_t *end = in + rpi_packed_bytes(count, bits);
    size_t i = 0;
    for (; i + 8 <= count; i += 8, in += bits) {
        uint64_t packed = 0;
        if (end - in >= 8)
            memcpy(&packed, in, 8);
        else
            memcpy(&packed, in, (size_t)bits);
        for (int half = 0; half < 2; half++) {
            size_t at = i + 4 * (size_t)half;
            float32x4_t value = unpack4(&how, packed, half);
            if (base) value = vaddq_f32(vld1q_f32(base + at), value);
            vst1q_f32(y + at, value);
        }
    }
    if (i == count) return;
    if (base)
        rpi_quant_scalar.dequantise_sum(in, bits, scale, count - i, base + i, y + i);
    else
        rpi_quant_scalar.dequantise(in, bits, scale, count - i, y + i);
}

const rpi_quant_kernels rpi_quant_neon = {
    range, moments, quantise, quantise_buckets, dequantise, dequantise_sum, random_bits};
