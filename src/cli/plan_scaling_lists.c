/* The two lists that `redpoll plan scaling` takes: numbers of ranks, and strategies. */
#include "base/status.h"
#include "cli/plan_scaling.h"
#include "train/strategies/strategy.h"

#include <stdlib.h>
#include <string.h>

/* ---- numbers of ranks ---- */

static rp_status add_ranks(int64_t value, int most, int out[RPI_SCALING_RANKS], int *count) {
    if (value < 1 || value > most)
        return RP_FAIL(INVALID, "%lld ranks; 1 to %d are allowed", (long long)value, most);
    if (*count == RPI_SCALING_RANKS)
        return RP_FAIL(INVALID, "%d numbers of ranks are the most", RPI_SCALING_RANKS);
    if (*count && value <= out[*count - 1])
        return RP_FAIL(INVALID, "%lld stands behind %d: numbers of ranks rise",
                       (long long)value, out[*count - 1]);
    out[(*count)++] = (int)value;
    return RP_OK;
}

/* Up to `last`, as the two before go on; doubling behind one. */
static rp_status go_on(int64_t last, int most, int out[RPI_SCALING_RANKS], int *count) {
    int64_t at = out[*count - 1], before = *count > 1 ? out[*count - 2] : at;
    int64_t factor = before == at ? 2 : at % before ? 0 : at / before;
    for (;;) {
        int64_t next = factor ? at * factor : at + (at - before);
        if (next >= last) return add_ranks(last, most, out, count);
        RP_TRY(add_ranks(next, most, out, count));
        before = at;
        at = next;
    }
}

rp_status rpi_scaling_ranks_parse(const char *text, int most, int out[RPI_SCALING_RANKS],
                                  int *out_count) {
    int count = 0;
    const char *at = text;
    bool goes_on = false;
    for (;;) {
        char *end;
        long long value = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ',' && strncmp(end, "..", 2) != 0))
            return RP_FAIL(INVALID, "'%.40s' is no list of ranks: 1,2,4..128", text);
        RP_TRY(goes_on ? go_on(value, most, out, &count) : add_ranks(value, most, out, &count));
        goes_on = *end == '.';
        if (!*end) break;
        at = end + (goes_on ? 2 : 1);
    }
    *out_count = count;
    return RP_OK;
}

/* ---- strategies ---- */

/* Does a strategy's name begin here? A comma may also stand between options of one. */
static bool begins_strategy(const char *text) {
    const rpi_strategy *strategy;
    size_t length = strcspn(text, ",:");
    for (int i = 0; (strategy = rpi_strategy_at(i)) != NULL; i++)
        if (strlen(strategy->name) == length && strncmp(strategy->name, text, length) == 0)
            return true;
    return strcspn(text, ",") < strcspn(text, "=") || !strchr(text, '=');
}

static rp_status add_series(rpi_scaling_plan *p, const char *text, size_t length) {
    if (p->series_count == RPI_SCALING_STRATEGIES || length >= RPI_SCALING_TEXT)
        return RP_FAIL(INVALID, "%d strategies of %d letters are the most",
                       RPI_SCALING_STRATEGIES, RPI_SCALING_TEXT - 1);
    rpi_scaling_series *s = &p->series[p->series_count++];
    memcpy(s->text, text, length);
    s->text[length] = '\0';
    RP_TRY(rpi_scaling_kind_find(s->text, &s->kind));
    RP_TRY(rpi_strategy_find(s->text, &s->strategy));
    return rpi_strategy_check(
        s->strategy, &(rpi_strategy_request){.options = rpi_strategy_options(s->text)});
}

rp_status rpi_scaling_strategies_parse(const char *text, rpi_scaling_plan *p) {
    for (const char *begin = text, *at = text;; at++) {
        if (*at && (*at != ',' || !begins_strategy(at + 1))) continue;
        RP_TRY(add_series(p, begin, (size_t)(at - begin)));
        if (!*at) return RP_OK;
        begin = at + 1;
    }
}
