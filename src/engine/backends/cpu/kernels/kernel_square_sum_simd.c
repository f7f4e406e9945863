#include "engine/backends/cpu/kernels/kernel_square_sum.h"

#include "engine/backends/cpu/kernels/simd.h"

/* The digits of squares below 2^31, units 2^-20, 2^-60, 2^-100, 2^-140. A digit is cut
 * off by adding and subtracting 1.5 * 2^52 units, and 4096 of it add up exactly in a double. */
enum { DIGITS = 4, TOP_DIGIT = 3 };

#if defined(__AVX512F__)
typedef __m512d vd;
enum { DOUBLES = 8 };
SIMD vd vd_set(double x) {
    return _mm512_set1_pd(x);
}
SIMD vd vd_widen(const float *p) {
    return _mm512_cvtps_pd(_mm256_loadu_ps(p));
}
SIMD vd vd_add(vd a, vd b) {
    return _mm512_add_pd(a, b);
}
SIMD vd vd_sub(vd a, vd b) {
    return _mm512_sub_pd(a, b);
}
SIMD vd vd_mul(vd a, vd b) {
    return _mm512_mul_pd(a, b);
}
SIMD void vd_store(double *p, vd a) {
    _mm512_storeu_pd(p, a);
}
#else
typedef __m256d vd;
enum { DOUBLES = 4 };
SIMD vd vd_set(double x) {
    return _mm256_set1_pd(x);
}
SIMD vd vd_widen(const float *p) {
    return _mm256_cvtps_pd(_mm_loadu_ps(p));
}
SIMD vd vd_add(vd a, vd b) {
    return _mm256_add_pd(a, b);
}
SIMD vd vd_sub(vd a, vd b) {
    return _mm256_sub_pd(a, b);
}
SIMD vd vd_mul(vd a, vd b) {
    return _mm256_mul_pd(a, b);
}
SIMD void vd_store(double *p, vd a) {
    _mm256_storeu_pd(p, a);
}
#endif

static const double units[DIGITS] = {0x1p-20, 0x1p-60, 0x1p-100, 0x1p-140};

/* False, and nothing done, where the squares add up to more than 2^30 or are no numbers: a
 * square of 2^31 or more cannot be cut, and shows in the sum. */
SIMD bool add_block(const float *x, int64_t count, rpi_square_sum *sum) {
    vd digit[DIGITS], magic[DIGITS];
    for (int d = 0; d < DIGITS; d++) {
        digit[d] = vd_set(0);
        magic[d] = vd_set(units[d] * 0x1.8p52);
    }
    for (int64_t i = 0; i < count; i += DOUBLES) {
        vd wide = vd_widen(x + i), rest = vd_mul(wide, wide);
        for (int d = 0; d < DIGITS; d++) {
            vd cut = vd_sub(vd_add(rest, magic[d]), magic[d]);
            digit[d] = vd_add(digit[d], cut);
            rest = vd_sub(rest, cut);
        }
    }
    double total[DIGITS] = {0};
    for (int d = 0; d < DIGITS; d++) {
        double lanes[DOUBLES];
        vd_store(lanes, digit[d]);
        for (int lane = 0; lane < DOUBLES; lane++) total[d] += lanes[lane];
    }
    if (!(total[0] <= 0x1p30)) return false;
    for (int d = 0; d < DIGITS; d++)
        sum->digit[TOP_DIGIT - d] += (int64_t)(total[d] / units[d]);
    rpi_square_sum_carry(sum);
    return true;
}

/* Units are parts. */
RPI_SIMD_BODY(square_sum)(const void *args, int64_t begin, int64_t end) {
    const rpi_square_call *call = args;
    for (int64_t part = begin; part < end; part++) {
        int64_t last = rpi_square_part(call, part + 1);
        rpi_square_sum *sum = &call->sums[part];
        for (int64_t i = rpi_square_part(call, part); i < last; i += RPI_SQUARE_BLOCK) {
            int64_t count = last - i < RPI_SQUARE_BLOCK ? last - i : RPI_SQUARE_BLOCK;
            int64_t whole = count / DOUBLES * DOUBLES;
            if (!add_block(call->x + i, whole, sum)) whole = 0;
            rpi_square_sum_slowly(call->x + i + whole, count - whole, sum);
        }
    }
}
