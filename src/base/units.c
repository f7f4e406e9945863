#include "base/units.h"

#include "base/status.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct unit {
    const char *suffix;
    double factor;
} unit;

/* The number in front; *rest is what follows it. 0 when there is none, or it is not finite. */
static int number_in_front(const char *text, double *value, const char **rest) {
    if (!isdigit((unsigned char)text[0]) && text[0] != '.' && text[0] != '-' && text[0] != '+')
        return 0;
    char *end;
    *value = strtod(text, &end);
    *rest = end;
    return end != text && isfinite(*value);
}

static int scaled(const char *text, const unit *units, double *value) {
    const char *rest;
    if (!number_in_front(text, value, &rest)) return 0;
    for (; units->suffix; units++)
        if (strcmp(rest, units->suffix) == 0) {
            *value *= units->factor;
            return 1;
        }
    return 0;
}

static int whole(double value, int64_t *out) {
    if (value != floor(value) || fabs(value) > 0x1p62) return 0;
    *out = (int64_t)value;
    return 1;
}

rp_status rpi_parse_count(const char *text, int64_t *out_count) {
    static const unit units[] = {
        {"", 1}, {"K", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}, {NULL, 0}};
    double value = 0;
    if (!scaled(text, units, &value) || !whole(value, out_count))
        return RP_FAIL(
            INVALID,
            "'%s' is not a whole number; write 1000 or, in powers of 1024, 64K, 16M, 1G", text);
    return RP_OK;
}

rp_status rpi_parse_bytes(const char *text, int64_t *out_bytes) {
    static const unit units[] = {{"", 1},         {"B", 1},        {"K", 0x1p10},
                                 {"M", 0x1p20},   {"G", 0x1p30},   {"KiB", 0x1p10},
                                 {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"kB", 1e3},
                                 {"MB", 1e6},     {"GB", 1e9},     {NULL, 0}};
    double value = 0;
    if (!scaled(text, units, &value) || !whole(floor(value), out_bytes) || value < 0)
        return RP_FAIL(
            INVALID, "'%s' is not a size; write 4096, 64K or 64KiB (1024), 100MB or 1GB (1000)",
            text);
    return RP_OK;
}

rp_status rpi_parse_seconds(const char *text, double *out_seconds) {
    static const unit units[] = {{"", 1},      {"s", 1},     {"ms", 1e-3},
                                 {"us", 1e-6}, {"ns", 1e-9}, {"min", 60},
                                 {"m", 60},    {"h", 3600},  {NULL, 0}};
    double value = 0;
    if (!scaled(text, units, &value) || value < 0)
        return RP_FAIL(INVALID,
                       "'%s' is not a duration; write 30, 30s, 10min, 1h, 250ms or 50us", text);
    *out_seconds = value;
    return RP_OK;
}

rp_status rpi_parse_real(const char *text, double *out_value) {
    const char *rest;
    double value = 0;
    if (!number_in_front(text, &value, &rest) || *rest)
        return RP_FAIL(INVALID, "'%s' is not a number", text);
    *out_value = value;
    return RP_OK;
}
