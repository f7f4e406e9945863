/* Rates between sizes that were measured: what is known is met, and nothing jumps. */
#include "plan/foresight/rate_table.h"

#include "harness/check.h"

#include <math.h>

/* Of products that follow a form exactly. */
static double form(const double *at) {
    double side = fmin(at[0], fmin(at[1], at[2]));
    return 2e11 / (1 + pow(64 / side, 1.5));
}

static rpi_rate_table products(void) {
    rpi_rate_table t = {.sides = 3};
    for (double m = 16; m <= 1024; m *= 4)
        for (double n = 32; n <= 2048; n *= 4) {
            const double at[] = {m, n, 64};
            CHECK(rpi_rate_table_add(&t, at, form(at)));
        }
    rpi_rate_table_fit(&t);
    return t;
}

static void points_are_met(void) {
    rpi_rate_table t = products();
    for (int i = 0; i < t.count; i++)
        CHECK_NEAR(rpi_rate_at(&t, t.points[i].at) / t.points[i].rate, 1, 1e-9);
    CHECK_NEAR(t.half_side / 64, 1, .01);
    CHECK_NEAR(t.power, 1.5, 1e-9);
    CHECK_NEAR(t.best / 2e11, 1, .01);
}

/* Also of sizes that are far from all points. */
static void what_follows_a_form_is_known_everywhere(void) {
    rpi_rate_table t = products();
    for (double side = 4; side < 1e5; side *= 1.7) {
        const double at[] = {side, 2 * side, side / 2};
        CHECK_NEAR(rpi_rate_at(&t, at) / form(at), 1, .02);
    }
}

/* One measurement that is off is met where it is, and forgotten far from it. */
static void there_is_no_cliff(void) {
    rpi_rate_table t = products();
    const double odd[] = {96, 96, 96};
    CHECK(rpi_rate_table_add(&t, odd, form(odd) / 2));
    double last = 0;
    for (double side = 48; side < 200; side *= 1.002) {
        const double at[] = {side, side, side};
        double ratio = rpi_rate_at(&t, at) / form(at);
        CHECK_MSG(ratio > .49 && ratio < 1.1, "%g at %g", ratio, side);
        if (last > 0)
            CHECK_MSG(fabs(ratio / last - 1) < .05, "from %g to %g at %g", last, ratio, side);
        last = ratio;
    }
    CHECK_NEAR(rpi_rate_at(&t, odd) / form(odd), .5, 1e-9);
    const double far[] = {4096, 4096, 4096};
    CHECK_NEAR(rpi_rate_at(&t, far) / form(far), 1, .03);
}

/* Of one side a line in logarithms: half way between 1 and 4, in a geometric sense, is 2. */
static void lines(void) {
    rpi_rate_table t = {.sides = 1};
    CHECK(rpi_rate_at(&t, (const double[]){1}) == 0);
    CHECK(rpi_rate_table_add(&t, (const double[]){4096}, 4e9));
    CHECK(rpi_rate_table_add(&t, (const double[]){256}, 1e9));
    CHECK_NEAR(rpi_rate_at(&t, (const double[]){1024}) / 2e9, 1, 1e-9);
    CHECK_NEAR(rpi_rate_at(&t, (const double[]){1}) / 1e9, 1, 1e-9);
    CHECK_NEAR(rpi_rate_at(&t, (const double[]){1e12}) / 4e9, 1, 1e-9);
}

static void what_is_no_rate_is_refused(void) {
    rpi_rate_table t = {.sides = 2};
    CHECK(!rpi_rate_table_add(&t, (const double[]){1, 2}, 0));
    CHECK(!rpi_rate_table_add(&t, (const double[]){1, 2}, NAN));
    CHECK(!rpi_rate_table_add(&t, (const double[]){0, 2}, 1));
    CHECK(!rpi_rate_table_add(&t, (const double[]){1, INFINITY}, 1));
    for (int i = 0; i < RPI_RATE_POINTS; i++)
        CHECK(rpi_rate_table_add(&t, (const double[]){i + 1, 2}, 1));
    CHECK(!rpi_rate_table_add(&t, (const double[]){1, 2}, 1));
}

CASES({"points are met", points_are_met},
      {"what follows a form is known everywhere", what_follows_a_form_is_known_everywhere},
      {"there is no cliff", there_is_no_cliff}, {"lines", lines},
      {"what is no rate is refused", what_is_no_rate_is_refused})
