#include "cli/bench_serial.h"

#include "harness/check.h"

#include <stdlib.h>

enum { WORLD = 3, COUNT = 100 };

static const rp_dtype dtypes[] = {
#define DTYPE(name, value, text, bytes, floating) RP_##name,
    RP_DTYPE_TABLE(DTYPE)
#undef DTYPE
};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

static void any_part_of_an_input_is_the_part_of_the_whole(void) {
    uint64_t seed = check_seed();
    unsigned char whole[16 * COUNT], part[16 * COUNT];
    for (int d = 0; d < DTYPES; d++) {
        size_t bytes = rp_dtype_bytes(dtypes[d]);
        rpi_serial_input(seed, 1, dtypes[d], 0, COUNT, whole);
        for (size_t first = 0; first < COUNT; first += 7) {
            rpi_serial_input(seed, 1, dtypes[d], first, COUNT - first, part);
            CHECK(memcmp(part, whole + first * bytes, (COUNT - first) * bytes) == 0);
        }
        rpi_serial_input(seed, 2, dtypes[d], 0, COUNT, part);
        CHECK(memcmp(part, whole, COUNT * bytes) != 0);
    }
}

static void wide_values_are_the_stored_ones(void) {
    int8_t bytes[] = {-1, 127};
    uint8_t large[] = {255};
    int64_t longs[] = {INT64_MIN};
    double complexes[] = {1.5, -2.5};
    uint16_t halves[] = {rp_f32_to_f16(0.25f), rp_f32_to_bf16(-3)};
    rpi_wide wide[2];
    rpi_serial_widen(RP_I8, bytes, 2, wide);
    CHECK(wide[0].whole == UINT64_MAX && wide[1].whole == 127);
    rpi_serial_widen(RP_U8, large, 1, wide);
    CHECK(wide[0].whole == 255);
    rpi_serial_widen(RP_I64, longs, 1, wide);
    CHECK(wide[0].whole == (uint64_t)1 << 63);
    rpi_serial_widen(RP_C128, complexes, 1, wide);
    CHECK(wide[0].re == 1.5 && wide[0].im == -2.5);
    rpi_serial_widen(RP_F16, halves, 1, wide);
    CHECK(wide[0].re == 0.25);
    rpi_serial_widen(RP_BF16, halves + 1, 1, wide);
    CHECK(wide[0].re == -3);
}

/* Known answers of small sums: of 3, 1 and 2 everywhere, for bool of 1, 1 and 0. */
static rpi_wide reduce(rp_reduction reduction, rp_dtype dtype) {
    static const double reals[WORLD] = {3, 1, 2};
    static const uint64_t wholes[WORLD] = {3, 1, 2}, bools[WORLD] = {1, 1, 0};
    rpi_wide sum;
    rpi_serial_begin(reduction, dtype, 1, &sum);
    for (int r = 0; r < WORLD; r++) {
        rpi_wide x = {.re = reals[r], .whole = dtype == RP_BOOL ? bools[r] : wholes[r]};
        rpi_serial_add(reduction, dtype, r, &x, 1, &sum);
    }
    rpi_serial_end(reduction, WORLD, 1, &sum);
    return sum;
}

static void reductions_have_known_answers(void) {
    static const struct {
        rp_reduction reduction;
        double real;
        uint64_t whole, truth;
    } known[] = {
        {RP_SUM, 6, 6, 1},
        {RP_AVG, 2, 0, 0}, /* floats alone */
        {RP_PRODUCT, 6, 6, 0},
        {RP_MIN, 1, 1, 0},
        {RP_MAX, 3, 3, 1},
        {RP_BAND, 0, 0, 0},
        {RP_BOR, 0, 3, 1},
        {RP_BXOR, 0, 0, 0},
        {RP_PREMUL_SUM, 3 + 1.0 / 2 + 2.0 / 3, 0, 0},
    };
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        rp_reduction reduction = known[k].reduction;
        bool bits = reduction >= RP_BAND && reduction <= RP_BXOR;
        bool floats = reduction == RP_AVG || reduction == RP_PREMUL_SUM;
        if (!bits) CHECK_NEAR(reduce(reduction, RP_F64).re, known[k].real, 1e-15);
        if (floats) continue;
        CHECK(reduce(reduction, RP_I32).whole == known[k].whole);
        CHECK(reduce(reduction, RP_BOOL).whole == known[k].truth);
    }
}

