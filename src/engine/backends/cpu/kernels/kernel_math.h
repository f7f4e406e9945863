/* Functions over arrays, for other kernels and to be tested by themselves: y[i] = f(x[i]). y
 * may be x. The largest errors stand in simd_math.h. */
#ifndef RPI_ENGINE_KERNEL_MATH_H
#define RPI_ENGINE_KERNEL_MATH_H

#include "engine/backends/cpu/kernels/kernel.h"

typedef enum rpi_math_function {
    RPI_MATH_EXP,
    RPI_MATH_TANH,
    RPI_MATH_ERF,
    RPI_MATH_SIGMOID,
    RPI_MATH_NORMAL_CDF, /* (1 + erf(x / sqrt 2)) / 2 */
    RPI_MATH_COUNT
} rpi_math_function;

typedef struct rpi_kernel_math {
    rpi_math_function function;
    int64_t count;
    const float *x;
    float *y;
} rpi_kernel_math;

void rpi_kernel_math_apply(const rpi_kernel_run *run, const rpi_kernel_math *it);

RPI_KERNEL_DECLARE(math_apply);

#endif
