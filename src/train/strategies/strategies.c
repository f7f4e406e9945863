#include "train/strategies/strategy.h"

#include "base/append.h"
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

const char *rpi_strategy_options(const char *text) {
    const char *colon = strchr(text, ':');
    return colon ? colon + 1 : NULL;
}

/* ---- options behind the name ---- */

static const char *option_name_at(const void *context, int index) {
    const rpi_option *table = context;
    return table[index].name;
}

/* The option that begins here, or NULL. */
static const rpi_option *option_at(const rpi_option *table, const char *text) {
    for (const rpi_option *o = table; o->name; o++) {
        size_t length = strlen(o->name);
        if (strncmp(text, o->name, length) == 0 && text[length] == '=') return o;
    }
    return NULL;
}

/* The comma before the next option, or the end. What follows a comma without '=' in all that is
 * left is no value's either. */
static char *end_of_option(const rpi_option *table, char *text) {
    char *comma = strchr(text, ',');
    while (comma && !option_at(table, comma + 1) && strchr(comma, '='))
        comma = strchr(comma + 1, ',');
    return comma ? comma : text + strlen(text);
}

static rp_status read_option(const rpi_strategy *strategy, char *text, void *target) {
    const rpi_option *option = option_at(strategy->options, text);
    if (!option) {
        char what[64], word[64];
        int which = 0;
        snprintf(what, sizeof what, "option of %s", strategy->name);
        snprintf(word, sizeof word, "%.*s", (int)strcspn(text, "=,"), text);
        RP_TRY(rpi_name_find(what, word, option_name_at, strategy->options, &which));
        return RP_FAIL(INVALID, "strategy %s: %s needs a value: %s=%s", strategy->name, word,
                       word, strategy->options[which].value);
    }
    const char *value = strchr(text, '=') + 1;
    if (!*value)
        return RP_FAIL(INVALID, "strategy %s: %s needs a value: %s=%s", strategy->name,
                       option->name, option->name, option->value);
    rp_status status = rpi_options_set_yaml(strategy->options, option->name, value, target);
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "strategy %s: ", strategy->name);
}

rp_status rpi_strategy_read(const rpi_strategy *strategy, const char *text,
                            rpi_strategy_words *words, void *target) {
    RP_TRY(rpi_options_defaults(strategy->options, target));
    if (!text) return RP_OK;
    if (snprintf(words->text, sizeof words->text, "%s", text) >= (int)sizeof words->text)
        return RP_FAIL(INVALID, "strategy %s: its options are longer than %zu bytes",
                       strategy->name, sizeof words->text - 1);
    for (char *at = words->text; *at;) {
        char *end = end_of_option(strategy->options, at);
        char *next = *end ? end + 1 : end;
        *end = '\0';
        RP_TRY(read_option(strategy, at, target));
        at = next;
    }
    return RP_OK;
}

/* ---- on-loss ---- */

bool rpi_strategy_outlives(const char *text, int *out_vital) {
    const rpi_strategy *strategy = NULL;
    *out_vital = 0;
    if (!text || rpi_strategy_find(text, &strategy) != RP_OK || !strategy->outlives)
        return false;
    const char *chosen = rpi_strategy_options(text);
    if (strategy->servers) *out_vital = strategy->servers(chosen);
    return strategy->outlives(chosen);
}

rp_status rpi_strategy_on_loss(const char *strategy, const char *text, bool *out_goes_on) {
    *out_goes_on = strcmp(text, "continue") == 0;
    if (*out_goes_on || strcmp(text, "stop") == 0) return RP_OK;
    return RP_FAIL(INVALID, "%s: on-loss=%s; stop or continue", strategy, text);
}

static bool outlives_ranks(const rpi_strategy *strategy) {
    return strategy->outlives != NULL;
}

static bool takes_ranks_back(const rpi_strategy *strategy) {
    return strategy->grow != NULL;
}

/* "gossip, local-sgd and parameter-server" */
static void list_those(bool (*are)(const rpi_strategy *strategy), char *text, size_t bytes) {
    int left = 0;
    for (int i = 0; i < STRATEGIES; i++) left += are(strategies[i]);
    text[0] = '\0';
    for (int i = 0; i < STRATEGIES; i++)
        if (are(strategies[i]))
            rpi_append(text, bytes, "%s%s", strategies[i]->name,
                       --left > 1  ? ", "
                       : left == 1 ? " and "
                                   : "");
}

/* Without the options `on-loss`. */
static rp_status drop_on_loss(const char *text, char *out_text, size_t bytes) {
    const rpi_strategy *strategy = NULL;
    rpi_strategy_words words;
    RP_TRY(rpi_strategy_find(text, &strategy));
    const char *chosen = rpi_strategy_options(text);
    if (strlen(text) >= sizeof words.text || strlen(text) >= bytes)
        return RP_FAIL(INVALID, "strategy %s: its options are too long", strategy->name);
    snprintf(out_text, bytes, "%s", strategy->name);
    snprintf(words.text, sizeof words.text, "%s", chosen && strategy->options ? chosen : "");
    char separator = ':';
    for (char *at = words.text; *at;) {
        char *end = end_of_option(strategy->options, at), *next = *end ? end + 1 : end;
        *end = '\0';
        if (strncmp(at, "on-loss=", strlen("on-loss=")) != 0) {
            rpi_append(out_text, bytes, "%c%s", separator, at);
            separator = ',';
        }
        at = next;
    }
    return RP_OK;
}

rp_status rpi_strategy_set_on_loss(const char *text, const char *on_loss, char *out_text,
                                   size_t bytes) {
    const rpi_strategy *strategy = NULL;
    bool goes_on = false;
    char names[256];
    RP_TRY(rpi_strategy_find(text, &strategy));
    RP_TRY(rpi_strategy_on_loss("--on-loss", on_loss, &goes_on));
    list_those(outlives_ranks, names, sizeof names);
    if (!strategy->outlives && goes_on)
        return RP_FAIL(INVALID,
                       "--on-loss continue: strategy %s needs all of its ranks; %s go on "
                       "without one that dies",
                       strategy->name, names);
    snprintf(out_text, bytes, "%s", text);
    if (!strategy->outlives) return RP_OK;
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
    if (strategy->outlives(rpi_strategy_options(text))) return RP_OK;
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
