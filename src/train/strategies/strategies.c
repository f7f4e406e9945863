#include "train/strategies/strategy.h"

#include "base/status.h"
#include "base/suggest.h"

#include <stdio.h>
#include <string.h>

extern const rpi_strategy rpi_strategy_single;
extern const rpi_strategy rpi_strategy_all_reduce;
extern const rpi_strategy rpi_strategy_async_local_sgd;
extern const rpi_strategy rpi_strategy_gossip;
extern const rpi_strategy rpi_strategy_local_sgd;
extern const rpi_strategy rpi_strategy_parameter_server;

static const rpi_strategy *const strategies[] = {
    &rpi_strategy_all_reduce, &rpi_strategy_async_local_sgd,  &rpi_strategy_gossip,
    &rpi_strategy_local_sgd,  &rpi_strategy_parameter_server, &rpi_strategy_single,
};
enum { STRATEGIES = sizeof strategies / sizeof strategies[0] };

const rpi_strategy *rpi_strategy_at(int index) {
    return index >= 0 && index < STRATEGIES ? strategies[index] : NULL;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    return index < STRATEGIES ? strategies[index]->name : NULL;
}

rp_status rpi_strategy_find(const char *text, const rpi_strategy **out_strategy) {
    int index = 0;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, ":"), text);
    RP_TRY(rpi_name_find("strategy", name, name_at, NULL, &index));
    *out_strategy = strategies[index];
    return RP_OK;
}
