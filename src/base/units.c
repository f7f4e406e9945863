#include "base/units.h"

#include "base/c_locale.h"
#include "base/status.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct unit {
    const char *suffix;
    double factor;
} unit;

/* The number in front, which may be infinite; *rest is what follows it. 0: there is none. */
static int any_number_in_front(const char *text, double *value, const char **rest) {
    if (!isdigit((unsigned char)text[0]) && text[0] != '.' && text[0] != '-' && text[0] != '+')
        return 0;
    char *end;
    *value = rpi_strtod(text, &end);
    *rest = end;
    return end != text;
}

/* The same; 0 also when it is not finite. */
static int number_in_front(const char *text, double *value, const char **rest) {
    return any_number_in_front(text, value, rest) && isfinite(*value);
}

/* The unit of this name; NULL: none, and *nearest is then the one that differs in capitals. */
static const unit *find_unit(const unit *units, const char *suffix, const unit **nearest) {
    *nearest = NULL;
    for (; units->suffix; units++) {
        if (strcmp(suffix, units->suffix) == 0) return units;
        if (strcasecmp(suffix, units->suffix) == 0) *nearest = units;
    }
    return NULL;
}

/* "; did you mean '64kB'?" where only the capitals of the unit are wrong, else "". */
static const char *unit_hint(const char *text, const unit *units, char *hint, size_t bytes) {
    double value;
    const char *rest;
    const unit *nearest = NULL;
    hint[0] = '\0';
    if (number_in_front(text, &value, &rest)) find_unit(units, rest, &nearest);
    if (nearest)
        snprintf(hint, bytes, "; did you mean '%.*s%s'?", (int)(rest - text), text,
                 nearest->suffix);
    return hint;
}

static int scaled(const char *text, const unit *units, double *value) {
    const char *rest;
    const unit *nearest;
    if (!number_in_front(text, value, &rest)) return 0;
    const unit *found = find_unit(units, rest, &nearest);
    if (found) *value *= found->factor;
    return found != NULL;
}

/* Is it a number with its unit that is too large to be held? Then the message says so. */
static rp_status check_size(const char *text, const unit *units, double most) {
    const unit *nearest;
    const char *rest = NULL;
    double value = 0;
    if (!isdigit((unsigned char)text[text[0] == '-' || text[0] == '+']) ||
        !any_number_in_front(text, &value, &rest))
        return RP_OK;
    const unit *found = find_unit(units, rest, &nearest);
    if (!found || fabs(value * found->factor) <= most) return RP_OK;
    return RP_FAIL(INVALID, "'%s' is too %s", text, value > 0 ? "large" : "small");
}

static int whole(double value, int64_t *out) {
    if (value != floor(value) || fabs(value) > 0x1p62) return 0;
    *out = (int64_t)value;
    return 1;
}

rp_status rpi_parse_count(const char *text, int64_t *out_count) {
    static const unit units[] = {{"", 1},       {"K", 0x1p10}, {"M", 0x1p20},
                                 {"G", 0x1p30}, {"T", 0x1p40}, {NULL, 0}};
    double value = 0;
    char hint[96];
    RP_TRY(check_size(text, units, 0x1p62));
    if (!scaled(text, units, &value) || !whole(value, out_count))
        return RP_FAIL(
            INVALID,
            "'%s' is not a whole number; write 1000 or, in powers of 1024, 64K, 16M, 1G%s",
            text, unit_hint(text, units, hint, sizeof hint));
    return RP_OK;
}

rp_status rpi_parse_bytes(const char *text, int64_t *out_bytes) {
    static const unit units[] = {
        {"", 1},       {"B", 1},        {"K", 0x1p10},   {"M", 0x1p20},   {"G", 0x1p30},
        {"T", 0x1p40}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
        {"kB", 1e3},   {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {NULL, 0}};
    double value = 0;
    char hint[96];
    RP_TRY(check_size(text, units, 0x1p62));
    if (!scaled(text, units, &value) || !whole(floor(value), out_bytes) || value < 0)
        return RP_FAIL(
            INVALID,
            "'%s' is not a size; write 4096, 64K or 64KiB (1024), 100MB or 1GB (1000)%s", text,
            unit_hint(text, units, hint, sizeof hint));
    return RP_OK;
}

static const unit no_unit[] = {{"", 1}, {NULL, 0}};
static const unit durations[] = {{"s", 1},     {"ms", 1e-3}, {"us", 1e-6},
                                 {"ns", 1e-9}, {"min", 60},  {"m", 60},
                                 {"h", 3600},  {"d", 86400}, {NULL, 0}};

rp_status rpi_parse_duration(const char *text, double *out_seconds) {
    double value = 0;
    char hint[96];
    const char *rest;
    RP_TRY(check_size(text, durations, DBL_MAX));
    if (number_in_front(text, &value, &rest) && !*rest && value > 0)
        return RP_FAIL(INVALID, "'%s' has no unit; did you mean '%sus' or '%sms'?", text, text,
                       text);
    bool zero = number_in_front(text, &value, &rest) && !*rest && value == 0;
    if ((!zero && !scaled(text, durations, &value)) || value < 0)
        return RP_FAIL(INVALID, "'%s' is not a duration; write 50us, 250ms or 1s%s", text,
                       unit_hint(text, durations, hint, sizeof hint));
    *out_seconds = value;
    return RP_OK;
}

rp_status rpi_parse_span(const char *text, double *out_seconds) {
    double value = 0;
    char hint[96];
    const char *rest = "";
    RP_TRY(check_size(text, durations, DBL_MAX));
    bool bare = number_in_front(text, &value, &rest) && !*rest;
    if (value < 0) return RP_FAIL(INVALID, "'%s' is negative", text);
    if (bare && value > 0)
        return RP_FAIL(INVALID, "'%s' has no unit; did you mean '%ss', '%smin' or '%sh'?", text,
                       text, text, text);
    if (!bare && !scaled(text, durations, &value))
        return RP_FAIL(INVALID, "'%s' is not a time; write 30s, 10min, 1h or 30d%s", text,
                       unit_hint(text, durations, hint, sizeof hint));
    *out_seconds = value;
    return RP_OK;
}

rp_status rpi_parse_seconds(const char *text, double *out_seconds) {
    double value = 0;
    char hint[96];
    const char *rest;
    RP_TRY(check_size(text, no_unit, DBL_MAX));
    RP_TRY(check_size(text, durations, DBL_MAX));
    bool bare = number_in_front(text, &value, &rest) && !*rest;
    if ((!bare && !scaled(text, durations, &value)) || value < 0)
        return RP_FAIL(INVALID,
                       "'%s' is not a duration; write 30, 30s, 10min, 1h, 250ms or 50us%s",
                       text, unit_hint(text, durations, hint, sizeof hint));
    *out_seconds = value;
    return RP_OK;
}

rp_status rpi_parse_real(const char *text, double *out_value) {
    const char *rest;
    double value = 0;
    RP_TRY(check_size(text, no_unit, DBL_MAX));
    if (!number_in_front(text, &value, &rest) || *rest)
        return RP_FAIL(INVALID, "'%s' is not a number", text);
    *out_value = value;
    return RP_OK;
}
