#include "base/c_locale.h"
#include "net/shaped/link_shape.h"

#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct rate_unit {
    const char *suffix;
    double bytes_per_s;
} rate_unit;

/* The largest first: text() takes the first that gives a number of 1 or more. */
static const rate_unit bits[] = {{"Tbit", 1e12 / 8}, {"Gbit", 1e9 / 8}, {"Mbit", 1e6 / 8},
                                 {"kbit", 1e3 / 8},  {"bit", 1.0 / 8},  {NULL, 0}};
static const rate_unit bytes_units[] = {{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6},
                                        {"kB", 1e3},  {"B", 1},    {NULL, 0}};

/* "GB" and "GB/s" alike. */
static const rate_unit *find_unit(const rate_unit *units, const char *suffix) {
    for (; units->suffix; units++) {
        size_t length = strlen(units->suffix);
        if (strncmp(units->suffix, suffix, length) != 0) continue;
        if (!suffix[length] || strcmp(suffix + length, "/s") == 0) return units;
    }
    return NULL;
}

/* The unit meant by "", "G", "gbit", "Gbps", "Gbit/s", "MB/s" and others; NULL: none. */
static const char *likely_unit(double value, const char *suffix) {
    static const char *const endings[] = {"",  "bit",   "bits",   "bps",
                                          "b", "bit/s", "bits/s", "b/s"};
    if (!*suffix) return value < 10 ? "Gbit" : value <= 1000 ? "Mbit" : "bit";
    for (const rate_unit *unit = bytes_units; unit->suffix; unit++)
        if (strncmp(suffix, unit->suffix, strlen(unit->suffix)) == 0) return unit->suffix;
    for (const rate_unit *unit = bits; unit->suffix; unit++) {
        size_t letters = strlen(unit->suffix) - strlen("bit");
        if (strncasecmp(suffix, unit->suffix, letters) != 0) continue;
        for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
            if (strcasecmp(suffix + letters, endings[i]) == 0) return unit->suffix;
    }
    return NULL;
}

static rp_status fail_rate(const char *text, double value, const char *suffix) {
    char hint[64] = "";
    const char *likely = suffix != text ? likely_unit(value, suffix) : NULL;
    if (likely)
        snprintf(hint, sizeof hint, "; did you mean '%.*s%s'?", (int)(suffix - text), text,
                 likely);
    return RP_FAIL(
        INVALID,
        "'%s' is not the rate of a link; write 1Gbit, 200Mbit or, in bytes a second, 25MB%s",
        text, hint);
}

static rp_status parse_rate(const char *text, double *out_bytes_per_s) {
    char *suffix;
    double value = rpi_strtod(text, &suffix);
    const rate_unit *unit = find_unit(bits, suffix);
    if (!unit) unit = find_unit(bytes_units, suffix);
    bool is_number = suffix != text && isfinite(value), is_none = is_number && !(value > 0);
    if (!is_number || (!unit && !is_none)) return fail_rate(text, value, suffix);
    if (is_none || value * unit->bytes_per_s < 1 || value * unit->bytes_per_s > 1e15)
        return RP_FAIL(INVALID, "a link of %s carries nothing; write 1Gbit or 200Mbit", text);
    *out_bytes_per_s = value * unit->bytes_per_s;
    return RP_OK;
}

rp_status rpi_link_shape_parse(const char *text, rpi_link_shape *out_shape) {
    rpi_link_shape shape = {0};
    char rate[32];
    const char *comma = strchr(text, ',');
    size_t length = comma ? (size_t)(comma - text) : strlen(text);
    if (length == 0 || length >= sizeof rate)
        return RP_FAIL(INVALID, "'%s' is not a link; write RATE,LATENCY as 1Gbit,50us", text);
    memcpy(rate, text, length);
    rate[length] = 0;
    RP_TRY(parse_rate(rate, &shape.bytes_per_s));
    if (comma) {
        RP_TRY(rpi_parse_duration(comma + 1, &shape.latency_s));
        if (shape.latency_s > 3600)
            return RP_FAIL(INVALID, "a latency of %s; an hour at most", comma + 1);
    }
    *out_shape = shape;
    return RP_OK;
}

static const char *seconds_text(double seconds, char *text, size_t bytes) {
    if (seconds >= 1)
        rpi_print(text, bytes, "%.9gs", seconds);
    else if (seconds >= 1e-3)
        rpi_print(text, bytes, "%.9gms", seconds * 1e3);
    else if (seconds >= 1e-6)
        rpi_print(text, bytes, "%.9gus", seconds * 1e6);
    else
        rpi_print(text, bytes, "%.9gns", seconds * 1e9);
    return text;
}

const char *rpi_link_shape_text(const rpi_link_shape *shape, char *text, size_t bytes) {
    char rate[32] = "unlimited", latency[32];
    if (shape->bytes_per_s > 0) {
        const rate_unit *unit = bits;
        while (unit[1].suffix && shape->bytes_per_s < unit->bytes_per_s) unit++;
        rpi_print(rate, sizeof rate, "%.9g%s", shape->bytes_per_s / unit->bytes_per_s,
                  unit->suffix);
    }
    if (shape->latency_s > 0)
        snprintf(text, bytes, "%s,%s", rate,
                 seconds_text(shape->latency_s, latency, sizeof latency));
    else
        snprintf(text, bytes, "%s", rate);
    return text;
}
