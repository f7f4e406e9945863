/* 16 floats at a time, one register of AVX-512 or two of AVX2; included by *_simd.c alone.
 *
 * What is written with these functions gives the same bits with both: the lanes are the same,
 * a sum over lanes is the same tree, multiply and add are fused where vf_fma says so and
 * nowhere else. */
#ifndef RPI_ENGINE_SIMD_H
#define RPI_ENGINE_SIMD_H

#include "engine/backends/cpu/kernels/kernel.h"

#include <immintrin.h>
#include <string.h>

enum { RPI_LANES = 16 };

#define RPI_SIMD_PASTE(name, suffix)  rpi_##name##suffix
#define RPI_SIMD_EXPAND(name, suffix) RPI_SIMD_PASTE(name, suffix)
/* RPI_SIMD_BODY(x)(const void *args, ...) defines rpi_x_avx2 or rpi_x_avx512. */
#define RPI_SIMD_BODY(name)           void RPI_SIMD_EXPAND(name, RPI_SIMD_SUFFIX)

#define SIMD static inline __attribute__((always_inline, unused))

/* for (each i of 0, 16, ... below count) with `live` elements from there, 16 or what is left.
 */
#define EACH_VECTOR(i, live, count)                                                            \
    for (int64_t i = 0, live; (live = (count)-i < RPI_LANES ? (count)-i : RPI_LANES) > 0;      \
         i += RPI_LANES)

#if defined(__AVX512F__)

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

SIMD vm vm_first(int64_t n) {
    return (vm)(n >= 16 ? 0xffff : (1u << n) - 1);
}
SIMD vf vf_set(float x) {
    return _mm512_set1_ps(x);
}
SIMD vf vf_load(const float *p) {
    return _mm512_loadu_ps(p);
}
SIMD void vf_store(float *p, vf x) {
    _mm512_storeu_ps(p, x);
}
SIMD vf vf_load_n(const float *p, int64_t n) {
    return n >= 16 ? vf_load(p) : _mm512_maskz_loadu_ps(vm_first(n), p);
}
SIMD void vf_store_n(float *p, vf x, int64_t n) {
    if (n >= 16)
        vf_store(p, x);
    else
        _mm512_mask_storeu_ps(p, vm_first(n), x);
}
SIMD vf vf_add(vf a, vf b) {
    return _mm512_add_ps(a, b);
}
SIMD vf vf_sub(vf a, vf b) {
    return _mm512_sub_ps(a, b);
}
SIMD vf vf_mul(vf a, vf b) {
    return _mm512_mul_ps(a, b);
}
SIMD vf vf_div(vf a, vf b) {
    return _mm512_div_ps(a, b);
}
SIMD vf vf_sqrt(vf a) {
    return _mm512_sqrt_ps(a);
}
SIMD vf vf_fma(vf a, vf b, vf c) { /* a b + c */
    return _mm512_fmadd_ps(a, b, c);
}
SIMD vf vf_fnma(vf a, vf b, vf c) { /* c - a b */
    return _mm512_fnmadd_ps(a, b, c);
}
SIMD vf vf_min(vf a, vf b) { /* b where either is NaN */
    return _mm512_min_ps(a, b);
}
SIMD vf vf_max(vf a, vf b) {
    return _mm512_max_ps(a, b);
}
SIMD vf vf_round(vf a) { /* to the nearest integer, ties to even */
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
SIMD vf vf_and(vf a, vf b) {
    return _mm512_and_ps(a, b);
}
SIMD vf vf_or(vf a, vf b) {
    return _mm512_or_ps(a, b);
}
SIMD vf vf_andnot(vf a, vf b) { /* ~a & b */
    return _mm512_andnot_ps(a, b);
}
SIMD vm vf_lt(vf a, vf b) { /* false where either is NaN */
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
SIMD vm vf_le(vf a, vf b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
SIMD vm vf_not_le(vf a, vf b) { /* true where either is NaN */
    return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ);
}
SIMD vm vm_and(vm a, vm b) {
    return a & b;
}
SIMD vf vf_select(vm where, vf yes, vf no) {
    return _mm512_mask_blend_ps(where, no, yes);
}
SIMD vf vf_scale2(vf a, vf n) { /* a 2^n, rounded once; n whole, from -152 to 130 */
    return _mm512_scalef_ps(a, n);
}
SIMD vf vf_of(__m256 low, __m256 high) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}
SIMD __m256 vf_low(vf a) {
    return _mm512_castps512_ps256(a);
}
SIMD __m256 vf_high(vf a) {
    return _mm512_extractf32x8_ps(a, 1);
}
SIMD vf vf_load_bf16(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
SIMD void vf_store_bf16(uint16_t *p, vf x) {
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    rounded = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
    __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
    _mm256_storeu_si256((__m256i *)p, half);
}
SIMD void vf_store_upper(uint16_t *p, vf x) { /* what came from bf16, bit for bit */
    __m512i upper = _mm512_srli_epi32(_mm512_castps_si512(x), 16);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(upper));
}

SIMD vi vi_set(uint32_t x) {
    return _mm512_set1_epi32((int)x);
}
SIMD vi vi_lanes(void) { /* 0, 1, ..., 15 */
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
SIMD vi vi_add(vi a, vi b) {
    return _mm512_add_epi32(a, b);
}
SIMD vi vi_xor(vi a, vi b) {
    return _mm512_xor_si512(a, b);
}
SIMD vi vi_select(vm where, vi yes, vi no) {
    return _mm512_mask_blend_epi32(where, no, yes);
}
SIMD void vi_store_bytes(uint8_t *p, vi x) { /* of lanes below 256 */
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(x));
}
SIMD void vi_multiply(vi a, uint32_t b, vi *high, vi *low) { /* 64 bits of the product */
    __m512i factor = _mm512_set1_epi64(b);
    __m512i even = _mm512_mul_epu32(a, factor);
    __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), factor);
    *high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd);
    *low = _mm512_mask_mov_epi32(even, 0xaaaa, _mm512_slli_epi64(odd, 32));
}
SIMD vf vi_half_as_float(vi a, bool upper) { /* 16 bits of each lane */
    vi half = upper ? _mm512_srli_epi32(a, 16) : _mm512_and_si512(a, vi_set(0xffff));
    return _mm512_cvtepi32_ps(half);
}

