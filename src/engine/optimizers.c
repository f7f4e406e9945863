#include "base/status.h"
#include "base/suggest.h"
#include "engine/optimizer.h"

#include <strings.h>

extern const rpi_optimizer rpi_optimizer_sgd;
extern const rpi_optimizer rpi_optimizer_adamw;
extern const rpi_optimizer rpi_optimizer_lamb;

static const rpi_optimizer *const catalogue[] = {&rpi_optimizer_sgd, &rpi_optimizer_adamw,
                                                 &rpi_optimizer_lamb};

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

const rpi_optimizer *rpi_optimizer_at(int index) {
    int count = (int)(sizeof catalogue / sizeof catalogue[0]);
    return index >= 0 && index < count ? catalogue[index] : NULL;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    const rpi_optimizer *optimizer = rpi_optimizer_at(index);
    return optimizer ? optimizer->name : NULL;
}

rp_status rpi_optimizer_find(const char *name, const rpi_optimizer **out_optimizer) {
    int index = 0;
    for (const rpi_optimizer *known; (known = rpi_optimizer_at(index)) != NULL; index++) {
        if (strcasecmp(known->name, name) != 0) continue; /* elsewhere it is AdamW, or adamW */
        *out_optimizer = known;
        return RP_OK;
    }
    RP_TRY(rpi_name_find("optimizer", name, name_at, NULL, &index));
    *out_optimizer = rpi_optimizer_at(index);
    return RP_OK;
}
