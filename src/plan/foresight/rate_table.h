/* Rates that were measured at some sizes, for any size: of matrix products, of attention, of
 * what goes through memory. */
#ifndef RPI_PLAN_RATE_TABLE_H
#define RPI_PLAN_RATE_TABLE_H

#include <stdbool.h>

enum { RPI_RATE_SIDES = 3, RPI_RATE_POINTS = 96 };

typedef struct rpi_rate_point {
    double at[RPI_RATE_SIDES]; /* above 0 */
    double rate;
} rpi_rate_point;

typedef struct rpi_rate_table {
    int sides; /* that a point has */
    int count; /* 0: nothing was measured */
    rpi_rate_point points[RPI_RATE_POINTS];
    /* What rates of points with several sides follow: best / (1 + (half_side / side)^power),
     * side being the smallest. */
    double best, half_side, power;
} rpi_rate_table;

/* One point more; false: it has no room, or is no rate at a size. */
bool rpi_rate_table_add(rpi_rate_table *table, const double *at, double rate);
/* Behind the last point: chooses best, half_side and power. */
void rpi_rate_table_fit(rpi_rate_table *table);
/* The rate at a size: that of a point where there is one, between points without a cliff. Of
 * one side linear in logarithms between neighbours, and constant beyond them; of several what
 * they follow, times what the points near by are above or below it. 0: nothing was measured. */
double rpi_rate_at(const rpi_rate_table *table, const double *at);

#endif
