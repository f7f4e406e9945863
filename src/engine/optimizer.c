#include "engine/optimizer.h"

#include "base/status.h"

rp_status rpi_optimizer_check(const rpi_optimizer *optimizer,
                              const rpi_optimizer_rates *rates) {
    if (!(rates->learning_rate >= 0))
        return RP_FAIL(INVALID, "learning rate is %g; 0 or more is allowed",
                       (double)rates->learning_rate);
    if (!(rates->weight_decay >= 0))
        return RP_FAIL(INVALID, "weight decay is %g; 0 or more is allowed",
                       (double)rates->weight_decay);
    return optimizer->check(rates);
}

rp_status rpi_optimizer_check_means(const rpi_optimizer_rates *rates, const char *name) {
    if (!(rates->beta1 >= 0 && rates->beta1 < 1))
        return RP_FAIL(INVALID, "beta1 is %g; from 0 to below 1 is allowed", rates->beta1);
    if (!(rates->beta2 >= 0 && rates->beta2 < 1))
        return RP_FAIL(INVALID, "beta2 is %g; from 0 to below 1 is allowed", rates->beta2);
    if (!(rates->epsilon > 0))
        return RP_FAIL(INVALID, "epsilon is %g; above 0 is allowed", rates->epsilon);
    if (rates->nesterov)
        return RP_FAIL(INVALID, "Nesterov's variant is one of sgd, not of %s", name);
    return RP_OK;
}
