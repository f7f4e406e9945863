/* How long products of matrices take. */
#ifndef RPI_PLAN_PRODUCT_TIME_H
#define RPI_PLAN_PRODUCT_TIME_H

#include "plan/foresight/forecast_job.h"

/* Seconds of m n k multiply-adds, whose result is m by n: a share of the best rate that depends
 * on the smallest side. A device makes the result by tiles, so many of them at once, and what
 * is left for the last time leaves processors idle: tiles of the usual shape, of it turned by a
 * right angle, or of half of it at tile_half_share of the rate, whichever is the quickest. A
 * product that is deeper than its result is wide is cut in its depth, too, so that there are
 * tiles enough. Where it was measured, as it was measured. */
double rpi_product_s(const rpi_forecast_job *job, double m, double n, double k);
/* One of so many at once that none waits for a last tile. */
double rpi_batched_product_s(const rpi_forecast_job *job, double m, double n, double k);

#endif
