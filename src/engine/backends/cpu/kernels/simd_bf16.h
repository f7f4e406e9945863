/* Pairs of bf16 in words of 32 bits, for matrix products; included where AVX512-BF16 is
 * compiled for. f32 is rounded to nearest, ties to even; below 2^-126 it is zero. */
#ifndef RPI_ENGINE_SIMD_BF16_H
#define RPI_ENGINE_SIMD_BF16_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BF16_EDGE = 16, BF16_DEPTH = 2 * BF16_EDGE };

#define BF16_INLINE static inline __attribute__((always_inline, unused))

/* The first `count` elements from x on, of at most 32. */
BF16_INLINE __m512i bf16_along(const void *x, bool is_bf16, int64_t count) {
    const __mmask32 mask = count >= BF16_DEPTH ? 0xffffffffu : (1u << count) - 1u;
    if (is_bf16) return _mm512_maskz_loadu_epi16(mask, x);
    const __m512 low = _mm512_maskz_loadu_ps((__mmask16)mask, x);
    const __m512 high =
        _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), (const float *)x + BF16_EDGE);
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* 16 elements of two rows, those of `live`, interleaved; a row of NULL is zeros. */
BF16_INLINE __m512i bf16_woven(const void *x, const void *y, bool is_bf16, __mmask16 live) {
    const __m512i weave =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                         22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __mmask16 first = x ? live : 0, second = y ? live : 0;
    __m512i both;
    if (is_bf16) {
        const __m256i low = _mm256_maskz_loadu_epi16(first, x);
        const __m256i high = _mm256_maskz_loadu_epi16(second, y);
        both = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    } else {
        both = (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(second, y),
                                            _mm512_maskz_loadu_ps(first, x));
    }
    return _mm512_permutexvar_epi16(weave, both);
}

/* Words of 32 bits, 16 x 16. */
BF16_INLINE void bf16_transpose(__m512i w[BF16_EDGE]) {
    __m512i t[BF16_EDGE];
    for (int i = 0; i < BF16_EDGE; i += 2) {
        t[i] = _mm512_unpacklo_epi32(w[i], w[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(w[i], w[i + 1]);
    }
    for (int i = 0; i < BF16_EDGE; i += 4)
        for (int j = 0; j < 2; j++) {
            w[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
            w[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
        }
    for (int i = 0; i < BF16_EDGE; i += 8)
        for (int j = 0; j < 4; j++) {
            t[i + j] = _mm512_shuffle_i32x4(w[i + j], w[i + j + 4], 0x88);
            t[i + j + 4] = _mm512_shuffle_i32x4(w[i + j], w[i + j + 4], 0xdd);
        }
    for (int j = 0; j < 8; j++) {
        w[j] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0x88);
        w[j + 8] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0xdd);
    }
}

#endif
