#include "plan/foresight/node_rate.h"

#include "base/c_locale.h"
#include "base/status.h"
#include "base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RATE_WORDS  "write 6.5/1000-node-days, or 1/3h of the whole job"
#define PRICE_WORDS "write 10.4/node-hour"

/* Of a node and hour: as much as a budget has at most (redpoll plan train --budget), so that
 * what is multiplied by it stays a number. */
#define MOST_PRICE 1e15

static const struct {
    const char *name;
    double seconds;
} node_units[] = {{"node-hour", 3600}, {"node-day", 86400}, {"node-year", 365.25 * 86400}};

/* Reads a finite number at the front; returns what follows it, NULL: there is none. */
static const char *number(const char *text, double *value) {
    char *end;
    if (!isdigit((unsigned char)*text) && !strchr(".-+", *text)) return NULL;
    *value = rpi_strtod(text, &end);
    return end != text && isfinite(*value) ? end : NULL;
}

/* Seconds in "node-days" or "node-day"; 0: there is no such unit. */
static double node_seconds(const char *unit) {
    for (size_t i = 0; i < sizeof node_units / sizeof node_units[0]; i++) {
        size_t length = strlen(node_units[i].name);
        if (strncmp(unit, node_units[i].name, length) != 0) continue;
        if (!unit[length] || strcmp(unit + length, "s") == 0) return node_units[i].seconds;
    }
    return 0;
}

/* Seconds of a node in "1000-node-days", after the slash; 0: it is something else. */
static double nodes_and_time(const char *text) {
    double count = 1;
    const char *rest = isdigit((unsigned char)*text) ? number(text, &count) : text;
    if (!rest || !(count > 0)) return 0;
    return count * node_seconds(rest + (*rest == '-'));
}

/* The number before the slash, and the text after it. */
static rp_status split(const char *text, const char *what, const char *words, double *value,
                       const char **out_unit) {
    const char *rest = number(text, value);
    if (!rest || (*rest && *rest != '/'))
        return RP_FAIL(INVALID, "'%s' is not %s; %s", text, what, words);
    if (*value < 0) return RP_FAIL(INVALID, "'%s' is negative", text);
    if (!*rest || !rest[1]) return RP_FAIL(INVALID, "'%s' has no unit; %s", text, words);
    *out_unit = rest + 1;
    return RP_OK;
}

rp_status rpi_node_rate_parse(const char *text, rpi_node_rate *out_rate) {
    double value = 0, seconds;
    const char *unit = "";
    RP_TRY(split(text, "a rate", RATE_WORDS, &value, &unit));
    if (value == 0) return RP_FAIL(INVALID, "'%s' is no rate: it has to be above 0", text);
    seconds = nodes_and_time(unit);
    rpi_node_rate rate = {value / seconds, false};
    if (seconds == 0) {
        if (rpi_parse_span(unit, &seconds) != RP_OK || seconds == 0)
            return RP_FAIL(INVALID, "'%s': '%s' is no unit; " RATE_WORDS, text, unit);
        rate = (rpi_node_rate){value / seconds, true};
    }
    if (!isfinite(rate.per_s) || rate.per_s < 1e-300)
        return RP_FAIL(INVALID, "'%s' is too %s", text, rate.per_s > 1 ? "large" : "small");
    *out_rate = rate;
    return RP_OK;
}

double rpi_node_rate_of(const rpi_node_rate *rate, double nodes) {
    return rate->of_a_job ? rate->per_s : rate->per_s * nodes;
}

rp_status rpi_price_parse(const char *text, double *out_per_node_hour) {
    double value = 0;
    const char *unit = "";
    RP_TRY(split(text, "a price", PRICE_WORDS, &value, &unit));
    double seconds = nodes_and_time(unit);
    if (seconds == 0)
        return RP_FAIL(INVALID, "'%s': '%s' is no unit; " PRICE_WORDS, text, unit);
    double per_node_hour = value * 3600 / seconds;
    if (per_node_hour > MOST_PRICE)
        return RP_FAIL(INVALID, "'%s' is too large: %g a node and hour at most", text,
                       MOST_PRICE);
    *out_per_node_hour = per_node_hour;
    return RP_OK;
}
