/* What failures take, beside answers that are known. */
#include "plan/foresight/failures.h"

#include "harness/check.h"
#include "plan/foresight/interval_rule.h"

/* ---- the table: add a row ---- */

/* Mean time between failures, to save, to restart; then the four rules (of availability with
 * the save), and the goodput at the exact one: printed digits. */
static const struct {
    double mean_s, save_s, restart_s;
    double young_s, exact_s, daly_s, with_save_s, goodput;
} known[] = {
    {10800, 30, 300, 805.0, 785.1, 785.1, 846.6, .90190},
    {10800, 300, 600, 2545.6, 2349.6, 2349.5, 2932.5, .74016},
    {3600, 30, 120, 464.8, 445.0, 445.0, 503.4, .84766},
    {86400, 60, 600, 3219.9, 3180.1, 3180.1, 3291.7, .95653},
    {1800, 60, 180, 464.8, 425.6, 425.6, 551.1, .69087},
};
enum { KNOWN = sizeof known / sizeof known[0] };

static rpi_failures failures_of(int row) {
    return (rpi_failures){.failures_per_s = 1 / known[row].mean_s,
                          .save_s = known[row].save_s,
                          .restart_s = known[row].restart_s};
}

static double by(const char *name, const rpi_failures *f) {
    const rpi_interval_rule *rule;
    for (int i = 0; (rule = rpi_interval_rule_at(i)) != NULL; i++)
        if (strcmp(rule->name, name) == 0) return rule->interval_s(f);
    return NAN;
}

static double goodput_at(const rpi_failures *f, double interval_s) {
    rpi_failure_account a = {0};
    CHECK_OK(rpi_failures_account(f, interval_s, 1e9, &a));
    return a.goodput;
}

static void known_answers(void) {
    for (int i = 0; i < KNOWN; i++) {
        rpi_failures f = failures_of(i);
        CHECK_NEAR(by("young", &f), known[i].young_s, .051);
        CHECK_NEAR(by("exact", &f), known[i].exact_s, .051);
        CHECK_NEAR(by("daly", &f), known[i].daly_s, .051);
        CHECK_NEAR(by("availability", &f) + f.save_s, known[i].with_save_s, .051);
        CHECK_NEAR(goodput_at(&f, by("exact", &f)), known[i].goodput, .0000051);
    }
}

/* Published: 6000 s between failures, 600 to restart, 10 to save, steps of 15: 24 of them. */
static void whole_steps(void) {
    rpi_failures f = {.failures_per_s = 1. / 6000, .save_s = 10, .restart_s = 600};
    double s = by("availability", &f);
    CHECK_NEAR(s, 363, .5);
    CHECK_NEAR(rpi_interval_fit(&f, s, 15), 24 * 15, 1e-9);
    CHECK_NEAR(rpi_interval_fit(&f, s, 1000), 1000, 1e-9);
    f.durable_s = 1100;
    CHECK_NEAR(rpi_interval_fit(&f, s, 0), 1100, 1e-9);
    CHECK_NEAR(rpi_interval_fit(&f, s, 1000), 2000, 1e-9);
}

/* ---- properties ---- */

static double per_second(double mean_s, double interval_s, double save_s) {
    return interval_s / expm1((interval_s + save_s) / mean_s);
}

static void nothing_near_is_better_than_the_exact_optimum(void) {
    static const double means[] = {20, 300, 1e4, 1e7, 1e12};
    static const double saves[] = {.01, .1, 1, 10, 50};
    static const double near[] = {.7, .9, .99, 1.01, 1.1, 1.3};
    for (int i = 0; i < 25; i++) {
        double mean_s = means[i / 5], save_s = saves[i % 5];
        rpi_failures f = {.failures_per_s = 1 / mean_s, .save_s = save_s};
        double t = by("exact", &f), best = per_second(mean_s, t, save_s);
        CHECK(t > 0 && t <= mean_s);
        for (int n = 0; n < 6; n++)
            CHECK(per_second(mean_s, near[n] * t, save_s) <= best * (1 + 1e-12));
    }
}

