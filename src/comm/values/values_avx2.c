/* Narrowing with AVX2 and F16C, 8 elements at a time; the rest by the plain kernels. */
#include "comm/values/narrow_loops.h"
#include "comm/values/values.h"

#include <immintrin.h>

static void narrow_f16(const float *from, size_t count, uint16_t *into) {
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(into + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    rpi_narrow_plain_f16(from + i, count - i, into + i);
}

/* To nearest even by integer arithmetic, as rp_f32_to_bf16() does; NaN is made quiet. */
static __m128i bf16_round(__m256 x) {
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    __m256i packed = _mm256_packus_epi32(high, high);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)));
}

static void narrow_bf16(const float *from, size_t count, uint16_t *into) {
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(into + i), bf16_round(_mm256_loadu_ps(from + i)));
    rpi_narrow_plain_bf16(from + i, count - i, into + i);
}

const rpi_narrow_kernels rpi_narrow_avx2 = {narrow_f16, narrow_bf16};
