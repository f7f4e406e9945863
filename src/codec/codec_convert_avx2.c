/* 16-bit floats with AVX2 and F16C, 8 elements at a time; the rest by the scalar kernels. */
#include "codec/bf16_avx2.h"
#include "codec/codec_convert.h"

#include <immintrin.h>

static inline __m128i load8(const void *x, size_t i) {
    return _mm_loadu_si128((const __m128i *)((const char *)x + 2 * i));
}

static inline __m256 f16_load(const void *x, size_t i) {
    return _mm256_cvtph_ps(load8(x, i));
}

static inline __m256 bf16_load(const void *x, size_t i) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load8(x, i)), 16));
}

/* Finite values into [-largest, largest]; NaN and infinity pass. */
static inline __m256 clamp_finite(__m256 x, float largest) {
    __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
    __m256 finite = _mm256_cmp_ps(magnitude, _mm256_set1_ps(__builtin_inff()), _CMP_LT_OQ);
    __m256 clamped =
        _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-largest)), _mm256_set1_ps(largest));
    return _mm256_blendv_ps(x, clamped, finite);
}

static inline __m128i f16_round(__m256 x) {
    return _mm256_cvtps_ph(clamp_finite(x, 65504.0f), _MM_FROUND_TO_NEAREST_INT);
}

static inline __m128i bf16_round(__m256 x) {
    return rpi_bf16_round_avx2(clamp_finite(x, 0x1.fep127f));
}

#define CONVERT_KERNELS(format)                                                                \
    static void format##_widen(const void *x, size_t count, float *y) {                        \
        size_t i = 0;                                                                          \
        for (; i + 8 <= count; i += 8) _mm256_storeu_ps(y + i, format##_load(x, i));           \
        rpi_convert_##format##_scalar.widen((const char *)x + 2 * i, count - i, y + i);        \
    }                                                                                          \
    static void format##_widen_add(const void *x, size_t count, float *sum) {                  \
        size_t i = 0;                                                                          \
        for (; i + 8 <= count; i += 8)                                                         \
            _mm256_storeu_ps(sum + i,                                                          \
                             _mm256_add_ps(_mm256_loadu_ps(sum + i), format##_load(x, i)));    \
        rpi_convert_##format##_scalar.widen_add((const char *)x + 2 * i, count - i, sum + i);  \
    }                                                                                          \
    static void format##_narrow(const float *x, size_t count, void *y) {                       \
        size_t i = 0;                                                                          \
        for (; i + 8 <= count; i += 8)                                                         \
            _mm_storeu_si128((__m128i *)((char *)y + 2 * i),                                   \
                             format##_round(_mm256_loadu_ps(x + i)));                          \
        rpi_convert_##format##_scalar.narrow(x + i, count - i, (char *)y + 2 * i);             \
    }                                                                                          \
    const rpi_convert_kernels rpi_convert_##format##_avx2 = {                                  \
        format##_widen, format##_widen_add, format##_narrow};

CONVERT_KERNELS(f16)
CONVERT_KERNELS(bf16)
