/* The quantiser with AVX2: 32 elements at a time. quant_vector.h is its shape. */
#include "codec/quant_kernels.h"

#include "codec/quant_pack.h"

#include <immintrin.h>
#include <string.h>

#define LANES 8
#define V(op) _mm256_##op
typedef __m256 floats;
typedef __m256i integers;

/* What packing 32 levels needs, the same for a whole run. */
typedef struct packing {
    __m256i pair, quad, low_half, order, compact; /* as in quant_avx512.c */
    __m128i high_shift;
    int bits;
    int reach; /* bytes that pack_block() writes, of which 4 * bits count */
} packing;

static inline packing packing_of(int bits) {
    int narrow = bits < 8 ? bits : 7;
    __m128i compact = _mm_loadu_si128((const __m128i *)rpi_compact[narrow]);
    return (packing){
        .bits = bits,
        .pair = _mm256_set1_epi16((short)(1 | 1 << (8 + narrow))),
        .quad = _mm256_set1_epi32(1 | 1 << (16 + 2 * narrow)),
        .low_half = _mm256_set1_epi64x((1LL << (4 * narrow)) - 1),
        .high_shift = _mm_cvtsi32_si128(32 - 4 * narrow),
        .order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7),
        .compact = _mm256_broadcastsi128_si256(compact),
        .reach = bits == 8 ? 32 : 2 * bits + (bits <= 4 ? 8 : 16),
    };
}

/* level[v] holds elements 8v to 8v + 7. */
static inline void pack_block(const packing *how, const __m256i level[4], uint8_t *out) {
    __m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(level[0], level[1]),
                                        _mm256_packus_epi32(level[2], level[3]));
    if (how->bits == 8) {
        bytes = _mm256_permutevar8x32_epi32(bytes, how->order);
        _mm256_storeu_si256((__m256i *)out, bytes);
        return;
    }
    __m256i fours = _mm256_madd_epi16(_mm256_maddubs_epi16(how->pair, bytes), how->quad);
    fours = _mm256_permutevar8x32_epi32(fours, how->order);
    __m256i upper = _mm256_srl_epi64(fours, how->high_shift);
    __m256i eights = _mm256_or_si256(_mm256_and_si256(how->low_half, fours),
                                     _mm256_andnot_si256(how->low_half, upper));
    __m256i packed = _mm256_shuffle_epi8(eights, how->compact);
    __m128i low = _mm256_castsi256_si128(packed), high = _mm256_extracti128_si256(packed, 1);
    if (how->bits <= 4) {
        _mm_storel_epi64((__m128i *)out, low);
        _mm_storel_epi64((__m128i *)(out + 2 * how->bits), high);
    } else {
        _mm_storeu_si128((__m128i *)out, low);
        _mm_storeu_si128((__m128i *)(out + 2 * how->bits), high);
    }
}

static inline __m256i widen16(const uint16_t *random) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)random));
}

static inline __m256i set1_64(long long number) {
    return _mm256_set1_epi64x(number);
}

static inline __m256i xor3(__m256i a, __m256i b, __m256i c) {
    return _mm256_xor_si256(a, _mm256_xor_si256(b, c));
}

/* So that unpacklo and unpackhi give blocks in sequence. */
static inline __m256i block_order(void) {
    return _mm256_setr_epi64x(0, 2, 1, 3);
}

static inline __m256i interleave(__m256i low, __m256i high) {
    return _mm256_blend_epi32(low, _mm256_slli_epi64(high, 32), 0xaa);
}

static inline void philox_store(const __m256i word[4], uint16_t out[32]) {
    __m256i first = interleave(word[0], word[1]);
    __m256i second = interleave(word[2], word[3]);
    _mm256_storeu_si256((__m256i *)out, _mm256_unpacklo_epi64(first, second));
    _mm256_storeu_si256((__m256i *)(out + 16), _mm256_unpackhi_epi64(first, second));
}

#include "codec/quant_vector.h"

static inline __m256 feedback_of(__m256 x, const float *residual, size_t i) {
    return residual ? _mm256_add_ps(x, _mm256_loadu_ps(residual + i)) : x;
}

