#include "train/strategies/strategy.h"

#include "base/status.h"
#include "base/suggest.h"

#include <stdio.h>
#include <string.h>

extern const rpi_strategy rpi_strategy_single;
extern const rpi_strategy rpi_strategy_all_reduce;
extern const rpi_strategy rpi_strategy_gossip;

static const rpi_strategy *const strategies[] = {
    &rpi_strategy_all_reduce,
    &rpi_strategy_gossip,
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

const char *rpi_strategy_options(const char *text) {
    const char *colon = strchr(text, ':');
    return colon ? colon + 1 : NULL;
}

/* What cannot be is a mistake of whoever asked for it. */
static rp_status as_mistake(rp_status status) {
    if (status != RP_UNSUPPORTED) return status;
    rpi_kept_error why;
    rpi_error_keep(&why);
    return RP_FAIL(INVALID, "%s", why.message);
}

rp_status rpi_strategy_check(const rpi_strategy *strategy,
                             const rpi_strategy_request *request) {
    if (strategy->most_ranks && request->world > strategy->most_ranks)
        return RP_FAIL(INVALID, "strategy %s is for %d rank, not for %d", strategy->name,
                       strategy->most_ranks, request->world);
    if (strategy->check) return as_mistake(strategy->check(request));
    if (!request->options) return RP_OK;
    return RP_FAIL(INVALID, "strategy %s has no options, and '%s' are some", strategy->name,
                   request->options);
}

rp_status rpi_strategy_find(const char *text, const rpi_strategy **out_strategy) {
    int index = 0;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, ":"), text);
    RP_TRY(rpi_name_find("strategy", name, name_at, NULL, &index));
    *out_strategy = strategies[index];
    return RP_OK;
}
