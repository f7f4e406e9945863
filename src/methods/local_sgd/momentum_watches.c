/* plan/local_sgd/momentum_watch.h for those who exchange by themselves. */
#include "redpoll/local_sgd.h"

#include "base/fpenv.h"
#include "base/memory.h"
#include "base/status.h"
#include "plan/local_sgd/momentum_watch.h"

#include <math.h>

struct rp_momentum_watch {
    rpi_momentum_watch watch;
    size_t count;
    float *samples; /* of the pseudo-gradient before */
};

rp_status rp_momentum_watch_create(size_t count, double outer_rate, double outer_momentum,
                                   rp_momentum_watch **watch) {
    rp_momentum_watch *w = NULL;
    if (!watch || !count)
        return RP_FAIL(INVALID, "a momentum watch needs a place, and elements to look at");
    if (!isfinite(outer_rate) || !isfinite(outer_momentum))
        return RP_FAIL(INVALID, "a momentum watch of an outer rate of %g and momentum of %g",
                       outer_rate, outer_momentum);
    RP_TRY(rpi_alloc(sizeof *w, "a momentum watch", &w));
    w->count = count;
    w->watch.rate = outer_rate;
    w->watch.momentum = outer_momentum;
    rp_status status = rpi_alloc_array(rpi_sample_count(count, rpi_sample_stride(count)),
                                       sizeof(float), "pseudo-gradients", &w->samples);
    if (status == RP_OK)
        *watch = w;
    else
        rp_momentum_watch_destroy(w);
    return status;
}

void rp_momentum_watch_destroy(rp_momentum_watch *watch) {
    if (!watch) return;
    rpi_free(watch->samples);
    rpi_free(watch);
}

rp_status rp_momentum_watch_look(rp_momentum_watch *watch, const float *gradient,
                                 uint64_t local_steps, double *autocorrelation,
                                 const char **warning) {
    RPI_FPENV_SCOPE;
    rpi_sample_products sums = {0};
    if (!watch || !gradient || !autocorrelation || !warning)
        return RP_FAIL(INVALID, "a momentum watch needs a pseudo-gradient, and places for what "
                                "it finds");
    rpi_sample_gradient(RP_F32, gradient, watch->count, rpi_sample_stride(watch->count),
                        watch->samples, &sums);
    *autocorrelation = rpi_sample_cosine(&sums);
    *warning = rpi_momentum_watch_take(&watch->watch, *autocorrelation, local_steps);
    return RP_OK;
}
