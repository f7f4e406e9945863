/* Scales, ticks and numbers for people. */
#include "cli/report/chart.h"
#include "cli/report/csv_tables.h"
#include "cli/report/scale.h"
#include "harness/check.h"
#include "redpoll/rng.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The texts of all ticks, joined by blanks. */
static const char *ticks_of(rpi_range range) {
    static char joined[512];
    rpi_scale scale = rpi_scale_make(&range, 0, 100);
    joined[0] = '\0';
    for (int i = 0; i < scale.tick_count; i++) {
        strcat(joined, i ? " " : "");
        strcat(joined, scale.ticks[i].text);
    }
    strcat(joined, scale.unit[0] ? " " : "");
    strcat(joined, scale.unit);
    return joined;
}

#define CHECK_TEXT(got, wanted)                                                                \
    do {                                                                                       \
        const char *check_text = (got);                                                        \
        CHECK_MSG(strcmp(check_text, wanted) == 0, "'%s', not '%s'", check_text, wanted);      \
    } while (0)

static void linear_ticks_are_round(void) {
    CHECK_TEXT(ticks_of((rpi_range){.low = 0, .high = 200, .quantity = RPI_WHOLE, .wanted = 5}),
               "0 50 100 150 200");
    CHECK_TEXT(ticks_of((rpi_range){.low = 0.31, .high = 2.42, .rounds = true, .wanted = 5}),
               "0.0 0.5 1.0 1.5 2.0 2.5");
    CHECK_TEXT(ticks_of((rpi_range){.low = -3e-3, .high = 4e-3, .rounds = true, .wanted = 5}),
               "-0.003 -0.002 -0.001 0.000 0.001 0.002 0.003 0.004");
    CHECK_TEXT(ticks_of((rpi_range){.low = 0, .high = 3, .quantity = RPI_WHOLE, .wanted = 6}),
               "0 1 2 3"); /* half a rank is none */
    CHECK_TEXT(ticks_of((rpi_range){.low = 0, .high = 1e6, .quantity = RPI_WHOLE, .wanted = 5}),
               "0 0.2M 0.4M 0.6M 0.8M 1.0M");
    CHECK_TEXT(ticks_of((rpi_range){.low = 0, .high = 4e4, .quantity = RPI_WHOLE, .wanted = 5}),
               "0 10k 20k 30k 40k");
}

static void axes_have_one_unit(void) {
    CHECK_TEXT(
        ticks_of((rpi_range){.low = 0, .high = 420, .quantity = RPI_SECONDS, .wanted = 4}),
        "0 2 4 6 min");
    CHECK_TEXT(
        ticks_of((rpi_range){.low = 0, .high = 0.0051, .quantity = RPI_SECONDS, .wanted = 5}),
        "0 1 2 3 4 5 ms");
    CHECK_TEXT(
        ticks_of((rpi_range){.low = 0, .high = 2.5e9, .quantity = RPI_BYTES, .wanted = 5}),
        "0.0 0.5 1.0 1.5 2.0 2.5 GB");
    CHECK_TEXT(
        ticks_of((rpi_range){
            .low = 0.78, .high = 0.861, .quantity = RPI_SHARE, .rounds = true, .wanted = 5}),
        "78 80 82 84 86 88 %");
}

static void logarithmic_ticks_are_round(void) {
    rpi_range loss = {
        .low = 0.011, .high = 2.4, .logarithmic = true, .rounds = true, .wanted = 8};
    CHECK_TEXT(ticks_of(loss), "0.01 0.02 0.05 0.1 0.2 0.5 1 2 5");
    loss.wanted = 5;
    CHECK_TEXT(ticks_of(loss), "0.01 0.1 1");
    CHECK_TEXT(ticks_of((rpi_range){
                   .low = 3e-8, .high = 2.3, .logarithmic = true, .rounds = true, .wanted = 5}),
               "1e-6 0.0001 0.01 1");
    CHECK_TEXT(
        ticks_of((rpi_range){
            .low = 900, .high = 2e6, .quantity = RPI_BYTES, .logarithmic = true, .wanted = 5}),
        "1 kB 10 kB 100 kB 1 MB");
}

