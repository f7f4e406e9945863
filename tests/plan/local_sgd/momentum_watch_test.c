/* Autocorrelations from samples, by hand, and what is told of them. */
#include "plan/local_sgd/momentum_watch.h"

#include "harness/check.h"

#include <math.h>
#include <string.h>

static void a_stride_leaves_few_samples(void) {
    CHECK_EQ(rpi_sample_stride(1), 1);
    CHECK_EQ(rpi_sample_stride(65536), 1);
    CHECK_EQ(rpi_sample_stride(65537), 2);
    CHECK_EQ(rpi_sample_stride(1000000), 16);
    CHECK_EQ(rpi_sample_count(1000000, 16), 62500);
    CHECK_EQ(rpi_sample_count(7, 3), 3);
}

static void samples_by_hand(void) {
    const float narrow[] = {1, 9, 2, 9, -3};
    const double wide[] = {2, 9, 0, 9, 1};
    float samples[3] = {0};
    rpi_sample_products first = {0}, second = {0};
    rpi_sample_gradient(RP_F32, narrow, 5, 2, samples, &first);
    CHECK(first.now == 14 && first.before == 0 && first.both == 0);
    CHECK(samples[0] == 1 && samples[1] == 2 && samples[2] == -3);
    CHECK(isnan(rpi_sample_cosine(&first)));
    rpi_sample_gradient(RP_F64, wide, 5, 2, samples, &second);
    CHECK(second.now == 5 && second.before == 14 && second.both == -1);
    CHECK_NEAR(rpi_sample_cosine(&second), -1 / sqrt(70), 1e-12);
    CHECK(samples[0] == 2 && samples[1] == 0 && samples[2] == 1);
    CHECK(isnan(rpi_sample_cosine(&(rpi_sample_products){.before = 1})));
}

/* Eight are enough, and one is told once. */
static const char *told(rpi_momentum_watch *watch, double autocorrelation, int count) {
    const char *text = NULL;
    for (int i = 0; i < count && !text; i++)
        text = rpi_momentum_watch_take(watch, autocorrelation, 10);
    return text;
}

static void what_does_not_fit_is_told_once(void) {
    rpi_momentum_watch high = {.rate = 0.7, .momentum = 0.9}, low = high, fits = high,
                       none = {.rate = 0.7};
    CHECK(told(&high, NAN, 20) == NULL && high.known == 0);
    CHECK(told(&high, 1, 7) == NULL);
    const char *text = told(&high, 1, 1);
    REQUIRE(text);
    CHECK_MSG(strstr(text, "outer momentum 0.9 is high for 10 local steps"), "%s", text);
    CHECK_MSG(strstr(text, "goes 7.0 times as far"), "%s", text);
    CHECK_MSG(strstr(text, "take 0.5 or less"), "%s", text);
    CHECK(told(&high, 1, 50) == NULL);
    text = told(&low, -0.5, 8);
    REQUIRE(text);
    CHECK_MSG(strstr(text, "overshoot") && strstr(text, "(autocorrelation -0.50, 10 local"),
              "%s", text);
    CHECK(told(&fits, 0.5, 50) == NULL);
    CHECK(told(&fits, -0.2, 50) == NULL);
    CHECK(told(&none, 1, 50) == NULL);
}

/* Of the first eight the plain mean, then the latest count an eighth. */
static void the_latest_count_most(void) {
    rpi_momentum_watch watch = {.rate = 0.1, .momentum = 0.1};
    for (int i = 0; i < 8; i++) CHECK(told(&watch, i / 8.0, 1) == NULL);
    CHECK_NEAR(watch.mean, 3.5 / 8, 1e-12);
    CHECK(told(&watch, 1, 1) == NULL);
    CHECK_NEAR(watch.mean, 3.5 / 8 + (1 - 3.5 / 8) / 8, 1e-12);
}

CASES({"a_stride_leaves_few_samples", a_stride_leaves_few_samples},
      {"samples_by_hand", samples_by_hand},
      {"what_does_not_fit_is_told_once", what_does_not_fit_is_told_once},
      {"the_latest_count_most", the_latest_count_most})
