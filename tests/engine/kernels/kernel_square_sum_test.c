#include "kernel_fixture.h"

#include "engine/backends/cpu/kernels/kernel_square_sum.h"

static bool equal(const rpi_square_sum *a, const rpi_square_sum *b) {
    for (int i = 0; i < RPI_SQUARE_DIGITS; i++)
        if (a->digit[i] != b->digit[i]) return false;
    return a->nonfinite == b->nonfinite;
}

/* Sizes from 2^-75 to 2^63 in one array, or all alike. */
static float *draw(rpi_rng *rng, int64_t count, int kind) {
    float *x = kernel_normal(count, 1, (uint64_t)kind + 10);
    for (int64_t i = 0; i < count; i++) {
        int exponent = (int)rpi_rng_below(rng, 140) - 75;
        if (kind % 3 == 1) x[i] = ldexpf(x[i], exponent);
        if (kind % 3 == 2) x[i] *= 1e-5f;
    }
    return x;
}

/* The same integers for all instruction sets, threads and cuts. */
static void sums_do_not_depend_on_how(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int kind = 0; kind < 18; kind++) {
        int64_t count = kernel_size(&rng, kind < 3 ? 60000 : 9000);
        float *x = draw(&rng, count, kind);
        rpi_square_sum wanted = {{0}, 0};
        rpi_kernel_run run = {1, RPI_ISA_SCALAR};
        rpi_kernel_square_sum(&run, x, count, &wanted);
        for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++)
            for (int threads = 1; threads <= 3; threads++) {
                rpi_square_sum sum = {{0}, 0};
                run = (rpi_kernel_run){threads, (rpi_isa)isa};
                int64_t cut = rpi_rng_below(&rng, (uint32_t)count + 1);
                rpi_kernel_square_sum(&run, x + cut, count - cut, &sum);
                rpi_kernel_square_sum(&run, x, cut, &sum);
                CHECK_MSG(equal(&sum, &wanted), "kind %d, %d elements, cut at %d, %s", kind,
                          (int)count, (int)cut, rpi_isa_name(run.isa));
            }
        kernel_buffers_free();
    }
}

static void sums_are_right(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 2);
    rpi_kernel_run run = {2, rpi_cpu_isa()};
    for (int kind = 0; kind < 12; kind++) {
        int64_t count = kernel_size(&rng, 20000);
        float *x = draw(&rng, count, kind);
        rpi_square_sum sum = {{0}, 0};
        rpi_kernel_square_sum(&run, x, count, &sum);
        long double wanted = 0;
        for (int64_t i = 0; i < count; i++) wanted += (long double)x[i] * x[i];
        double value = rpi_square_sum_value(&sum);
        double allowed = 1e-15 * (double)wanted + (double)count * 0x1p-141; /* half a unit */
        CHECK_MSG(fabs(value - (double)wanted) <= allowed, "%.17g, not %.17g", value,
                  (double)wanted);
        kernel_buffers_free();
    }
}

/* From the largest float to squares that round away; counts of what is no number. */
static void edges(void) {
    float x[40] = {3.402823466e38f, -3.402823466e38f, 0x1p-70f, 0x1p-71f, 1e-45f, -0.0f};
    for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++) {
        rpi_kernel_run run = {1, (rpi_isa)isa};
        rpi_square_sum sum = {{0}, 0};
        CHECK(rpi_square_sum_value(&sum) == 0);
        rpi_kernel_square_sum(&run, x, 0, &sum);
        rpi_kernel_square_sum(&run, x, 2, &sum);
        double largest = 3.402823466e38f;
        CHECK_NEAR(rpi_square_sum_value(&sum) / (2 * largest * largest), 1, 1e-15);
        sum = (rpi_square_sum){{0}, 0};
        rpi_kernel_square_sum(&run, x + 2, 38, &sum);
        CHECK(rpi_square_sum_value(&sum) == 0x1p-140); /* 2^-142 rounds to 0 */
        x[35] = NAN, x[20] = -INFINITY;
        rpi_kernel_square_sum(&run, x + 2, 38, &sum);
        CHECK_EQ(sum.nonfinite, 2);
        CHECK(isnan(rpi_square_sum_value(&sum)));
        x[35] = x[20] = 0;
    }
}

CASES({"sums_do_not_depend_on_how", sums_do_not_depend_on_how},
      {"sums_are_right", sums_are_right}, {"edges", edges})
