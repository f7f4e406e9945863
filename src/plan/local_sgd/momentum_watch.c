#include "plan/local_sgd/momentum_watch.h"

#include "base/c_locale.h"

#include <math.h>
#include <stdio.h>

enum { SAMPLES = 1 << 16, ENOUGH = 8 };

/* ---- the autocorrelation ---- */

size_t rpi_sample_stride(size_t count) {
    return count > SAMPLES ? (count + SAMPLES - 1) / SAMPLES : 1;
}

void rpi_sample_gradient(rp_dtype dtype, const void *gradient, size_t count, size_t stride,
                         float *samples, rpi_sample_products *sums) {
    for (size_t i = 0; i < count; i += stride, samples++) {
        double g = dtype == RP_F64 ? ((const double *)gradient)[i]
                                   : (double)((const float *)gradient)[i];
        double before = (double)*samples;
        sums->now += g * g;
        sums->before += before * before;
        sums->both += g * before;
        *samples = (float)g;
    }
}

double rpi_sample_cosine(const rpi_sample_products *sums) {
    return sums->now > 0 && sums->before > 0 ? sums->both / sqrt(sums->now) / sqrt(sums->before)
                                             : NAN;
}

/* ---- what follows from it ---- */

/* Rounded down to a twentieth: what keeps an outer step within 1.5 times the ranks' way. */
static double advised_momentum(const rpi_momentum_watch *w) {
    double momentum = (1 - w->rate / 1.5) / w->mean;
    return momentum > 0 ? floor(momentum * 20) / 20 : 0;
}

static const char *warn(rpi_momentum_watch *w, uint64_t local_steps) {
    unsigned long long steps = local_steps;
    double r = w->mean, way = w->rate / (1 - w->momentum * r);
    if (way > 2)
        rpi_print(
            w->warning, sizeof w->warning,
            "outer momentum %g is high for %llu local steps: pseudo-gradients point the "
            "same way (autocorrelation %.2f), so that an outer step goes %.1f times as far "
            "as the ranks went; take %g or less, or more local steps",
            w->momentum, steps, r, way, advised_momentum(w));
    else if (r < -.3)
        rpi_print(w->warning, sizeof w->warning,
                  "outer steps overshoot: pseudo-gradients turn back from one exchange to the "
                  "next (autocorrelation %.2f, %llu local steps); take an outer momentum below "
                  "%g, or a lower outer rate",
                  r, steps, w->momentum);
    else
        return NULL;
    w->has_warned = true;
    return w->warning;
}

const char *rpi_momentum_watch_take(rpi_momentum_watch *w, double autocorrelation,
                                    uint64_t local_steps) {
    if (isnan(autocorrelation)) return NULL;
    double share = w->known < ENOUGH ? 1.0 / (w->known + 1) : 1.0 / ENOUGH;
    w->mean += share * (autocorrelation - w->mean);
    w->known++;
    if (w->known < ENOUGH || w->has_warned || w->momentum == 0) return NULL;
    return warn(w, local_steps);
}
