#include "base/status.h"
#include "base/suggest.h"
#include "engine/optimizer.h"

#include <strings.h>

extern const rpi_optimizer rpi_optimizer_sgd;
extern const rpi_optimizer rpi_optimizer_adamw;
extern const rpi_optimizer rpi_optimizer_lamb;

static const rpi_optimizer *const catalogue[] = {&rpi_optimizer_sgd, &rpi_optimizer_adamw,
                                                 &rpi_optimizer_lamb};

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
