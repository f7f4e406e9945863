/* Fractions of 63 bits against 128-bit integers, and their overflow. */
#include "plan/rational.h"

#include "base/rng.h"
#include "harness/check.h"

static rpi_rational random_rational(rpi_rng *rng) {
    int bits = 1 + (int)rpi_rng_below(rng, 31);
    int64_t times = (int64_t)(rpi_rng_u32(rng) >> (32 - bits));
    int64_t over = 1 + (int64_t)(rpi_rng_u32(rng) >> (32 - bits));
    return rpi_rational_of(rpi_rng_below(rng, 2) ? -times : times, over);
}

/* a/b == c/d, without rounding. */
static bool same(__int128 a, __int128 b, rpi_rational got) {
    return a * got.over == (__int128)got.times * b;
}

static void sums_and_products_are_exact(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    for (int i = 0; i < 100000; i++) {
        rpi_rational a = random_rational(&rng), b = random_rational(&rng), sum, product;
        REQUIRE(rpi_rational_add(a, b, &sum) && rpi_rational_multiply(a, b, &product));
        __int128 over = (__int128)a.over * b.over;
        REQUIRE(same((__int128)a.times * b.over + (__int128)b.times * a.over, over, sum));
        REQUIRE(same((__int128)a.times * b.times, over, product));
        REQUIRE(rpi_common_divisor(sum.times, sum.over) == 1 && sum.over > 0);
        REQUIRE(rpi_common_divisor(product.times, product.over) == 1 && product.over > 0);
    }
}

static void what_does_not_fit_is_refused(void) {
    rpi_rational kept = {7, 9}, most = {INT64_MAX, 1}, least = {1, INT64_MAX};
    CHECK(!rpi_rational_add(most, (rpi_rational){1, 1}, &kept));
    CHECK(!rpi_rational_multiply(most, (rpi_rational){2, 1}, &kept));
    CHECK(!rpi_rational_multiply(least, (rpi_rational){1, 2}, &kept));
    CHECK(!rpi_rational_add(least, (rpi_rational){1, 2}, &kept));
    CHECK(kept.times == 7 && kept.over == 9);
    CHECK(rpi_rational_multiply(most, least, &kept) && kept.times == 1 && kept.over == 1);
    CHECK(rpi_rational_same(rpi_rational_of(0, 12), (rpi_rational){0, 1}));
}

CASES({"sums_and_products_are_exact", sums_and_products_are_exact},
      {"what_does_not_fit_is_refused", what_does_not_fit_is_refused})
