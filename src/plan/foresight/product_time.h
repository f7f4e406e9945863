/* The time of matrix products. */
#ifndef RPI_PLAN_PRODUCT_TIME_H
#define RPI_PLAN_PRODUCT_TIME_H

#include "plan/foresight/forecast_job.h"

/* The time of m n k multiply-adds, whose result is m by n: a share of the best rate that
 * depends on the smallest side. A device computes the result in tiles, a fixed number at once,
 * so that processors are idle in the last turn. The quickest of these counts: tiles of the
 * usual shape, turned by a right angle, or of half the size at tile_half_share of the rate. A
 * product whose depth exceeds the width of its result is also cut in depth, so that there are
 * enough tiles. If the product was measured, its measured time. */
double rpi_product_s(const rpi_forecast_job *job, double m, double n, double k);
/* One of so many products at once that no last turn leaves processors idle. */
double rpi_batched_product_s(const rpi_forecast_job *job, double m, double n, double k);

#endif
