#include "engine/backends/cpu/kernels/kernel_square_sum.h"

#include <math.h>

/* Units are parts; RPI_SQUARE_BLOCK elements between carries cannot overflow a digit. */
void rpi_square_sum_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_square_call *call = args;
    for (int64_t part = begin; part < end; part++) {
        int64_t last = rpi_square_part(call, part + 1);
        for (int64_t i = rpi_square_part(call, part); i < last; i += RPI_SQUARE_BLOCK)
            rpi_square_sum_slowly(call->x + i,
                                  last - i < RPI_SQUARE_BLOCK ? last - i : RPI_SQUARE_BLOCK,
                                  &call->sums[part]);
    }
}

void rpi_square_sum_add(rpi_square_sum *to, const rpi_square_sum *from) {
    for (int i = 0; i < RPI_SQUARE_DIGITS; i++) to->digit[i] += from->digit[i];
    to->nonfinite += from->nonfinite;
    rpi_square_sum_carry(to);
}

void rpi_kernel_square_sum(const rpi_kernel_run *run, const float *x, int64_t count,
                           rpi_square_sum *sum) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(square_sum);
    rpi_square_sum sums[RPI_SQUARE_PARTS] = {{{0}, 0}};
    rpi_square_call call = {x, count, sums};
    rpi_kernel_parallel(run, RPI_SQUARE_PARTS, 1, bodies, &call);
    for (int part = 0; part < RPI_SQUARE_PARTS; part++) rpi_square_sum_add(sum, &sums[part]);
}

double rpi_square_sum_value(const rpi_square_sum *sum) {
    rpi_square_sum carried = *sum;
    rpi_square_sum_carry(&carried);
    double value = 0;
    for (int i = RPI_SQUARE_DIGITS - 1; i >= 0; i--)
        value += ldexp((double)carried.digit[i], RPI_SQUARE_DIGIT_BITS * i + RPI_SQUARE_LOWEST);
    return sum->nonfinite ? NAN : value;
}
