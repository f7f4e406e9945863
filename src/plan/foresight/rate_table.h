/* Rates that were measured at some sizes, interpolated for any size: of matrix products, of
 * attention, of work in memory. */
#ifndef RPI_PLAN_RATE_TABLE_H
#define RPI_PLAN_RATE_TABLE_H

#include <stdbool.h>

enum { RPI_RATE_SIDES = 3, RPI_RATE_POINTS = 96 };

typedef struct rpi_rate_point {
    double at[RPI_RATE_SIDES]; /* above 0 */
    double rate;
} rpi_rate_point;

typedef struct rpi_rate_table {
    int sides; /* sides of a point */
    int count; /* 0: nothing was measured */
    rpi_rate_point points[RPI_RATE_POINTS];
    /* The form that rates of points with several sides follow: best / (1 + (half_side /
     * side)^power), where side is the smallest. */
    double best, half_side, power;
} rpi_rate_table;

/* Adds a point; false: there is no room, or it is not a rate at a size. */
bool rpi_rate_table_add(rpi_rate_table *table, const double *at, double rate);
/* After the last point: chooses best, half_side and power. */
void rpi_rate_table_fit(rpi_rate_table *table);
/* The rate at a size: that of a point if there is one, else interpolated smoothly. With one
 * side it is linear in logarithms between neighbours, and constant beyond them. With several it
 * is the form's, times how far nearby points are above or below the form. 0: nothing was
 * measured. */
double rpi_rate_at(const rpi_rate_table *table, const double *at);

#endif
