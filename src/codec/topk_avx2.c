/* 32 elements at a time; most of them are passed over. */
#include "codec/topk_kernels.h"

#include <immintrin.h>
#include <string.h>

static inline __m256i magnitudes(const float *y) {
    __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)y);
    return _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
}

static void group_max(const float *y, size_t count, size_t groups, uint32_t *max) {
    memset(max, 0, groups * sizeof *max);
    for (size_t i = 0; i < count; i += groups) {
        size_t n = count - i < groups ? count - i : groups, g = 0;
        for (; g + 8 <= n; g += 8) {
            __m256i *at = (__m256i *)(void *)(max + g);
            __m256i most = _mm256_max_epi32(_mm256_loadu_si256(at), magnitudes(y + i + g));
            _mm256_storeu_si256(at, most);
        }
        for (; g < n; g++) {
            uint32_t magnitude = rpi_magnitude(y + i + g);
            max[g] = magnitude > max[g] ? magnitude : max[g];
        }
    }
}

static size_t count_at_least(const void *values, size_t count, uint32_t least) {
    const float *y = values;
    __m256i below = _mm256_set1_epi32((int)least - 1);
    __m256i found0 = _mm256_setzero_si256(), found1 = found0; /* minus how many */
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        found0 = _mm256_add_epi32(found0, _mm256_cmpgt_epi32(magnitudes(y + i), below));
        found1 = _mm256_add_epi32(found1, _mm256_cmpgt_epi32(magnitudes(y + i + 8), below));
    }
    int32_t lane[8];
    _mm256_storeu_si256((__m256i *)(void *)lane, _mm256_add_epi32(found0, found1));
    size_t found = rpi_topk_scalar.count(y + i, count - i, least);
    for (int k = 0; k < 8; k++) found += (size_t)-lane[k];
    return found;
}

static inline uint32_t found8(const float *y, __m256i below) {
    __m256i large = _mm256_cmpgt_epi32(magnitudes(y), below);
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(large));
}

static size_t collect(const float *y, size_t count, uint32_t least, uint32_t *magnitude,
                      uint16_t *index) {
    __m256i below = _mm256_set1_epi32((int)least - 1);
    size_t found = 0, i = 0;
    for (; i + 32 <= count; i += 32) {
        uint32_t mask = found8(y + i, below) | found8(y + i + 8, below) << 8 |
                        found8(y + i + 16, below) << 16 | found8(y + i + 24, below) << 24;
        for (; mask; mask &= mask - 1) {
            size_t at = i + (size_t)__builtin_ctz(mask);
            magnitude[found] = rpi_magnitude(y + at);
            index[found++] = (uint16_t)at;
        }
    }
    size_t tail =
        rpi_topk_scalar.collect(y + i, count - i, least, magnitude + found, index + found);
    for (size_t k = 0; k < tail; k++) index[found + k] = (uint16_t)(index[found + k] + i);
    return found + tail;
}

const rpi_topk_kernels rpi_topk_avx2 = {group_max, count_at_least, collect};
