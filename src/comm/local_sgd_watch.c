/* Does the outer momentum fit the number of local steps? Where successive pseudo-gradients
 * point the same way (few local steps), momentum adds them up and an outer step goes much
 * further than the ranks have been; where they turn back, outer steps overshoot. With an
 * autocorrelation of r from one to the next, and r^k over k, what momentum m adds up to is
 * 1 / (1 - m r). */
#include "comm/local_sgd_object.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdio.h>

enum { SAMPLES = 1 << 16, ENOUGH = 8 };

static size_t samples_of(const rpi_local_tensor *t, size_t stride) {
    return (t->segment.count + stride - 1) / stride;
}

rp_status rpi_local_watch_open(rp_local_sgd *l) {
    size_t count = 0, samples = 0;
    for (size_t i = 0; i < l->tensor_count; i++) count += l->tensors[i].segment.count;
    l->watch.stride = (count + SAMPLES - 1) / SAMPLES;
    if (!l->watch.stride) l->watch.stride = 1;
    for (size_t i = 0; i < l->tensor_count; i++) {
        l->tensors[i].sample = samples;
        samples += samples_of(&l->tensors[i], l->watch.stride);
    }
    return rpi_alloc_array(samples, sizeof(float), "pseudo-gradients", &l->watch.samples);
}

static double element(const rp_local_sgd *l, const rpi_local_tensor *t, size_t i) {
    const void *gradient = l->flight + t->flight_first;
    return t->segment.dtype == RP_F64 ? ((const double *)gradient)[i]
                                      : (double)((const float *)gradient)[i];
}

typedef struct products {
    double all, now, before,
        both; /* squares of all elements; of samples, squares and product */
} products;

static void add_tensor(rp_local_sgd *l, const rpi_local_tensor *t, products *sums) {
    for (size_t i = 0; i < t->segment.count; i++) {
        double g = element(l, t, i);
        sums->all += g * g;
    }
    for (size_t k = 0; k < samples_of(t, l->watch.stride); k++) {
        float *kept = &l->watch.samples[t->sample + k];
        double g = element(l, t, k * l->watch.stride), before = (double)*kept;
        sums->now += g * g;
        sums->before += before * before;
        sums->both += g * before;
        *kept = (float)g;
    }
}

/* Rounded down to a twentieth: what keeps an outer step within 1.5 times the ranks' way. */
static double advised_momentum(const rp_local_sgd *l, double r) {
    double momentum = (1 - l->options.outer_rate / 1.5) / r;
    return momentum > 0 ? floor(momentum * 20) / 20 : 0;
}

static const char *warn(rp_local_sgd *l) {
    rpi_gradient_watch *w = &l->watch;
    const rp_local_sgd_options *o = &l->options;
    unsigned long long every = o->every;
    double r = w->mean, way = o->outer_rate / (1 - o->outer_momentum * r);
    if (way > 2)
        snprintf(
            w->warning, sizeof w->warning,
            "outer momentum %g is high for %llu local steps: pseudo-gradients point the "
            "same way (autocorrelation %.2f), so that an outer step goes %.1f times as far "
            "as the ranks went; take %g or less, or more local steps",
            o->outer_momentum, every, r, way, advised_momentum(l, r));
    else if (r < -.3)
        snprintf(w->warning, sizeof w->warning,
                 "outer steps overshoot: pseudo-gradients turn back from one exchange to the "
                 "next (autocorrelation %.2f, %llu local steps); take an outer momentum below "
                 "%g, or a lower outer rate",
                 r, every, o->outer_momentum);
    else
        return NULL;
    w->has_warned = true;
    return w->warning;
}

void rpi_local_watch(rp_local_sgd *l, rp_local_sgd_report *report) {
    rpi_gradient_watch *w = &l->watch;
    products sums = {0};
    if (!l->anchor) return; /* x itself travelled */
    for (size_t i = 0; i < l->tensor_count; i++)
        if ((int)l->tensors[i].fragment == l->in_flight) add_tensor(l, &l->tensors[i], &sums);
    report->gradient_norm = sqrt(sums.all);
    if (!(sums.now > 0 && sums.before > 0)) return;
    report->autocorrelation = sums.both / sqrt(sums.now) / sqrt(sums.before);
    double share = w->known < ENOUGH ? 1.0 / (w->known + 1) : 1.0 / ENOUGH;
    w->mean += share * (report->autocorrelation - w->mean);
    w->known++;
    if (w->known < ENOUGH || w->has_warned || l->options.outer_momentum == 0) return;
    report->warning = warn(l);
}
