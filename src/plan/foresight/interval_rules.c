#include "plan/foresight/interval_rule.h"

#include <math.h>
#include <stddef.h>

static double between_failures(const rpi_failures *f) {
    return 1 / f->failures_per_s;
}

/* d/dT of T / (e^((T + C) / M) - 1) is 0 where x = T / M solves x + log(1 - x) + C / M = 0:
 * M (1 + W0(-e^(-C / M - 1))). The left side is concave and falls, so that Newton's steps come
 * down from any x above the root: sqrt(2 C / M) is one, and 1 - e^(-1 - C / M) another. */
static double exact(const rpi_failures *f) {
    double mean = between_failures(f), c = f->save_s / mean;
    double x = fmin(sqrt(2 * c), -expm1(-1 - c)), before = INFINITY;
    while (x < before && x > 0 && x < 1) {
        before = x;
        x -= (x + log1p(-x) + c) / (-x / (1 - x));
    }
    return mean * fmin(x, before);
}

static double young(const rpi_failures *f) {
    return sqrt(2 * f->save_s * between_failures(f));
}

static double daly(const rpi_failures *f) {
    double mean = between_failures(f), half = f->save_s / (2 * mean);
    if (half >= 1) return mean;
    return young(f) * (1 + sqrt(half) / 3 + half / 9) - f->save_s;
}

/* C + sqrt(2 (M + R) C + C^2) with the save. */
static double availability(const rpi_failures *f) {
    double c = f->save_s;
    return sqrt(2 * (between_failures(f) + f->restart_s) * c + c * c);
}

static const rpi_interval_rule rules[] = {
    {"exact", "M (1 + W0(-e^(-C/M - 1)))", "the optimum, for failures at random", exact},
    {"young", "sqrt(2 C M)", "Young 1974", young},
    {"daly", "sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C", "Daly 2006", daly},
    {"availability", "sqrt(2 (M + R) C + C^2)", "least share of time not at work",
     availability},
};

const rpi_interval_rule *rpi_interval_rule_at(int index) {
    int count = (int)(sizeof rules / sizeof rules[0]);
    return index >= 0 && index < count ? &rules[index] : NULL;
}

double rpi_interval_fit(const rpi_failures *f, double interval_s, double step_s) {
    double s = fmax(interval_s, f->durable_s);
    if (step_s == 0) return s;
    double steps = fmax(1, round(s / step_s));
    return step_s * (steps * step_s < f->durable_s ? steps + 1 : steps);
}
