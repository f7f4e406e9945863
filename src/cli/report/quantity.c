#include "cli/report/quantity.h"

#include "base/c_locale.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ascending; minutes are used from three on, because 150 s says more than 2.5 min. */
static const rpi_quantity_unit numbers[] = {{"", 1, 0}, {0}};
static const rpi_quantity_unit wholes[] = {{"", 1, 0}, {"k", 1e3, 1e4}, {"M", 1e6, 1e6}, {0}};
static const rpi_quantity_unit seconds[] = {
    {"ns", 1e-9, 0},
    {"µs", 1e-6, 1e-6},
    {"ms", 1e-3, 1e-3},
    {"s", 1, 1},
    {"min", 60, 180},
    {"h", 3600, 10800},
    {0},
};
static const rpi_quantity_unit bytes[] = {
    {"B", 1, 0}, {"kB", 1e3, 1e3}, {"MB", 1e6, 1e6}, {"GB", 1e9, 1e9}, {"TB", 1e12, 1e12}, {0},
};
static const rpi_quantity_unit rates[] = {
    {"B/s", 1, 0},      {"kB/s", 1e3, 1e3},   {"MB/s", 1e6, 1e6},
    {"GB/s", 1e9, 1e9}, {"TB/s", 1e12, 1e12}, {0},
};
static const rpi_quantity_unit shares[] = {{"%", 0.01, 0}, {0}};

static const rpi_quantity_unit *const units[] = {
    [RPI_NUMBER] = numbers, [RPI_WHOLE] = wholes,  [RPI_SECONDS] = seconds,
    [RPI_BYTES] = bytes,    [RPI_BYTES_S] = rates, [RPI_SHARE] = shares,
};

static const rpi_quantity_unit *base_of(const rpi_quantity_unit *unit) {
    while (unit->size != 1 && unit[1].name) unit++;
    return unit;
}

const rpi_quantity_unit *rpi_unit_for(rpi_quantity quantity, double value) {
    const rpi_quantity_unit *unit = units[quantity];
    if (!isfinite(value) || value == 0) return base_of(unit);
    /* A small tolerance: 0.3 / 0.1 is a little below 3. */
    double size = fabs(value) * (1 + 1e-9);
    while (unit[1].name && size >= unit[1].least) unit++;
    return unit;
}

/* 1.00e+36 is 1e36 and 3.89e-08 is 3.89e-8. */
static void shorten_exponent(char *text) {
    char *e = strchr(text, 'e');
    if (!e) return;
    char *digits = e + (e[1] == '-' ? 2 : 1);
    char *rest = digits + strspn(digits, "+0");
    memmove(digits, rest, strlen(rest) + 1);
    if (!memchr(text, '.', (size_t)(e - text))) return;
    char *end = e;
    while (end[-1] == '0') end--;
    if (end[-1] == '.') end--;
    memmove(end, e, strlen(e) + 1);
}

/* The text of a value without digits; NULL for a number. */
static const char *word_for(double value) {
    if (isnan(value)) return "–";
    if (isinf(value)) return value < 0 ? "−∞" : "∞";
    return value == 0 ? "0" : NULL;
}

const char *rpi_number_text(double value, int digits, char text[RPI_QUANTITY_TEXT]) {
    double size = fabs(value);
    const char *word = word_for(value);
    if (word) {
        snprintf(text, RPI_QUANTITY_TEXT, "%s", word);
    } else if (size >= 1e6 || size < 1e-4) {
        snprintf(text, RPI_QUANTITY_TEXT, "%.*e", digits > 2 ? 2 : digits - 1, value);
        shorten_exponent(text);
    } else {
        int decimals = digits - 1 - (int)floor(log10(size));
        snprintf(text, RPI_QUANTITY_TEXT, "%.*f", decimals > 0 ? decimals : 0, value);
    }
    return text;
}

const char *rpi_quantity_text(rpi_quantity quantity, double value,
                              char text[RPI_QUANTITY_TEXT]) {
    const rpi_quantity_unit *unit = rpi_unit_for(quantity, value);
    if (quantity == RPI_NUMBER) return rpi_number_text(value, 4, text);
    if (quantity == RPI_WHOLE && fabs(value) < 1e15) {
        snprintf(text, RPI_QUANTITY_TEXT, "%.0f", value);
        return text;
    }
    rpi_number_text(value / unit->size, 3, text);
    if (!isfinite(value)) return text;
    size_t length = strlen(text);
    snprintf(text + length, RPI_QUANTITY_TEXT - length, " %s", unit->name);
    return text;
}

const char *rpi_exact_text(double value, char text[RPI_QUANTITY_TEXT]) {
    text[0] = '\0';
    if (!isfinite(value)) return text;
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, RPI_QUANTITY_TEXT, "%.*g", digits, value);
        if (rpi_strtod(text, NULL) == value) break;
    }
    return text;
}
