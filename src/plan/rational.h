/* Exact fractions of 63 bits, for checks and properties. Whatever does not fit is refused,
 * never rounded. */
#ifndef RPI_PLAN_RATIONAL_H
#define RPI_PLAN_RATIONAL_H

#include <stdbool.h>
#include <stdint.h>

/* times / over in lowest terms, over > 0. Zero is 0/1. */
typedef struct rpi_rational {
    int64_t times, over;
} rpi_rational;

int64_t rpi_common_divisor(int64_t a, int64_t b); /* at least 1 */

/* over > 0. */
rpi_rational rpi_rational_of(int64_t times, int64_t over);
/* false: does not fit, and *out_result is untouched. */
bool rpi_rational_add(rpi_rational a, rpi_rational b, rpi_rational *out_result);
bool rpi_rational_multiply(rpi_rational a, rpi_rational b, rpi_rational *out_result);

static inline bool rpi_rational_same(rpi_rational a, rpi_rational b) {
    return a.times == b.times && a.over == b.over;
}

static inline double rpi_rational_value(rpi_rational a) {
    return (double)a.times / (double)a.over;
}

#endif