static void the_curve_is_flat(void) {
    for (int i = 0; i < KNOWN; i++) {
        rpi_failures f = failures_of(i);
        double t = by("exact", &f), best = goodput_at(&f, t);
        if (f.save_s * f.failures_per_s > 1. / 300) continue;
        CHECK(goodput_at(&f, 1.3 * t) > best - .005 && goodput_at(&f, .7 * t) > best - .005);
    }
}

static void parts_are_the_whole(void) {
    rpi_failures f = {.failures_per_s = 1e-4,
                      .noticed_per_s = 3e-5,
                      .save_s = 30,
                      .durable_s = 100,
                      .restart_s = 300};
    rpi_failure_account a, whole;
    CHECK_OK(rpi_failures_account(&f, 800, 100000, &a));
    CHECK_NEAR(a.work_s + a.saving_s + a.lost_s + a.restarting_s, a.expected_s, 1e-6);
    CHECK_NEAR(a.saving_s, 125 * 30 + 100, 1e-9);
    CHECK_NEAR(a.stops, a.expected_s * 1.3e-4, 1e-9);
    CHECK_NEAR(a.work_s / a.expected_s, a.goodput, .001);
    CHECK_OK(rpi_failures_account(&f, 700, 1000, &a));
    CHECK_NEAR(a.saving_s, 2 * 30 + 100, 1e-9);
    CHECK_OK(rpi_failures_account(&f, 1e9, 1000, &a)); /* one interval, the whole work */
    CHECK_OK(rpi_failures_account(&f, 1000, 1000, &whole));
    CHECK(a.expected_s == whole.expected_s && a.interval_s == 1000);
}

/* Where every stop comes with a notice: e^(-R / M) at most. */
static void notices_cost_a_restart(void) {
    rpi_failures f = {.noticed_per_s = 1e-4, .save_s = 1, .restart_s = 300};
    CHECK_NEAR(goodput_at(&f, 1e9), exp(-.03), 1e-8);
}

static void what_never_ends_is_refused(void) {
    rpi_failures f = {.failures_per_s = 1. / 3, .save_s = 30, .restart_s = 60};
    rpi_failure_account a;
    CHECK_FAILS(rpi_failures_account(&f, by("exact", &f), 1e6, &a), INVALID,
                "nothing is ever done: one every 3 s");
    f = failures_of(0);
    CHECK_FAILS(rpi_failures_account(&f, 1e6, 1e7, &a), INVALID, "1e+06 s of work");
    CHECK_FAILS(rpi_failures_account(&f, 1e9, 1e12, &a), INVALID, "nothing is ever done");
}

/* Published: 32 replicas, a fault each 28.8 s, 149 s to be back: 5.2 are out, 83.8 % is left.
 */
static void elastic_replicas(void) {
    rpi_failures f = {.failures_per_s = 1 / 28.8, .restart_s = 149};
    rpi_elastic_share share = rpi_failures_elastic(&f, 32, 0);
    CHECK_NEAR(share.away, 5.2, .05);
    CHECK_NEAR(share.kept, .838, .0005);
    CHECK_NEAR(rpi_failures_elastic(&f, 32, 1).kept, share.kept * (1 - 1 / 57.6), 1e-3);
    CHECK(rpi_failures_elastic(&f, 4, 0).kept < 0);
}

CASES({"known answers", known_answers}, {"whole steps", whole_steps},
      {"nothing near is better than the exact optimum",
       nothing_near_is_better_than_the_exact_optimum},
      {"the curve is flat", the_curve_is_flat}, {"parts are the whole", parts_are_the_whole},
      {"notices cost a restart", notices_cost_a_restart},
      {"what never ends is refused", what_never_ends_is_refused},
      {"elastic replicas", elastic_replicas})