static void range(const float *x, const float *residual, size_t count, rpi_quant_range *range) {
    __m256 min0 = _mm256_set1_ps(range->min), min1 = min0;
    __m256 max0 = _mm256_set1_ps(range->max), max1 = max0;
    __m256 nan = _mm256_setzero_ps();
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m256 a = feedback_of(_mm256_loadu_ps(x + i), residual, i);
        __m256 b = feedback_of(_mm256_loadu_ps(x + i + 8), residual, i + 8);
        min0 = _mm256_min_ps(a, min0); /* a NaN in the first operand gives the second */
        max0 = _mm256_max_ps(a, max0);
        min1 = _mm256_min_ps(b, min1);
        max1 = _mm256_max_ps(b, max1);
        nan = _mm256_or_ps(nan, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
    }
    float min[8], max[8];
    _mm256_storeu_ps(min, _mm256_min_ps(min0, min1));
    _mm256_storeu_ps(max, _mm256_max_ps(max0, max1));
    for (int k = 0; k < 8; k++) {
        range->min = min[k] < range->min ? min[k] : range->min;
        range->max = max[k] > range->max ? max[k] : range->max;
    }
    range->has_nan |= _mm256_movemask_ps(nan) != 0;
    rpi_quant_scalar.range(x + i, residual ? residual + i : NULL, count - i, range);
}

static inline void add_moment(__m256 y, __m256d shift, __m256d sum[2], __m256d square[2]) {
    __m256d d[2] = {_mm256_cvtps_pd(_mm256_castps256_ps128(y)),
                    _mm256_cvtps_pd(_mm256_extractf128_ps(y, 1))};
    for (int half = 0; half < 2; half++) {
        __m256d moved = _mm256_sub_pd(d[half], shift);
        sum[half] = _mm256_add_pd(sum[half], moved);
        square[half] = _mm256_add_pd(square[half], _mm256_mul_pd(moved, moved));
    }
}

static void moments(const float *x, const float *residual, size_t count, double shift,
                    double out[2]) {
    __m256d sum[4], square[4], shifts = _mm256_set1_pd(shift);
    for (int q = 0; q < 4; q++) sum[q] = square[q] = _mm256_setzero_pd();
    size_t i = 0;
    for (; i + RPI_MOMENT_LANES <= count; i += RPI_MOMENT_LANES)
        for (size_t half = 0; half < 2; half++)
            add_moment(feedback_of(_mm256_loadu_ps(x + i + 8 * half), residual, i + 8 * half),
                       shifts, sum + 2 * half, square + 2 * half);
    double lane[2][RPI_MOMENT_LANES];
    for (int q = 0; q < 4; q++) {
        _mm256_storeu_pd(lane[0] + 4 * q, sum[q]);
        _mm256_storeu_pd(lane[1] + 4 * q, square[q]);
    }
    rpi_moment_rest(x, residual, i, count, shift, lane);
    out[0] = rpi_moment_fold(lane[0]);
    out[1] = rpi_moment_fold(lane[1]);
}

typedef struct unpacking {
    int bits;
    __m256i bytes, shift;
    scaling scale;
} unpacking;

static inline unpacking unpacking_of(int bits, rpi_quant_scale scale) {
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i bit = _mm256_mullo_epi32(lane, _mm256_set1_epi32(bits));
    __m256i byte = _mm256_srli_epi32(bit, 3);
    __m256i next = _mm256_slli_epi32(_mm256_add_epi32(byte, _mm256_set1_epi32(1)), 8);
    __m256i none = _mm256_set1_epi32((int)0x80800000);
    return (unpacking){
        .bits = bits,
        .bytes = _mm256_or_si256(_mm256_or_si256(byte, next), none),
        .shift = _mm256_and_si256(bit, _mm256_set1_epi32(7)),
        .scale = scaling_of(scale, bits),
    };
}

/* packed: the `bits` bytes of 8 elements; what is above them does not matter. */
static inline __m256 unpack8(const unpacking *how, uint64_t packed) {
    __m256i all = _mm256_set1_epi64x((long long)packed);
    __m256i level = _mm256_srlv_epi32(_mm256_shuffle_epi8(all, how->bytes), how->shift);
    return value_of(_mm256_and_si256(level, how->scale.top), &how->scale);
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
        __m256 value = unpack8(&how, packed);
        if (base) value = _mm256_add_ps(_mm256_loadu_ps(base + i), value);
        _mm256_storeu_ps(y + i, value);
    }
    if (i == count) return;
    if (base)
        rpi_quant_scalar.dequantise_sum(in, bits, scale, count - i, base + i, y + i);
    else
        rpi_quant_scalar.dequantise(in, bits, scale, count - i, y + i);
}

const rpi_quant_kernels rpi_quant_avx2 = {
    range, moments, quantise, quantise_buckets, dequantise, dequantise_sum, random_bits};
