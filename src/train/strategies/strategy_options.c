/* Reads the options after a strategy's name. */
#include "base/append.h"
#include "base/status.h"
#include "base/suggest.h"
#include "train/strategies/strategy.h"

#include <stdio.h>
#include <string.h>

const char *rpi_strategy_options(const char *text) {
    const char *colon = strchr(text, ':');
    return colon ? colon + 1 : NULL;
}

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

/* The comma before the next option, or the end. If no '=' follows a comma in the rest of the
 * text, the comma does not belong to a value either. */
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

rp_status rpi_strategy_drop_option(const rpi_strategy *strategy, const char *text,
                                   const char *name, char *out_text, size_t bytes) {
    rpi_strategy_words words;
    const char *chosen = text && strategy->options ? text : "";
    size_t length = strlen(name);
    if (strlen(strategy->name) + strlen(chosen) + 1 >= bytes ||
        snprintf(words.text, sizeof words.text, "%s", chosen) >= (int)sizeof words.text)
        return RP_FAIL(INVALID, "strategy %s: its options are too long", strategy->name);
    snprintf(out_text, bytes, "%s", strategy->name);
    char separator = ':';
    for (char *at = words.text; *at;) {
        char *end = end_of_option(strategy->options, at), *next = *end ? end + 1 : end;
        *end = '\0';
        if (strncmp(at, name, length) != 0 || at[length] != '=') {
            rpi_append(out_text, bytes, "%c%s", separator, at);
            separator = ',';
        }
        at = next;
    }
    return RP_OK;
}

rp_status rpi_strategy_on_loss(const char *strategy, const char *text, bool *out_goes_on) {
    *out_goes_on = strcmp(text, "continue") == 0;
    if (*out_goes_on || strcmp(text, "stop") == 0) return RP_OK;
    return RP_FAIL(INVALID, "%s: on-loss=%s; stop or continue", strategy, text);
}

/* An impossible option is a mistake of the user. */
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