static void minima_know_the_sign(void) {
    rpi_wide minus = {.whole = UINT64_MAX}, sum;
    rpi_serial_begin(RP_MIN, RP_I8, 1, &sum);
    rpi_serial_add(RP_MIN, RP_I8, 0, &(rpi_wide){.whole = 5}, 1, &sum);
    rpi_serial_add(RP_MIN, RP_I8, 1, &minus, 1, &sum);
    CHECK(sum.whole == UINT64_MAX);
    rpi_serial_begin(RP_MAX, RP_U64, 1, &sum);
    rpi_serial_add(RP_MAX, RP_U64, 0, &(rpi_wide){.whole = 5}, 1, &sum);
    rpi_serial_add(RP_MAX, RP_U64, 1, &minus, 1, &sum);
    CHECK(sum.whole == UINT64_MAX);
    rpi_serial_begin(RP_MIN, RP_F32, 1, &sum);
    rpi_serial_add(RP_MIN, RP_F32, 0, &(rpi_wide){.re = -2}, 1, &sum);
    CHECK(sum.re == -2);
}

static void complex_products_multiply(void) {
    rpi_wide sum, x = {.re = 0, .im = 1};
    rpi_serial_begin(RP_PRODUCT, RP_C64, 1, &sum);
    for (int r = 0; r < 3; r++) rpi_serial_add(RP_PRODUCT, RP_C64, r, &x, 1, &sum);
    CHECK(sum.re == 0 && sum.im == -1);
}

/* One element that is off by its smallest step is noticed where nothing may be lost, and a
 * wrong one everywhere. */
static void one_wrong_element_is_seen(void) {
    uint64_t seed = check_seed();
    unsigned char data[16 * COUNT];
    rpi_wide answer[COUNT], result[COUNT];
    for (int d = 0; d < DTYPES; d++) {
        rp_dtype dtype = dtypes[d];
        rpi_distance same = {0}, other = {0};
        rpi_serial_input(seed, 0, dtype, 0, COUNT, data);
        rpi_serial_widen(dtype, data, COUNT, answer);
        rpi_serial_compare(dtype, answer, answer, COUNT, &same);
        CHECK(rpi_distance_is_within(&same, 0, 1) && rpi_distance_error(&same) == 0);
        data[(COUNT - 1) * rp_dtype_bytes(dtype)] ^= 1;
        rpi_serial_widen(dtype, data, COUNT, result);
        rpi_serial_compare(dtype, result, answer, COUNT, &other);
        CHECK_MSG(!rpi_distance_is_within(&other, 0, 1), "%s", rp_dtype_name(dtype));
        CHECK(rpi_distance_error(&other) > 0);
    }
}

static void rounding_is_forgiven_and_nothing_more(void) {
    rpi_wide answer = {.re = 1}, result = {.re = 1 + 0x1p-23};
    rpi_distance distance = {0};
    rpi_serial_compare(RP_F32, &result, &answer, 1, &distance);
    CHECK(!rpi_distance_is_within(&distance, 0, 4));
    CHECK(rpi_distance_is_within(&distance, rpi_dtype_rounding(RP_F32), 4));
    result.re = 1 + 0x1p-16;
    rpi_serial_compare(RP_F32, &result, &answer, 1, &distance);
    CHECK(!rpi_distance_is_within(&distance, rpi_dtype_rounding(RP_F32), 4));
    CHECK(rpi_distance_is_within(&distance, rpi_dtype_rounding(RP_F16), 4));
    result.re = NAN;
    rpi_serial_compare(RP_F32, &result, &answer, 1, &distance);
    CHECK(!rpi_distance_is_within(&distance, 1, 4));
}

/* What is above the width of an integer is not compared: sums wrap. */
static void integers_wrap(void) {
    rpi_wide answer = {.whole = 300}, result = {.whole = 44};
    rpi_distance distance = {0};
    rpi_serial_compare(RP_U8, &result, &answer, 1, &distance);
    CHECK(distance.difference == 0);
    rpi_serial_compare(RP_U16, &result, &answer, 1, &distance);
    CHECK(distance.difference == 1);
}

static void reductions_are_found_by_name(void) {
    rp_reduction reduction;
    CHECK_OK(rpi_reduce_parse("premul-sum", &reduction));
    CHECK_EQ(reduction, RP_PREMUL_SUM);
    CHECK_FAILS(rpi_reduce_parse("bandd", &reduction), INVALID, "did you mean 'band'");
}

CASES({"any_part_of_an_input_is_the_part_of_the_whole",
       any_part_of_an_input_is_the_part_of_the_whole},
      {"wide_values_are_the_stored_ones", wide_values_are_the_stored_ones},
      {"reductions_have_known_answers", reductions_have_known_answers},
      {"minima_know_the_sign", minima_know_the_sign},
      {"complex_products_multiply", complex_products_multiply},
      {"one_wrong_element_is_seen", one_wrong_element_is_seen},
      {"rounding_is_forgiven_and_nothing_more", rounding_is_forgiven_and_nothing_more},
      {"integers_wrap", integers_wrap},
      {"reductions_are_found_by_name", reductions_are_found_by_name})
