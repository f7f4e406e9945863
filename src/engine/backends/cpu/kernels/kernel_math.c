#include "engine/backends/cpu/kernels/kernel_math.h"

#include <math.h>

static double evaluate(rpi_math_function function, double x) {
    switch (function) {
    case RPI_MATH_EXP: return exp(x);
    case RPI_MATH_TANH: return tanh(x);
    case RPI_MATH_ERF: return erf(x);
    case RPI_MATH_SIGMOID: return 1 / (1 + exp(-x));
    default: return 0.5 * erfc(-x * 0.70710678118654752440);
    }
}

void rpi_math_apply_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_math *it = args;
    for (int64_t i = begin; i < end; i++) it->y[i] = (float)evaluate(it->function, it->x[i]);
}

void rpi_kernel_math_apply(const rpi_kernel_run *run, const rpi_kernel_math *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(math_apply);
    rpi_kernel_parallel(run, it->count, RPI_KERNEL_PIECE, bodies, it);
}
