/* The errors of forecasts. */
#ifndef RPI_PLAN_FORECAST_ERRORS_H
#define RPI_PLAN_FORECAST_ERRORS_H

#include "plan/foresight/measured_table.h"
#include "plan/foresight/step_forecast.h"

typedef struct rpi_forecast_errors {
    double mean, median, worst; /* |predicted / measured - 1| */
    double bias;                /* mean of predicted / measured - 1 */
    /* The mean error of the best constant rate for all rows; and how much smaller the
     * forecasts' is: 1: no error; 0: the same error; below 0: a larger one. */
    double constant_mean, skill;
    double order;   /* Kendall's tau: 1: the order of all pairs is right; -1: of none */
    double covered; /* share of rows within their interval */
    double factor;  /* 9 of 10 such rows are within it: (n + 1) .9 th largest ratio */
} rpi_forecast_errors;

/* rows: measurements; forecasts: one of each row, in order. At least one. RP_NOMEM. */
rp_status rpi_forecast_errors_of(const rpi_measured_row *rows, const rpi_forecast *forecasts,
                                 int count, rpi_forecast_errors *out);

#endif
