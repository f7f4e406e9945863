/* Scales of an axis: from values to positions, with ticks at round numbers. Pure. */
#ifndef RPI_CLI_REPORT_SCALE_H
#define RPI_CLI_REPORT_SCALE_H

#include "cli/report/quantity.h"

#include <stdbool.h>

enum { RPI_TICKS = 16 };

typedef struct rpi_tick {
    double value;
    char text[RPI_QUANTITY_TEXT];
} rpi_tick;

typedef struct rpi_scale {
    double low, high; /* values at the two ends; low < high */
    bool logarithmic; /* then low > 0 */
    const char *unit; /* of all tick texts; "" if each has its own or none is needed */
    double from, to;  /* places of low and high */
    rpi_tick ticks[RPI_TICKS];
    int tick_count;
} rpi_scale;

typedef struct rpi_range {
    double low, high;
    rpi_quantity quantity;
    bool logarithmic;
    bool rounds; /* move the ends out to round numbers */
    int wanted;  /* ticks, about; at most RPI_TICKS - 2 */
} rpi_range;

/* A scale whose ends include the range. An empty or infinite range becomes 0 to 1, a single
 * value gets room on both sides, and a logarithmic scale without positive values becomes a
 * linear one. */
rpi_scale rpi_scale_make(const rpi_range *range, double from, double to);
/* The position of a value; NaN stays NaN, as do values that have no logarithm on a logarithmic
 * scale. */
double rpi_scale_at(const rpi_scale *scale, double value);

#endif
