#include "plan/rational.h"

int64_t rpi_common_divisor(int64_t a, int64_t b) {
    if (a < 0) a = -a;
    if (b < 0) b = -b;
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a ? a : 1;
}

rpi_rational rpi_rational_of(int64_t times, int64_t over) {
    int64_t divisor = rpi_common_divisor(times, over);
    return (rpi_rational){times / divisor, over / divisor};
}

/* Over the least common denominator, so that only results overflow that are in lowest terms
 * nearly too long themselves. */
bool rpi_rational_add(rpi_rational a, rpi_rational b, rpi_rational *out_result) {
    int64_t divisor = rpi_common_divisor(a.over, b.over), left, right, times, over;
    if (__builtin_mul_overflow(a.times, b.over / divisor, &left) ||
        __builtin_mul_overflow(b.times, a.over / divisor, &right) ||
        __builtin_add_overflow(left, right, &times) ||
        __builtin_mul_overflow(a.over, b.over / divisor, &over) || times == INT64_MIN)
        return false;
    *out_result = rpi_rational_of(times, over);
    return true;
}

bool rpi_rational_multiply(rpi_rational a, rpi_rational b, rpi_rational *out_result) {
    int64_t left = rpi_common_divisor(a.times, b.over), times, over;
    int64_t right = rpi_common_divisor(b.times, a.over);
    if (__builtin_mul_overflow(a.times / left, b.times / right, &times) ||
        __builtin_mul_overflow(a.over / right, b.over / left, &over) || times == INT64_MIN)
        return false;
    *out_result = rpi_rational_of(times, over);
    return true;
}