static void odd_ranges_still_have_an_axis(void) {
    static const struct {
        double low, high;
        bool logarithmic;
    } odd[] = {
        {NAN, NAN, false},      {INFINITY, -INFINITY, false},
        {0, 0, false},          {5, 5, false},
        {-5, -5, false},        {1e-300, 1e-300, true},
        {-1, 5, true},          {0, 0, true},
        {1, 1, true},           {1, 1e300, true},
        {-1e300, 1e300, false}, {1e-12, 1e36, true},
        {1, 1 + 1e-15, false},
    };
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        for (int quantity = RPI_NUMBER; quantity <= RPI_SHARE; quantity++) {
            rpi_range range = {.low = odd[i].low,
                               .high = odd[i].high,
                               .logarithmic = odd[i].logarithmic,
                               .rounds = i % 2,
                               .quantity = (rpi_quantity)quantity,
                               .wanted = 5};
            rpi_scale scale = rpi_scale_make(&range, 10, 90);
            CHECK_MSG(scale.low < scale.high, "case %zu: %g to %g", i, scale.low, scale.high);
            CHECK_MSG(scale.tick_count >= 1, "case %zu has no tick", i);
            CHECK_NEAR(rpi_scale_at(&scale, scale.low), 10, 1e-6);
            CHECK_NEAR(rpi_scale_at(&scale, scale.high), 90, 1e-6);
        }
}

/* Whatever the range: it lies within the ends, ticks ascend within them and read as their
 * value. */
static void any_range_lies_within_its_scale(void) {
    uint64_t seed = check_seed();
    srand48((long)seed);
    for (int i = 0; i < 5000; i++) {
        double size = pow(10, drand48() * 30 - 15), low = (drand48() - 0.3) * size;
        rpi_range range = {.low = low,
                           .high = low + drand48() * size,
                           .quantity = (rpi_quantity)(lrand48() % 6),
                           .logarithmic = low > 0 && lrand48() % 2,
                           .rounds = lrand48() % 2,
                           .wanted = 3 + (int)(lrand48() % 6)};
        rpi_scale scale = rpi_scale_make(&range, 0, 1);
        double slack = 1e-6 * (scale.high - scale.low);
        CHECK_MSG(scale.low <= range.low + slack && scale.high >= range.high - slack,
                  "%d: %g to %g is not in %g to %g", i, range.low, range.high, scale.low,
                  scale.high);
        for (int t = 0; t < scale.tick_count; t++) {
            double place = rpi_scale_at(&scale, scale.ticks[t].value);
            CHECK_MSG(
                place >= -1e-6 && place <= 1 + 1e-6,
                "%d: a tick at %g of %.17g to %.17g, quantity %d, log %d, rounds %d, %d wanted",
                i, place, range.low, range.high, range.quantity, range.logarithmic,
                range.rounds, range.wanted);
            CHECK_MSG(t == 0 || strcmp(scale.ticks[t].text, scale.ticks[t - 1].text) != 0,
                      "%d: '%s' twice", i, scale.ticks[t].text);
            CHECK_MSG(t == 0 || scale.ticks[t].value > scale.ticks[t - 1].value, "%d: order",
                      i);
        }
        if (check_failures()) return;
    }
}

