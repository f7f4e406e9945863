/* Trainings played through, beside the formula. */
#include "plan/foresight/failure_runs.h"

#include "base/memory.h"
#include "harness/check.h"

/* ---- the table: add a row ---- */

static const struct {
    rpi_failures failures; /* a second: those that lose work, those with notice; C, D, R */
    double interval_s, work_s;
} known[] = {
    {{1. / 10800, 0, 30, 0, 300}, 785.1, 864000},
    {{1. / 10800, 0, 300, 0, 600}, 2349.5, 864000},
    {{1. / 1800, 0, 60, 0, 180}, 425.6, 100000}, /* and a rest */
    {{1. / 1800, 0, 60, 0, 180}, 100, 100},      /* one interval */
    {{1. / 1800, 0, 10, 300, 180}, 400, 50000},  /* safe only later */
    {{1. / 1800, 1. / 900, 10, 100, 180}, 400, 50000},
    {{0, 1. / 900, 10, 0, 300}, 50000, 50000},
    {{1e-9, 0, 10, 0, 300}, 1000, 50000}, /* hardly ever */
};
enum { KNOWN = sizeof known / sizeof known[0] };

static void runs_agree_with_the_formula(void) {
    for (int i = 0; i < KNOWN; i++) {
        const rpi_failures *f = &known[i].failures;
        rpi_failure_account a;
        rpi_failure_spread s;
        REQUIRE_OK(rpi_failures_account(f, known[i].interval_s, known[i].work_s, &a));
        REQUIRE_OK(rpi_failure_runs(f, known[i].interval_s, known[i].work_s, 20000, 1, &s));
        CHECK_MSG(fabs(s.mean_s - a.expected_s) <= 2 * s.error_s + 1e-3,
                  "row %d: %.2f +- %.2f s, by the formula %.2f s", i, s.mean_s, s.error_s,
                  a.expected_s);
        CHECK_MSG(fabs(s.stops - a.stops) <= .05 * a.stops + 1e-3, "row %d: %g stops, not %g",
                  i, s.stops, a.stops);
        CHECK(s.p10_s <= s.p50_s && s.p50_s <= s.p90_s && s.error_s < .01 * s.mean_s);
    }
}

/* 200,000 intervals give .9024 where the formula gives .9019. */
static void a_long_run_has_the_known_goodput(void) {
    rpi_failure_spread s;
    double work_s = 200000 * 785.1;
    CHECK_OK(rpi_failure_runs(&known[0].failures, 785.1, work_s, 4, 7, &s));
    CHECK_NEAR(work_s / s.mean_s, .9019, .001);
}

static void the_same_seed_gives_the_same_bits(void) {
    rpi_failure_spread a, b, other;
    CHECK_OK(rpi_failure_runs(&known[2].failures, 400, 1e5, 100, 1, &a));
    CHECK_OK(rpi_failure_runs(&known[2].failures, 400, 1e5, 100, 1, &b));
    CHECK_OK(rpi_failure_runs(&known[2].failures, 400, 1e5, 100, 2, &other));
    CHECK(a.mean_s == b.mean_s && a.p90_s == b.p90_s && a.stops == b.stops);
    CHECK(a.mean_s != other.mean_s);
    CHECK_OK(rpi_failure_runs(&known[2].failures, 400, 1e5, 1, 1, &a));
    CHECK(a.error_s == 0 && a.p10_s == a.p90_s);
}

static void what_cannot_be_simulated_is_refused(void) {
    const rpi_failures *f = &known[0].failures;
    rpi_failure_spread s;
    CHECK_FAILS(rpi_failure_runs(f, 785, 1e6, 0, 1, &s), INVALID, "0 runs to simulate");
    CHECK_FAILS(rpi_failure_runs(f, 785, 1e6, 1000001, 1, &s), INVALID, "1 to 1000000");
    CHECK_FAILS(rpi_failure_runs(f, 785, 1e9, 1000000, 1, &s), INVALID, "would take long");
    CHECK_FAILS(rpi_failure_runs(f, 1e6, 1e7, 10, 1, &s), INVALID, "nothing is ever done");
    (void)rpi_memory_fail_after(1);
    CHECK_FAILS(rpi_failure_runs(f, 785, 1e6, 10, 1, &s), NOMEM, "simulated times");
    (void)rpi_memory_fail_after(0);
}

CASES({"runs agree with the formula", runs_agree_with_the_formula},
      {"a long run has the known goodput", a_long_run_has_the_known_goodput},
      {"the same seed gives the same bits", the_same_seed_gives_the_same_bits},
      {"what cannot be simulated is refused", what_cannot_be_simulated_is_refused})
