/* What the strategies do about ranks that die, and about ranks that come back. */
#include "base/append.h"
#include "base/status.h"
#include "train/strategies/strategy.h"

#include <stdio.h>
#include <string.h>

bool rpi_strategy_survives(const char *text, int *out_vital) {
    const rpi_strategy *strategy = NULL;
    *out_vital = 0;
    if (!text || rpi_strategy_find(text, &strategy) != RP_OK || !strategy->survives)
        return false;
    const char *chosen = rpi_strategy_options(text);
    if (strategy->servers) *out_vital = strategy->servers(chosen);
    return strategy->survives(chosen);
}

static bool survives_ranks(const rpi_strategy *strategy) {
    return strategy->survives != NULL;
}

static bool takes_ranks_back(const rpi_strategy *strategy) {
    return strategy->grow != NULL;
}

/* "gossip, local-sgd and parameter-server": the strategies for which `are` is true. */
static void list_those(bool (*are)(const rpi_strategy *strategy), char *text, size_t bytes) {
    const rpi_strategy *strategy;
    int left = 0;
    for (int i = 0; (strategy = rpi_strategy_at(i)) != NULL; i++) left += are(strategy);
    text[0] = '\0';
    for (int i = 0; (strategy = rpi_strategy_at(i)) != NULL; i++)
        if (are(strategy))
            rpi_append(text, bytes, "%s%s", strategy->name,
                       --left > 1  ? ", "
                       : left == 1 ? " and "
                                   : "");
}

/* The text without its options `on-loss`. */
static rp_status drop_on_loss(const char *text, char *out_text, size_t bytes) {
    const rpi_strategy *strategy = NULL;
    RP_TRY(rpi_strategy_find(text, &strategy));
    return rpi_strategy_drop_option(strategy, rpi_strategy_options(text), "on-loss", out_text,
                                    bytes);
}

rp_status rpi_strategy_set_on_loss(const char *text, const char *on_loss, char *out_text,
                                   size_t bytes) {
    const rpi_strategy *strategy = NULL;
    bool goes_on = false;
    char names[256];
    RP_TRY(rpi_strategy_find(text, &strategy));
    RP_TRY(rpi_strategy_on_loss("--on-loss", on_loss, &goes_on));
    list_those(survives_ranks, names, sizeof names);
    if (!strategy->survives && goes_on)
        return RP_FAIL(INVALID,
                       "--on-loss continue: strategy %s needs all of its ranks; %s go on "
                       "without one that dies",
                       strategy->name, names);
    snprintf(out_text, bytes, "%s", text);
    if (!strategy->survives) return RP_OK;
    RP_TRY(drop_on_loss(text, out_text, bytes));
    size_t needed = strlen(out_text) + strlen(",on-loss=") + strlen(on_loss);
    if (needed >= bytes)
        return RP_FAIL(INVALID, "strategy %s: its options are too long", strategy->name);
    rpi_append(out_text, bytes, "%con-loss=%s", strchr(out_text, ':') ? ',' : ':', on_loss);
    return RP_OK;
}

rp_status rpi_strategy_check_returns(const char *text) {
    const rpi_strategy *strategy = NULL;
    char names[256];
    RP_TRY(rpi_strategy_find(text, &strategy));
    list_those(takes_ranks_back, names, sizeof names);
    if (!strategy->grow)
        return RP_FAIL(
            INVALID,
            "--restart: strategy %s takes back no rank that has died; %s take workers "
            "back, with servers=1 or more and on-loss=continue",
            strategy->name, names);
    if (strategy->survives(rpi_strategy_options(text))) return RP_OK;
    return RP_FAIL(INVALID,
                   "--restart: by '%s' the death of a worker ends the run; say --on-loss "
                   "continue, and servers=1 or more in --strategy %s:...",
                   text, strategy->name);
}

bool rpi_strategy_alike(const char *a, const char *b) {
    char x[sizeof(rpi_strategy_words)], y[sizeof(rpi_strategy_words)];
    if (drop_on_loss(a, x, sizeof x) != RP_OK || drop_on_loss(b, y, sizeof y) != RP_OK)
        return strcmp(a, b) == 0;
    return strcmp(x, y) == 0;
}