#else

typedef struct vf {
    __m256 low, high;
} vf;
typedef struct vi {
    __m256i low, high;
} vi;
typedef vf vm; /* all bits of a lane, or none */

SIMD vf vf_of(__m256 low, __m256 high) {
    return (vf){low, high};
}
SIMD vf vf_set(float x) {
    return vf_of(_mm256_set1_ps(x), _mm256_set1_ps(x));
}
SIMD vf vf_load(const float *p) {
    return vf_of(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}
SIMD void vf_store(float *p, vf x) {
    _mm256_storeu_ps(p, x.low);
    _mm256_storeu_ps(p + 8, x.high);
}
SIMD __m256i first_of_8(int64_t n) {
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}
SIMD vf vf_load_n(const float *p, int64_t n) {
    if (n >= 16) return vf_load(p);
    return vf_of(_mm256_maskload_ps(p, first_of_8(n)),
                 n > 8 ? _mm256_maskload_ps(p + 8, first_of_8(n - 8)) : _mm256_setzero_ps());
}
SIMD void vf_store_n(float *p, vf x, int64_t n) {
    if (n >= 16) {
        vf_store(p, x);
        return;
    }
    _mm256_maskstore_ps(p, first_of_8(n), x.low);
    if (n > 8) _mm256_maskstore_ps(p + 8, first_of_8(n - 8), x.high);
}
SIMD vf vf_add(vf a, vf b) {
    return vf_of(_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high));
}
SIMD vf vf_sub(vf a, vf b) {
    return vf_of(_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high));
}
SIMD vf vf_mul(vf a, vf b) {
    return vf_of(_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high));
}
SIMD vf vf_div(vf a, vf b) {
    return vf_of(_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high));
}
SIMD vf vf_sqrt(vf a) {
    return vf_of(_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high));
}
SIMD vf vf_fma(vf a, vf b, vf c) {
    return vf_of(_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high));
}
SIMD vf vf_fnma(vf a, vf b, vf c) {
    return vf_of(_mm256_fnmadd_ps(a.low, b.low, c.low),
                 _mm256_fnmadd_ps(a.high, b.high, c.high));
}
SIMD vf vf_min(vf a, vf b) {
    return vf_of(_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high));
}
SIMD vf vf_max(vf a, vf b) {
    return vf_of(_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high));
}
#    define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
SIMD vf vf_round(vf a) {
    return vf_of(_mm256_round_ps(a.low, NEAREST), _mm256_round_ps(a.high, NEAREST));
}
SIMD vf vf_and(vf a, vf b) {
    return vf_of(_mm256_and_ps(a.low, b.low), _mm256_and_ps(a.high, b.high));
}
SIMD vf vf_or(vf a, vf b) {
    return vf_of(_mm256_or_ps(a.low, b.low), _mm256_or_ps(a.high, b.high));
}
SIMD vf vf_andnot(vf a, vf b) {
    return vf_of(_mm256_andnot_ps(a.low, b.low), _mm256_andnot_ps(a.high, b.high));
}
SIMD vm vf_lt(vf a, vf b) {
    return vf_of(_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ),
                 _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ));
}
SIMD vm vf_le(vf a, vf b) {
    return vf_of(_mm256_cmp_ps(a.low, b.low, _CMP_LE_OQ),
                 _mm256_cmp_ps(a.high, b.high, _CMP_LE_OQ));
}
SIMD vm vf_not_le(vf a, vf b) {
    return vf_of(_mm256_cmp_ps(a.low, b.low, _CMP_NLE_UQ),
                 _mm256_cmp_ps(a.high, b.high, _CMP_NLE_UQ));
}
SIMD vm vm_and(vm a, vm b) {
    return vf_and(a, b);
}
SIMD vf vf_select(vm where, vf yes, vf no) {
    return vf_of(_mm256_blendv_ps(no.low, yes.low, where.low),
                 _mm256_blendv_ps(no.high, yes.high, where.high));
}
/* In two steps, of which only the second can round: 2^n itself may be no float. */
SIMD __m256 scale2_of_8(__m256 a, __m256 n) {
    __m256i whole = _mm256_cvtps_epi32(n), bias = _mm256_set1_epi32(127);
    __m256i half = _mm256_srai_epi32(whole, 1), rest = _mm256_sub_epi32(whole, half);
    __m256 first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    __m256 second = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(a, first), second);
}
SIMD vf vf_scale2(vf a, vf n) {
    return vf_of(scale2_of_8(a.low, n.low), scale2_of_8(a.high, n.high));
}
SIMD __m256 vf_low(vf a) {
    return a.low;
}
SIMD __m256 vf_high(vf a) {
    return a.high;
}
SIMD __m256 load_bf16_of_8(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
SIMD vf vf_load_bf16(const uint16_t *p) {
    return vf_of(load_bf16_of_8(p), load_bf16_of_8(p + 8));
}
SIMD void store_bf16_of_8(uint16_t *p, __m256 x) {
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    rounded = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    __m128i half =
        _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
    _mm_storeu_si128((__m128i *)p, half);
}
SIMD void vf_store_bf16(uint16_t *p, vf x) {
    store_bf16_of_8(p, x.low);
    store_bf16_of_8(p + 8, x.high);
}
SIMD __m256i pack_of_16(__m256i low, __m256i high) { /* 16 bits of each lane, below 65536 */
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
}
SIMD void vf_store_upper(uint16_t *p, vf x) {
    __m256i low = _mm256_srli_epi32(_mm256_castps_si256(x.low), 16);
    __m256i high = _mm256_srli_epi32(_mm256_castps_si256(x.high), 16);
    _mm256_storeu_si256((__m256i *)p, pack_of_16(low, high));
}

SIMD vi vi_of(__m256i low, __m256i high) {
    return (vi){low, high};
}
SIMD vi vi_set(uint32_t x) {
    return vi_of(_mm256_set1_epi32((int)x), _mm256_set1_epi32((int)x));
}
SIMD vi vi_lanes(void) {
    return vi_of(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                 _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15));
}
SIMD vi vi_add(vi a, vi b) {
    return vi_of(_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high));
}
SIMD vi vi_xor(vi a, vi b) {
    return vi_of(_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high));
}
SIMD vi vi_select(vm where, vi yes, vi no) {
    return vi_of(_mm256_blendv_epi8(no.low, yes.low, _mm256_castps_si256(where.low)),
                 _mm256_blendv_epi8(no.high, yes.high, _mm256_castps_si256(where.high)));
}
SIMD void vi_store_bytes(uint8_t *p, vi x) {
    __m256i words = pack_of_16(x.low, x.high);
    __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)p, bytes);
}
SIMD void multiply_of_8(__m256i a, uint32_t b, __m256i *high, __m256i *low) {
    __m256i factor = _mm256_set1_epi64x(b);
    __m256i even = _mm256_mul_epu32(a, factor);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), factor);
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
SIMD void vi_multiply(vi a, uint32_t b, vi *high, vi *low) {
    multiply_of_8(a.low, b, &high->low, &low->low);
    multiply_of_8(a.high, b, &high->high, &low->high);
}
SIMD __m256 half_of_8(__m256i a, bool upper) {
    __m256i low = _mm256_and_si256(a, _mm256_set1_epi32(0xffff));
    return _mm256_cvtepi32_ps(upper ? _mm256_srli_epi32(a, 16) : low);
}
SIMD vf vi_half_as_float(vi a, bool upper) {
    return vf_of(half_of_8(a.low, upper), half_of_8(a.high, upper));
}

