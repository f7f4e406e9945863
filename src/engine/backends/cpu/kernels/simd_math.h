/* exp, tanh, erf and their kin for 16 floats; the same bits with AVX2 and AVX-512. The errors
 * are the largest that kernel_math_test finds over all floats of the range. The polynomials are
 * weighted minimax fits, rounded to float. */
#ifndef RPI_ENGINE_SIMD_MATH_H
#define RPI_ENGINE_SIMD_MATH_H

#include "engine/backends/cpu/kernels/simd.h"

#define FMA_STEP(x, sum, coefficient) vf_fma(sum, x, vf_set(coefficient))

/* e^x, within 1.1 ulp: e^x = 2^n e^r, |r| <= ln 2 / 2. */
SIMD vf vf_exp(vf x) {
    x = vf_clamp(x, -104.0f, 89.0f);
    vf n = vf_round(vf_mul(x, vf_set(1.44269504f)));
    vf r =
        vf_fnma(n, vf_set(0.693145752f), x); /* ln 2 in two parts; n times the first is exact */
    r = vf_fnma(n, vf_set(1.42860677e-6f), r);
    vf p = vf_set(0.00139506022f);
    p = FMA_STEP(r, p, 0.00836895313f);
    p = FMA_STEP(r, p, 0.041666206f);
    p = FMA_STEP(r, p, 0.166665182f);
    p = FMA_STEP(r, p, 0.5f);
    p = vf_fma(vf_mul(r, r), p, r);
    return vf_scale2(vf_add(p, vf_set(1)), n);
}

/* 2^x for x up to 127, within 2 ulp; below -150 it is 0. */
SIMD vf vf_exp2(vf x) {
    x = vf_max(vf_set(-150.0f), x);
    vf n = vf_round(x), r = vf_sub(x, n);
    vf p = vf_set(0.00132646447f);
    p = FMA_STEP(r, p, 0.00967157632f);
    p = FMA_STEP(r, p, 0.055507347f);
    p = FMA_STEP(r, p, 0.240222409f);
    p = FMA_STEP(r, p, 0.693147004f);
    return vf_scale2(FMA_STEP(r, p, 1), n);
}

/* 1 / (1 + e^-x), within 2.5 ulp. */
SIMD vf vf_sigmoid(vf x) {
    return vf_div(vf_set(1), vf_add(vf_set(1), vf_exp(vf_neg(x))));
}

/* Within 2 ulp. */
SIMD vf vf_tanh(vf x) {
    vf size = vf_abs(x), x2 = vf_mul(x, x);
    vf p = vf_set(-0.00569738401f);
    p = FMA_STEP(x2, p, 0.0206325464f);
    p = FMA_STEP(x2, p, -0.0537377968f);
    p = FMA_STEP(x2, p, 0.133314207f);
    p = FMA_STEP(x2, p, -0.333332807f);
    vf near = vf_fma(vf_mul(x2, p), x, x);
    vf e = vf_exp(vf_add(size, size));
    vf far = vf_sub(vf_set(1), vf_div(vf_set(2), vf_add(e, vf_set(1))));
    return vf_select(vf_lt(size, vf_set(0.625f)), near, vf_copysign(far, x));
}

/* erf(x) for |x| < 1. */
SIMD vf erf_near(vf x) {
    vf x2 = vf_mul(x, x);
    vf p = vf_set(7.85390657e-05f);
    p = FMA_STEP(x2, p, -0.000801020826f);
    p = FMA_STEP(x2, p, 0.00518832961f);
    p = FMA_STEP(x2, p, -0.0268538129f);
    p = FMA_STEP(x2, p, 0.112835854f);
    p = FMA_STEP(x2, p, -0.37612626f);
    p = FMA_STEP(x2, p, 0.128379166f);
    return vf_fma(x, p, x);
}

/* e^(-a x^2) with the rounding error of x^2 made good; a is a power of two. */
SIMD vf exp_of_square(vf x, float a) {
    vf x2 = vf_mul(x, x), error = vf_fma(x, x, vf_neg(x2));
    vf e = vf_exp(vf_mul(x2, vf_set(-a)));
    return vf_fma(e, vf_mul(error, vf_set(-a)), e);
}

/* e^(x^2) erfc(x) for x from 1 to 10.3, a polynomial of 1 / (x + 2). */
SIMD vf scaled_erfc(vf x) {
    vf t = vf_div(vf_set(1), vf_add(x, vf_set(2)));
    vf p = vf_set(9.41656938f);
    p = FMA_STEP(t, p, -20.8880255f);
    p = FMA_STEP(t, p, 11.8393266f);
    p = FMA_STEP(t, p, 0.599771772f);
    p = FMA_STEP(t, p, 2.2955052f);
    p = FMA_STEP(t, p, 1.10085818f);
    p = FMA_STEP(t, p, 0.565482019f);
    return FMA_STEP(t, p, -2.55476938e-05f);
}

/* Within 2 ulp. */
SIMD vf vf_erf(vf x) {
    vf size = vf_min(vf_set(10.2f), vf_abs(x));
    vf far = vf_sub(vf_set(1), vf_mul(exp_of_square(size, 1), scaled_erfc(size)));
    return vf_select(vf_lt(size, vf_set(1)), erf_near(x), vf_copysign(far, x));
}

/* The normal distribution: *cdf = (1 + erf(x / sqrt 2)) / 2 and *pdf = e^(-x^2 / 2) / sqrt(2
 * pi). The tail below 0 keeps its relative precision: the cdf is within 7 ulp. */
SIMD void vf_normal(vf x, vf *cdf, vf *pdf) {
    const vf root = vf_set(0.707106781f), half = vf_set(0.5f);
    x = vf_clamp(x, -14.4f, 14.4f);
    vf size = vf_abs(x), e = exp_of_square(size, 0.5f);
    vf tail = vf_mul(half, vf_mul(e, scaled_erfc(vf_mul(size, root))));
    vf far = vf_select(vf_lt(x, vf_zero()), tail, vf_sub(vf_set(1), tail));
    vf near = vf_fma(half, erf_near(vf_mul(x, root)), half);
    *cdf = vf_select(vf_lt(size, vf_set(1.41421356f)), near, far);
    *pdf = vf_mul(e, vf_set(0.398942280f));
}

#endif
