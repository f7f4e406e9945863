/* Narrowing with AVX2 and F16C, 8 elements at a time; the rest by the plain kernels. */
#include "codec/bf16_avx2.h"
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

static void narrow_bf16(const float *from, size_t count, uint16_t *into) {
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(into + i),
                         rpi_bf16_round_avx2(_mm256_loadu_ps(from + i)));
    rpi_narrow_plain_bf16(from + i, count - i, into + i);
}

const rpi_narrow_kernels rpi_narrow_avx2 = {narrow_f16, narrow_bf16};