#endif

SIMD vf vf_zero(void) {
    return vf_set(0);
}
SIMD vf vf_abs(vf a) {
    return vf_andnot(vf_set(-0.0f), a);
}
SIMD vf vf_neg(vf a) {
    return vf_sub(vf_set(-0.0f), a);
}
/* The size of the first, the sign of the second. */
SIMD vf vf_copysign(vf size, vf sign) {
    return vf_or(vf_abs(size), vf_and(vf_set(-0.0f), sign));
}
/* Between bounds; a NaN stays one. */
SIMD vf vf_clamp(vf a, float low, float high) {
    return vf_max(vf_set(low), vf_min(vf_set(high), a));
}

/* Lane i + 8 to lane i, then i + 4, i + 2, i + 1. */
SIMD float vf_sum(vf a) {
    __m256 eight = _mm256_add_ps(vf_low(a), vf_high(a));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
/* Of lanes without NaN. */
SIMD float vf_max_of(vf a) {
    __m256 eight = _mm256_max_ps(vf_low(a), vf_high(a));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

/* The first n lanes of a, the others from b; and others 0. */
SIMD vf vf_first_or(vf a, int64_t n, vf b) {
    float lanes[RPI_LANES];
    vf_store(lanes, b);
    vf_store_n(lanes, a, n);
    return vf_load(lanes);
}
SIMD vf vf_first(vf a, int64_t n) {
    return vf_first_or(a, n, vf_zero());
}
SIMD float vf_first_lane(vf a) {
    return _mm256_cvtss_f32(vf_low(a));
}

SIMD vf vf_load_bf16_n(const uint16_t *p, int64_t n) {
    uint16_t all[RPI_LANES] = {0};
    if (n >= RPI_LANES) return vf_load_bf16(p);
    memcpy(all, p, (size_t)n * sizeof *p);
    return vf_load_bf16(all);
}
SIMD void vf_store_bf16_n(uint16_t *p, vf x, int64_t n) {
    uint16_t all[RPI_LANES];
    if (n >= RPI_LANES) {
        vf_store_bf16(p, x);
        return;
    }
    vf_store_bf16(all, x);
    memcpy(p, all, (size_t)n * sizeof *p);
}

SIMD void vf_store_upper_n(uint16_t *p, vf x, int64_t n) {
    uint16_t all[RPI_LANES];
    if (n >= RPI_LANES) {
        vf_store_upper(p, x);
        return;
    }
    vf_store_upper(all, x);
    memcpy(p, all, (size_t)n * sizeof *p);
}
SIMD void vi_store_bytes_n(uint8_t *p, vi x, int64_t n) {
    uint8_t all[RPI_LANES];
    if (n >= RPI_LANES) {
        vi_store_bytes(p, x);
        return;
    }
    vi_store_bytes(all, x);
    memcpy(p, all, (size_t)n);
}

/* One row, to read or write `live` elements of from column i. */
typedef struct simd_row {
    void *data;
    bool bf16;
} simd_row;

SIMD simd_row row_of(rpi_kernel_rows m, int64_t row) {
    bool bf16 = m.dtype == RP_BF16;
    int64_t start = row * m.stride;
    return (simd_row){
        bf16 ? (void *)((uint16_t *)m.data + start) : (void *)((float *)m.data + start), bf16};
}
SIMD simd_row row_from(simd_row row, int64_t i) {
    return (simd_row){row.bf16 ? (void *)((uint16_t *)row.data + i)
                               : (void *)((float *)row.data + i),
                      row.bf16};
}
SIMD vf row_load(simd_row row, int64_t i, int64_t live) {
    return row.bf16 ? vf_load_bf16_n((const uint16_t *)row.data + i, live)
                    : vf_load_n((const float *)row.data + i, live);
}
SIMD void row_store(simd_row row, int64_t i, vf x, int64_t live) {
    if (row.bf16)
        vf_store_bf16_n((uint16_t *)row.data + i, x, live);
    else
        vf_store_n((float *)row.data + i, x, live);
}

/* The rows of one head from a token on. */
typedef struct rows_of_head {
    simd_row start;
    int64_t stride;
} rows_of_head;

SIMD rows_of_head head_at(rpi_kernel_heads m, int64_t b, int64_t token, int64_t h) {
    rpi_kernel_rows all = {m.data, b * m.batch + token * m.token + h * m.head, m.dtype};
    return (rows_of_head){row_of(all, 1), m.token};
}

SIMD simd_row row_below(rows_of_head head, int64_t t) {
    rpi_kernel_rows all = {head.start.data, head.stride, head.start.bf16 ? RP_BF16 : RP_F32};
    return row_of(all, t);
}

#endif
