#include "base/status.h"
#include "base/suggest.h"
#include "engine/optimizer.h"

#include <string.h>

extern const rpi_optimizer rpi_optimizer_sgd;

static const rpi_optimizer *const catalogue[] = {&rpi_optimizer_sgd};

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
    char hint[96];
    for (int i = 0; rpi_optimizer_at(i); i++) {
        if (strcmp(rpi_optimizer_at(i)->name, name) != 0) continue;
        *out_optimizer = rpi_optimizer_at(i);
        return RP_OK;
    }
    return RP_FAIL(INVALID, "no optimizer '%s'%s; `redpoll info` lists them", name,
                   rpi_suggest_text(name, name_at, NULL, hint, sizeof hint));
}
