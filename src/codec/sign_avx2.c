/* A byte of signs, 8 elements, at a time; the rest by the plain kernels. */
#include "codec/sign_kernels.h"

#include <immintrin.h>

static inline __m256 fed(const float *x, const float *residual, size_t i) {
    __m256 y = _mm256_loadu_ps(x + i);
    return residual ? _mm256_add_ps(y, _mm256_loadu_ps(residual + i)) : y;
}

static float sum(const float *x, const float *residual, size_t count) {
    __m256 low = _mm256_setzero_ps(), high = low;
    __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    size_t i = 0;
    for (; i + RPI_SIGN_LANES <= count; i += RPI_SIGN_LANES) {
        low = _mm256_add_ps(low, _mm256_and_ps(magnitude, fed(x, residual, i)));
        high = _mm256_add_ps(high, _mm256_and_ps(magnitude, fed(x, residual, i + 8)));
    }
    float lane[RPI_SIGN_LANES];
    _mm256_storeu_ps(lane, low);
    _mm256_storeu_ps(lane + 8, high);
    for (size_t k = 0; i + k < count; k++)
        lane[k] += __builtin_fabsf(residual ? x[i + k] + residual[i + k] : x[i + k]);
    return rpi_sign_fold(lane);
}

static inline __m256 signed_mean(__m256 negative, __m256 mean) {
    return _mm256_xor_ps(mean, _mm256_and_ps(negative, _mm256_set1_ps(-0.0f)));
}

static void pack(const float *x, float *residual, size_t count, float mean, uint8_t *out) {
    __m256 means = _mm256_set1_ps(mean), zero = _mm256_setzero_ps();
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256 y = fed(x, residual, i), negative = _mm256_cmp_ps(y, zero, _CMP_LT_OQ);
        out[i / 8] = (uint8_t)_mm256_movemask_ps(negative);
        if (residual)
            _mm256_storeu_ps(residual + i, _mm256_sub_ps(y, signed_mean(negative, means)));
    }
    rpi_sign_scalar.pack(x + i, residual ? residual + i : 0, count - i, mean, out + i / 8);
}

static inline __m256 values(uint8_t signs, __m256 mean) {
    __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i set = _mm256_and_si256(_mm256_set1_epi32(signs), bit);
    return signed_mean(_mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bit)), mean);
}

static void unpack(const uint8_t *in, size_t count, float mean, float *y) {
    __m256 means = _mm256_set1_ps(mean);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) _mm256_storeu_ps(y + i, values(in[i / 8], means));
    rpi_sign_scalar.unpack(in + i / 8, count - i, mean, y + i);
}

static void unpack_add(const uint8_t *in, size_t count, float mean, float *to) {
    __m256 means = _mm256_set1_ps(mean);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256 added = _mm256_add_ps(_mm256_loadu_ps(to + i), values(in[i / 8], means));
        _mm256_storeu_ps(to + i, added);
    }
    rpi_sign_scalar.unpack_add(in + i / 8, count - i, mean, to + i);
}

const rpi_sign_kernels rpi_sign_avx2 = {sum, pack, unpack, unpack_add};
