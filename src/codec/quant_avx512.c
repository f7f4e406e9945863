/* The quantiser with AVX-512 (F, BW, DQ, VL, VBMI): 64 elements at a time. quant_vector.h is
 * its shape. */
#include "codec/quant_kernels.h"

#include "codec/quant_pack.h"

#include <immintrin.h>
#include <string.h>

#define LANES 16
#define V(op) _mm512_##op
typedef __m512 floats;
typedef __m512i integers;

/* What packing 64 levels needs, the same for a whole run. */
typedef struct packing {
    __m512i pair, quad; /* 1, 2^bits and 1, 2^(2 bits) */
    __m512i low_half;   /* the lower 4 of 8 packed levels */
    __m512i transpose;  /* dwords back into the order of the elements */
    __m512i compact;    /* the `bits` bytes of every qword together */
    __m128i high_shift; /* brings the upper 4 next to the lower */
    int bits;
    int reach; /* bytes that pack_block() writes */
} packing;

static inline packing packing_of(int bits) {
    int narrow = bits < 8 ? bits : 7; /* 8 bits need no packing */
    return (packing){
        .bits = bits,
        .pair = _mm512_set1_epi16((short)(1 | 1 << (8 + narrow))),
        .quad = _mm512_set1_epi32(1 | 1 << (16 + 2 * narrow)),
        .low_half = _mm512_set1_epi64((1LL << (4 * narrow)) - 1),
        .high_shift = _mm_cvtsi32_si128(32 - 4 * narrow),
        .transpose = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
        .compact = _mm512_loadu_si512(rpi_compact[narrow]),
        .reach = 8 * bits,
    };
}

/* Full stores where the size has one: byte-masked stores are slow. */
static inline void store_packed(uint8_t *out, int bits, __m512i packed) {
    switch (bits) {
    case 8: _mm512_storeu_si512(out, packed); break;
    case 4: _mm256_storeu_si256((__m256i *)out, _mm512_castsi512_si256(packed)); break;
    case 2: _mm_storeu_si128((__m128i *)out, _mm512_castsi512_si128(packed)); break;
    case 1: _mm_storel_epi64((__m128i *)out, _mm512_castsi512_si128(packed)); break;
    default: _mm512_mask_storeu_epi8(out, ~0ULL >> (64 - 8 * bits), packed);
    }
}

/* level[v] holds elements 16v to 16v + 15, one a dword. */
static inline void pack_block(const packing *how, const __m512i level[4], uint8_t *out) {
    __m512i bytes = _mm512_packus_epi16(_mm512_packus_epi32(level[0], level[1]),
                                        _mm512_packus_epi32(level[2], level[3]));
    if (how->bits == 8) {
        store_packed(out, 8, _mm512_permutexvar_epi32(how->transpose, bytes));
        return;
    }
    __m512i fours = _mm512_madd_epi16(_mm512_maddubs_epi16(how->pair, bytes), how->quad);
    fours = _mm512_permutexvar_epi32(how->transpose, fours);
    __m512i upper = _mm512_srl_epi64(fours, how->high_shift);
    __m512i eights = _mm512_ternarylogic_epi64(how->low_half, fours, upper, 0xca);
    store_packed(out, how->bits, _mm512_permutexvar_epi8(how->compact, eights));
}

static inline __m512i widen16(const uint16_t *random) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)random));
}

static inline __m512i set1_64(long long number) {
    return _mm512_set1_epi64(number);
}

static inline __m512i xor3(__m512i a, __m512i b, __m512i c) {
    return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}

/* So that unpacklo and unpackhi give blocks in sequence. */
static inline __m512i block_order(void) {
    return _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
}

/* Even dwords of `low`, and those of `high` in the odd places. */
static inline __m512i interleave(__m512i low, __m512i high) {
    return _mm512_mask_shuffle_epi32(low, 0xaaaa, high, (_MM_PERM_ENUM)0xa0);
}

static inline void philox_store(const __m512i word[4], uint16_t out[64]) {
    __m512i first = interleave(word[0], word[1]);
    __m512i second = interleave(word[2], word[3]);
    _mm512_storeu_si512(out, _mm512_unpacklo_epi64(first, second));
    _mm512_storeu_si512(out + 32, _mm512_unpackhi_epi64(first, second));
}

#include "codec/quant_vector.h"

static inline __m512 feedback_of(__m512 x, const float *residual, size_t i) {
    return residual ? _mm512_add_ps(x, _mm512_loadu_ps(residual + i)) : x;
}

