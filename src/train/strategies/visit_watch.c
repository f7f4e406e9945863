#include "train/strategies/visit_watch.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>

enum { SAMPLES = 1 << 16, ENOUGH = 8 };

rp_status rpi_visit_watch_open(int64_t count, rpi_visit_watch *watch) {
    watch->stride = ((size_t)count + SAMPLES - 1) / SAMPLES;
    if (!watch->stride) watch->stride = 1;
    return rpi_alloc_array((size_t)count / watch->stride + 1, sizeof *watch->before, "a visit",
                           &watch->before);
}

void rpi_visit_watch_close(rpi_visit_watch *watch) {
    rpi_free(watch->before);
    *watch = (rpi_visit_watch){0};
}

double rpi_visit_watch_look(rpi_visit_watch *watch, const float *gradient, int64_t count) {
    double now = 0, before = 0, both = 0;
    float *kept = watch->before;
    for (size_t i = 0; i < (size_t)count; i += watch->stride, kept++) {
        double g = (double)gradient[i], b = (double)*kept;
        now += g * g;
        before += b * b;
        both += g * b;
        *kept = gradient[i];
    }
    return now > 0 && before > 0 ? both / sqrt(now) / sqrt(before) : NAN;
}

/* Rounded down to a twentieth: what keeps an outer step within 1.5 times the workers' way. */
static double advised_momentum(const rpi_visit_advice *a) {
    double momentum = (1 - a->rate / 1.5) / a->mean;
    return momentum > 0 ? floor(momentum * 20) / 20 : 0;
}

const char *rpi_visit_advice_take(rpi_visit_advice *a, double autocorrelation,
                                  int64_t local_steps) {
    if (isnan(autocorrelation)) return NULL;
    double share = a->known < ENOUGH ? 1.0 / (a->known + 1) : 1.0 / ENOUGH;
    a->mean += share * (autocorrelation - a->mean);
    a->known++;
    if (a->known < ENOUGH || a->has_warned || a->momentum == 0) return NULL;
    double r = a->mean, way = a->rate / (1 - a->momentum * r);
    if (way > 2)
        snprintf(a->text, sizeof a->text,
                 "outer momentum %g is high for %lld local steps: visits bring the same again "
                 "(autocorrelation %.2f), so that an outer step goes %.1f times as far as the "
                 "workers went; take %g or less, or more local steps",
                 a->momentum, (long long)local_steps, r, way, advised_momentum(a));
    else if (r < -.3)
        snprintf(
            a->text, sizeof a->text,
            "outer steps overshoot: visits turn back from one to the next "
            "(autocorrelation %.2f, %lld local steps); take an outer momentum below %g, or "
            "a lower outer rate",
            r, (long long)local_steps, a->momentum);
    else
        return NULL;
    a->has_warned = 1;
    return a->text;
}
