/* Steps each way, timed: which are counted, and when it is over. */
#include "redpoll/adaptive.h"

#include "harness/check.h"

enum { ALL = 2 * (1 + RP_TRIAL_STEPS) };

/* Steps of a way take first_s, then others_s; so long takes the last of both: an outlier. */
static rp_step_trial trial_of(const double first_s[2], const double others_s[2],
                              double last_s) {
    rp_step_trial trial = {0};
    double now_s = 1000;
    for (int step = 0; step < ALL; step++) {
        int way = step / (1 + RP_TRIAL_STEPS), place = step % (1 + RP_TRIAL_STEPS);
        double seconds[2];
        CHECK_EQ(rp_step_trial_begin(&trial, now_s), way);
        CHECK_FAILS(rp_step_trial_times(&trial, seconds), INVALID, "not over");
        now_s += place == 0 ? first_s[way] : place == RP_TRIAL_STEPS ? last_s : others_s[way];
    }
    CHECK_EQ(rp_step_trial_begin(&trial, now_s), RP_TRIAL_OVER);
    CHECK_EQ(rp_step_trial_begin(&trial, now_s + 77), RP_TRIAL_OVER); /* changes nothing */
    return trial;
}

static void the_least_counts_without_first_steps(void) {
    static const double first[] = {0.01, 8}, others[] = {0.25, 0.125};
    rp_step_trial trial = trial_of(first, others, 55);
    double seconds[2];
    REQUIRE_OK(rp_step_trial_times(&trial, seconds));
    CHECK_NEAR(seconds[RP_TRIAL_EXACT], 0.25, 1e-9);
    CHECK_NEAR(seconds[RP_TRIAL_LOSSY], 0.125, 1e-9);
    REQUIRE_OK(rp_step_trial_times(&trial, seconds)); /* may be asked again */
    CHECK_NEAR(seconds[RP_TRIAL_EXACT], 0.25, 1e-9);
}

static void little_is_no_gain(void) {
    static const struct {
        double seconds[2];
        int gains;
    } cases[] = {{{1, 0.5}, 1},  {{1, 0.95}, 1}, {{1, 1 - 1.0 / 30}, 0},
                 {{1, 0.98}, 0}, {{1, 1}, 0},    {{1, 2}, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_EQ(rp_step_trial_gains(cases[i].seconds), cases[i].gains);
}

static void nothing_is_refused(void) {
    rp_step_trial trial = {0};
    double seconds[2];
    CHECK_FAILS(rp_step_trial_times(NULL, seconds), INVALID, "a place for its times");
    CHECK_FAILS(rp_step_trial_times(&trial, NULL), INVALID, "a place for its times");
    CHECK_EQ(rp_step_trial_begin(NULL, 0), RP_TRIAL_OVER);
    CHECK_EQ(rp_step_trial_gains(NULL), 0);
}

CASES({"the_least_counts_without_first_steps", the_least_counts_without_first_steps},
      {"little_is_no_gain", little_is_no_gain}, {"nothing_is_refused", nothing_is_refused})