static void numbers_are_for_people(void) {
    char text[RPI_QUANTITY_TEXT];
    CHECK_TEXT(rpi_number_text(0.451234, 4, text), "0.4512");
    CHECK_TEXT(rpi_number_text(11451.2, 4, text), "11451");
    CHECK_TEXT(rpi_number_text(1e36, 4, text), "1e36");
    CHECK_TEXT(rpi_number_text(3.89e-8, 4, text), "3.89e-8");
    CHECK_TEXT(rpi_number_text(NAN, 4, text), "–");
    CHECK_TEXT(rpi_number_text(-INFINITY, 4, text), "−∞");
    CHECK_TEXT(rpi_quantity_text(RPI_BYTES, 44.7e6, text), "44.7 MB");
    CHECK_TEXT(rpi_quantity_text(RPI_SECONDS, 1.378, text), "1.38 s");
    CHECK_TEXT(rpi_quantity_text(RPI_SECONDS, 150, text), "150 s");
    CHECK_TEXT(rpi_quantity_text(RPI_SECONDS, 7200, text), "120 min");
    CHECK_TEXT(rpi_quantity_text(RPI_SECONDS, 2.5e-5, text), "25.0 µs");
    CHECK_TEXT(rpi_quantity_text(RPI_SHARE, 0.8725, text), "87.2 %");
    CHECK_TEXT(rpi_quantity_text(RPI_WHOLE, 1000000, text), "1000000");
    CHECK_TEXT(rpi_quantity_text(RPI_BYTES, NAN, text), "–");
    CHECK_TEXT(rpi_exact_text(0.1, text), "0.1");
    CHECK_TEXT(rpi_exact_text(1 / 3.0, text), "0.3333333333333333");
    CHECK_TEXT(rpi_exact_text(NAN, text), "");
}

static int rising(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A band counts without the fiftieth of its points that stray most, eight at most; the line
 * itself counts in full. */
static void stray_points_do_not_flatten_a_curve(void) {
    enum { MOST = 600 };
    for (int count = 1; count <= MOST; count += count < 60 ? 7 : 49) {
        rpi_point points[MOST];
        double low[MOST], high[MOST];
        for (int i = 0; i < count; i++) {
            double stray = 1 + (double)(i * 7919 % count); /* each another, in no order */
            points[i] = (rpi_point){i, 0.5, -stray * stray, stray * stray * stray};
            low[i] = points[i].low;
            high[i] = points[i].high;
        }
        points[count / 2].y = 1.5;
        qsort(low, (size_t)count, sizeof *low, rising);
        qsort(high, (size_t)count, sizeof *high, rising);
        int strays = count / 50 < 8 ? count / 50 : 8;
        rpi_series series = {.has_band = true, .points = points, .count = count};
        rpi_figure figure = {.series = &series, .series_count = 1};
        rpi_range range = {.low = fmin(low[strays], 0.5),
                           .high = fmax(high[count - 1 - strays], 1.5),
                           .rounds = true,
                           .wanted = 5};
        rpi_scale wanted = rpi_scale_make(&range, 0, 100);
        rpi_scale got = rpi_series_scale(&figure, false, 0, 100);
        CHECK_MSG(got.low == wanted.low && got.high == wanted.high,
                  "%d points: %g to %g, not %g to %g", count, got.low, got.high, wanted.low,
                  wanted.high);
    }
}

/* Nothing of it is left: neither descriptors nor files that were begun. */
static void tables_that_cannot_all_be_opened_are_given_up(void) {
    char path[600];
    rpi_csv_tables *tables = NULL;
    int before = check_descriptors();
    snprintf(path, sizeof path, "%s/bench.csv", check_folder());
    REQUIRE(mkdir(path, 0700) == 0);
    CHECK_FAILS(rpi_csv_open(check_folder(), &tables), IO, "it is a folder");
    CHECK(!tables);
    CHECK_EQ(check_descriptors(), before);
    rmdir(path);
    CHECK_EQ(rmdir(check_folder()), 0); /* it is empty */
    CHECK_EQ(mkdir(check_folder(), 0700), 0);
}

CASES({"linear ticks are round", linear_ticks_are_round},
      {"axes have one unit", axes_have_one_unit},
      {"logarithmic ticks are round", logarithmic_ticks_are_round},
      {"odd ranges still have an axis", odd_ranges_still_have_an_axis},
      {"any range lies within its scale", any_range_lies_within_its_scale},
      {"numbers are for people", numbers_are_for_people},
      {"stray points do not flatten a curve", stray_points_do_not_flatten_a_curve},
      {"tables that cannot all be opened are given up",
       tables_that_cannot_all_be_opened_are_given_up})
