/* How far forecasts are from what was measured. */
#ifndef RPI_PLAN_FORECAST_ERRORS_H
#define RPI_PLAN_FORECAST_ERRORS_H

#include "plan/foresight/measured_table.h"
#include "plan/foresight/step_forecast.h"

typedef struct rpi_forecast_errors {
    double mean, median, worst; /* |predicted / measured - 1| */
    double bias;                /* mean of predicted / measured - 1 */
    /* Of one constant rate for all rows, the best there is for them; and the share of its mean
     * error that forecasts do without: 1 all, 0 none, below 0 worse than it. */
    double constant_mean, skill;
    double order;   /* Kendall's tau: 1: the order of all pairs is kept; -1: none is */
    double covered; /* share of rows within their interval */
    double factor;  /* that 9 of 10 of such rows stay within: (n + 1) .9 th largest ratio */
} rpi_forecast_errors;

/* rows: what was measured; forecasts: of each row, in order. At least one. RP_NOMEM. */
rp_status rpi_forecast_errors_of(const rpi_measured_row *rows, const rpi_forecast *forecasts,
                                 int count, rpi_forecast_errors *out);

#endif
