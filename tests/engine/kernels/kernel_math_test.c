/* The largest error of exp, tanh, erf and their kin, over floats all through the range, and the
 * same bits from AVX2 and AVX-512. */
#include "kernel_fixture.h"

#include "engine/backends/cpu/kernels/kernel_math.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    double ulps;        /* allowed, of a normal result */
    double least, most; /* where */
} functions[RPI_MATH_COUNT] = {
    [RPI_MATH_EXP] = {"exp", 1.1, -103, 88.5},
    [RPI_MATH_TANH] = {"tanh", 2.0, -20, 20},
    [RPI_MATH_ERF] = {"erf", 2.0, -12, 12},
    [RPI_MATH_SIGMOID] = {"sigmoid", 2.5, -87, 90},
    [RPI_MATH_NORMAL_CDF] = {"normal cdf", 7.0, -13, 13},
};

static double exactly(rpi_math_function function, double x) {
    switch (function) {
    case RPI_MATH_EXP: return exp(x);
    case RPI_MATH_TANH: return tanh(x);
    case RPI_MATH_ERF: return erf(x);
    case RPI_MATH_SIGMOID: return 1 / (1 + exp(-x));
    default: return 0.5 * erfc(-x / sqrt(2));
    }
}

/* One unit in the last place of a float of this size; at least that of the smallest normal. */
static double ulp_of(double y) {
    int exponent;
    (void)frexp(y, &exponent);
    return ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
}

enum { BATCH = 4096 };

/* Floats by their bits: every `stride`-th from an offset drawn, so that runs differ. */
static int64_t next_floats(uint32_t *bits, uint32_t stride, double least, double most,
                           float *x) {
    int64_t count = 0;
    while (count < BATCH && *bits < 0x7f800000u) {
        float size;
        memcpy(&size, bits, sizeof size);
        *bits += stride;
        if (size <= most) x[count++] = size;
        if (count < BATCH && -size >= least) x[count++] = -size;
    }
    return count;
}

static void check_function(rpi_math_function function, rpi_isa isa) {
    static float x[BATCH], y[BATCH];
    rpi_kernel_run run = {.threads = 1, .isa = isa};
    uint32_t stride = check_long() ? 13 : 997, bits = (uint32_t)(check_seed() % 997);
    double worst = 0;
    float at = 0;
    for (;;) {
        int64_t count =
            next_floats(&bits, stride, functions[function].least, functions[function].most, x);
        if (count == 0) break;
        rpi_kernel_math_apply(&run, &(rpi_kernel_math){function, count, x, y});
        for (int64_t i = 0; i < count; i++) {
            double wanted = exactly(function, x[i]);
            double error = fabs(y[i] - wanted) / ulp_of(wanted);
            if (!(error <= worst)) worst = error, at = x[i];
        }
    }
    CHECK_MSG(worst <= functions[function].ulps, "%s, %s: %.3f ulp at %.9g; %.1f are allowed",
              functions[function].name, rpi_isa_name(isa), worst, at, functions[function].ulps);
    printf("    %s, %s: %.3f ulp at %.9g\n", functions[function].name, rpi_isa_name(isa), worst,
           at);
}

static void errors_are_small(void) {
    for (int f = 0; f < RPI_MATH_COUNT; f++)
        for (int isa = RPI_ISA_AVX2; isa <= (int)rpi_cpu_isa(); isa++)
            check_function((rpi_math_function)f, (rpi_isa)isa);
}

static void call(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_math_apply(run, args);
}

/* Every size of tail, and what is no number. */
static void edges(void) {
    static const float odd[] = {0.0f, -0.0f,     1e-45f,  -1e-45f,   3e38f,     -3e38f, 88.8f,
                                89,   -103.9f,   -104.5f, -INFINITY, INFINITY,  NAN,    1,
                                -1,   0.625f,    -0.625f, 10.2f,     1.414214f, 14.4f,  -14.5f,
                                1000, -1000.25f, 1e-20f,  -1e-20f};
    enum { ODD = sizeof odd / sizeof odd[0] };
    for (int f = 0; f < RPI_MATH_COUNT; f++)
        for (int64_t count = 0; count < 70; count++) {
            float *x = kernel_normal(count, 3, (uint64_t)count), *y = kernel_floats(count);
            for (int64_t i = 0; i < count && count >= 40; i++) x[i] = odd[i % ODD];
            rpi_kernel_math args = {(rpi_math_function)f, count, x, y};
            kernel_check(&(kernel_case){
                functions[f].name, call, &args, {{"y", y, count, RP_F32, 7e-7, 3e-38}}});
            kernel_buffers_free();
        }
}

CASES({"errors_are_small", errors_are_small}, {"edges", edges})