static void range(const float *x, const float *residual, size_t count, rpi_quant_range *range) {
    __m512 min0 = _mm512_set1_ps(range->min), min1 = min0;
    __m512 max0 = _mm512_set1_ps(range->max), max1 = max0;
    __mmask16 nan = 0;
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        __m512 a = feedback_of(_mm512_loadu_ps(x + i), residual, i);
        __m512 b = feedback_of(_mm512_loadu_ps(x + i + 16), residual, i + 16);
        min0 = _mm512_min_ps(a, min0); /* a NaN in the first operand gives the second */
        max0 = _mm512_max_ps(a, max0);
        min1 = _mm512_min_ps(b, min1);
        max1 = _mm512_max_ps(b, max1);
        nan |= _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
    }
    for (; i < count; i += 16) {
        __mmask16 live = count - i < 16 ? (__mmask16)((1u << (count - i)) - 1) : 0xffff;
        __m512 y = _mm512_maskz_loadu_ps(live, x + i);
        if (residual) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(live, residual + i));
        min0 = _mm512_mask_min_ps(min0, live, y, min0);
        max0 = _mm512_mask_max_ps(max0, live, y, max0);
        nan |= _mm512_mask_cmp_ps_mask(live, y, y, _CMP_UNORD_Q);
    }
    range->min = _mm512_reduce_min_ps(_mm512_min_ps(min0, min1));
    range->max = _mm512_reduce_max_ps(_mm512_max_ps(max0, max1));
    range->has_nan |= nan != 0;
}

static void moments(const float *x, const float *residual, size_t count, double shift,
                    double out[2]) {
    __m512d sum[2], square[2], shifts = _mm512_set1_pd(shift);
    for (int half = 0; half < 2; half++) sum[half] = square[half] = _mm512_setzero_pd();
    size_t i = 0;
    for (; i + RPI_MOMENT_LANES <= count; i += RPI_MOMENT_LANES) {
        __m512 y = feedback_of(_mm512_loadu_ps(x + i), residual, i);
        __m512d d[2] = {_mm512_cvtps_pd(_mm512_castps512_ps256(y)),
                        _mm512_cvtps_pd(_mm512_extractf32x8_ps(y, 1))};
        for (int half = 0; half < 2; half++) {
            d[half] = _mm512_sub_pd(d[half], shifts);
            sum[half] = _mm512_add_pd(sum[half], d[half]);
            square[half] = _mm512_add_pd(square[half], _mm512_mul_pd(d[half], d[half]));
        }
    }
    double lane[2][RPI_MOMENT_LANES];
    for (int half = 0; half < 2; half++) {
        _mm512_storeu_pd(lane[0] + 8 * half, sum[half]);
        _mm512_storeu_pd(lane[1] + 8 * half, square[half]);
    }
    rpi_moment_rest(x, residual, i, count, shift, lane);
    out[0] = rpi_moment_fold(lane[0]);
    out[1] = rpi_moment_fold(lane[1]);
}

/* Levels of up to 16 elements: every dword gets the two bytes its level lies in, then shifts.
 * Up to 4 bits the level looks its value up; the table repeats, so no bit needs masking. */
typedef struct unpacking {
    int bits;
    __m512i bytes, shift, mask;
    __m512 table;
    scaling scale;
} unpacking;

static inline unpacking unpacking_of(int bits, rpi_quant_scale scale) {
    __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i bit = _mm512_mullo_epi32(lane, _mm512_set1_epi32(bits));
    __m512i byte = _mm512_srli_epi32(bit, 3);
    __m512i next = _mm512_slli_epi32(_mm512_add_epi32(byte, _mm512_set1_epi32(1)), 8);
    unpacking how = {
        .bits = bits,
        .bytes = _mm512_or_si512(_mm512_or_si512(byte, next), _mm512_set1_epi32(0x3f3f0000)),
        .shift = _mm512_and_si512(bit, _mm512_set1_epi32(7)),
        .mask = _mm512_set1_epi32((1 << bits) - 1),
        .scale = scaling_of(scale, bits),
    };
    how.table = value_of(_mm512_and_si512(lane, how.mask), &how.scale);
    return how;
}

static inline __m512 unpack16(const unpacking *how, __m128i packed) {
    __m512i spread = _mm512_permutexvar_epi8(how->bytes, _mm512_zextsi128_si512(packed));
    __m512i level = _mm512_srlv_epi32(spread, how->shift);
    if (how->bits <= 4) return _mm512_permutexvar_ps(level, how->table);
    return value_of(_mm512_and_si512(level, how->mask), &how->scale);
}

static inline __m128i load_packed(const uint8_t *in, size_t bytes) {
    return _mm_maskz_loadu_epi8((__mmask16)((1u << bytes) - 1), in);
}

static inline void dequantise_run(const uint8_t *in, int bits, rpi_quant_scale scale,
                                  size_t count, const float *base, float *y) {
    unpacking how = unpacking_of(bits, scale);
    size_t i = 0;
    for (; i + 16 <= count; i += 16, in += 2 * bits) {
        __m512 value = unpack16(&how, load_packed(in, 2 * (size_t)bits));
        if (base) value = _mm512_add_ps(_mm512_loadu_ps(base + i), value);
        _mm512_storeu_ps(y + i, value);
    }
    if (i == count) return;
    __mmask16 live = (__mmask16)((1u << (count - i)) - 1);
    __m512 value = unpack16(&how, load_packed(in, rpi_packed_bytes(count - i, bits)));
    if (base) value = _mm512_add_ps(_mm512_maskz_loadu_ps(live, base + i), value);
    _mm512_mask_storeu_ps(y + i, live, value);
}

const rpi_quant_kernels rpi_quant_avx512 = {
    range, moments, quantise, quantise_buckets, dequantise, dequantise_sum, random_bits};
