#include "engine/backends/cpu/kernels/kernel_math.h"

#include "engine/backends/cpu/kernels/simd_math.h"

SIMD vf evaluate(rpi_math_function function, vf x) {
    vf cdf, pdf;
    switch (function) {
    case RPI_MATH_EXP: return vf_exp(x);
    case RPI_MATH_TANH: return vf_tanh(x);
    case RPI_MATH_ERF: return vf_erf(x);
    case RPI_MATH_SIGMOID: return vf_sigmoid(x);
    default: vf_normal(x, &cdf, &pdf); return cdf;
    }
}

SIMD void apply(const rpi_kernel_math *it, rpi_math_function function, int64_t begin,
                int64_t end) {
    EACH_VECTOR(k, live, end - begin) {
        vf x = vf_load_n(it->x + begin + k, live);
        vf_store_n(it->y + begin + k, evaluate(function, x), live);
    }
}

RPI_SIMD_BODY(math_apply)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_math *it = args;
    switch (it->function) {
    case RPI_MATH_EXP: apply(it, RPI_MATH_EXP, begin, end); break;
    case RPI_MATH_TANH: apply(it, RPI_MATH_TANH, begin, end); break;
    case RPI_MATH_ERF: apply(it, RPI_MATH_ERF, begin, end); break;
    case RPI_MATH_SIGMOID: apply(it, RPI_MATH_SIGMOID, begin, end); break;
    default: apply(it, RPI_MATH_NORMAL_CDF, begin, end);
    }
}
