/* Whether the outer momentum fits, by the pseudo-gradients that exchanges bring
 * (plan/local_sgd/momentum_watch.h). */
#include "methods/local_sgd/local_sgd_object.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>

rp_status rpi_local_watch_open(rp_local_sgd *l) {
    size_t count = 0, samples = 0;
    for (size_t i = 0; i < l->tensor_count; i++) count += l->tensors[i].segment.count;
    l->sample_stride = rpi_sample_stride(count);
    l->watch.rate = l->options.outer_rate;
    l->watch.momentum = l->options.outer_momentum;
    for (size_t i = 0; i < l->tensor_count; i++) {
        l->tensors[i].sample = samples;
        samples += rpi_sample_count(l->tensors[i].segment.count, l->sample_stride);
    }
    return rpi_alloc_array(samples, sizeof(float), "pseudo-gradients", &l->samples);
}

static void add_squares(const void *gradient, rp_dtype dtype, size_t count, double *sum) {
    for (size_t i = 0; i < count; i++) {
        double g = dtype == RP_F64 ? ((const double *)gradient)[i]
                                   : (double)((const float *)gradient)[i];
        *sum += g * g;
    }
}

void rpi_local_watch(rp_local_sgd *l, rp_local_sgd_report *report) {
    rpi_sample_products sums = {0};
    double all = 0;
    if (!l->anchor) return; /* x itself travelled */
    for (size_t i = 0; i < l->tensor_count; i++) {
        const rpi_local_tensor *t = &l->tensors[i];
        const void *gradient = l->flight + t->flight_first;
        if ((int)t->fragment != l->in_flight) continue;
        add_squares(gradient, t->segment.dtype, t->segment.count, &all);
        rpi_sample_gradient(t->segment.dtype, gradient, t->segment.count, l->sample_stride,
                            l->samples + t->sample, &sums);
    }
    report->gradient_norm = sqrt(all);
    report->autocorrelation = rpi_sample_cosine(&sums);
    report->warning =
        rpi_momentum_watch_take(&l->watch, report->autocorrelation, l->options.every);
}
