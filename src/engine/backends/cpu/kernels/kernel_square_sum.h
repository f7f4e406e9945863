/* The sum of squares of f32 numbers, exactly: for clipping by the global norm and for LAMB.
 *
 * Each square is rounded to a multiple of 2^-140 (nothing is lost of |x| >= 2^-46), and the sum
 * of those is exact. So the result does not depend on order, on threads, on the instruction
 * set, on where a tensor is cut, nor on which rank adds which part: replicas clip by the same
 * bits.
 *
 * Demmel, Nguyen, "Fast reproducible floating-point summation", ARITH 2013, for the idea of
 * fixed bins; here they are absolute, so one pass is enough. */
#ifndef RPI_ENGINE_KERNEL_SQUARE_SUM_H
#define RPI_ENGINE_KERNEL_SQUARE_SUM_H

#include "engine/backends/cpu/kernels/kernel.h"

enum { RPI_SQUARE_DIGITS = 11 };

/* digit[i] counts units of 2^(40 i - 140). Sums of several are sums of their integers, up to
 * 2^20 of them; zeros are the empty sum. */
typedef struct rpi_square_sum {
    int64_t digit[RPI_SQUARE_DIGITS];
    int64_t nonfinite; /* NaN and infinity, counted and not summed */
} rpi_square_sum;

/* Adds the squares of x [count] to *sum. */
void rpi_kernel_square_sum(const rpi_kernel_run *run, const float *x, int64_t count,
                           rpi_square_sum *sum);
void rpi_square_sum_add(rpi_square_sum *to, const rpi_square_sum *from);
/* Within 2 ulp of the sum; NaN where an element was not finite. */
double rpi_square_sum_value(const rpi_square_sum *sum);

/* ---- inside ---- */

/* Parts of the range, each with a sum of its own. */
enum { RPI_SQUARE_PARTS = 32, RPI_SQUARE_BLOCK = 4096 };

typedef struct rpi_square_call {
    const float *x;
    int64_t count;
    rpi_square_sum *sums; /* [RPI_SQUARE_PARTS] */
} rpi_square_call;

/* The least unit is 2^RPI_SQUARE_LOWEST. */
enum { RPI_SQUARE_DIGIT_BITS = 40, RPI_SQUARE_LOWEST = -140 };

/* kernel_square_digits.c, for the definition and for vectors. */
/* Of elements one by one. */
void rpi_square_sum_slowly(const float *x, int64_t count, rpi_square_sum *sum);
/* Digits but the last from 0 to 2^40 - 1. */
void rpi_square_sum_carry(rpi_square_sum *sum);

static inline int64_t rpi_square_part(const rpi_square_call *call, int64_t part) {
    int64_t blocks = (call->count + RPI_SQUARE_BLOCK - 1) / RPI_SQUARE_BLOCK;
    int64_t first = blocks * part / RPI_SQUARE_PARTS * RPI_SQUARE_BLOCK;
    return first < call->count ? first : call->count;
}

RPI_KERNEL_DECLARE(square_sum);

#endif
