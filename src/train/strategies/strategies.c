#include "train/strategies/strategy.h"

#include "base/status.h"
#include "base/suggest.h"

#include <string.h>

extern const rpi_strategy rpi_strategy_single;
extern const rpi_strategy rpi_strategy_all_reduce;

static const rpi_strategy *const strategies[] = {
    &rpi_strategy_all_reduce,
    &rpi_strategy_single,
};
enum { STRATEGIES = sizeof strategies / sizeof strategies[0] };

const rpi_strategy *rpi_strategy_at(int index) {
    return index >= 0 && index < STRATEGIES ? strategies[index] : NULL;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    return index < STRATEGIES ? strategies[index]->name : NULL;
}

rp_status rpi_strategy_find(const char *name, const rpi_strategy **out_strategy) {
    for (int i = 0; i < STRATEGIES; i++) {
        if (strcmp(strategies[i]->name, name) != 0) continue;
        *out_strategy = strategies[i];
        return RP_OK;
    }
    char hint[96];
    return RP_FAIL(INVALID, "unknown strategy '%s'; there are all-reduce, single%s", name,
                   rpi_suggest_text(name, name_at, NULL, hint, sizeof hint));
}
