#include "engine/backends/cpu/kernels/kernel_square_sum.h"

#include <math.h>

/* A square has 48 bits: from 2^-92 on all of them are multiples of 2^-140. */
static void add_square(double square, rpi_square_sum *sum) {
    if (square < 0x1p-92) {
        sum->digit[0] += (int64_t)rint(square * 0x1p140);
        return;
    }
    for (int i = RPI_SQUARE_DIGITS - 1; i >= 0 && square > 0; i--) {
        double unit = ldexp(1, RPI_SQUARE_DIGIT_BITS * i + RPI_SQUARE_LOWEST),
               units = floor(square / unit);
        sum->digit[i] += (int64_t)units;
        square -= units * unit;
    }
}

void rpi_square_sum_carry(rpi_square_sum *sum) {
    const int64_t base = INT64_C(1) << RPI_SQUARE_DIGIT_BITS;
    for (int i = 0; i + 1 < RPI_SQUARE_DIGITS; i++) {
        int64_t rest = sum->digit[i] % base;
        if (rest < 0) rest += base;
        sum->digit[i + 1] += (sum->digit[i] - rest) / base;
        sum->digit[i] = rest;
    }
}

void rpi_square_sum_slowly(const float *x, int64_t count, rpi_square_sum *sum) {
    for (int64_t i = 0; i < count; i++) {
        if (isfinite(x[i]))
            add_square((double)x[i] * x[i], sum);
        else
            sum->nonfinite++;
    }
    rpi_square_sum_carry(sum);
}
