/* Fits the facts of a device so that forecasts meet measurements. */
#ifndef RPI_PLAN_FORECAST_FIT_H
#define RPI_PLAN_FORECAST_FIT_H

#include "plan/foresight/forecast_errors.h"

enum { RPI_FIT_FOLDS = 5, RPI_FIT_ROWS = 2 * RPI_FIT_FOLDS };

typedef struct rpi_plan_device_fit {
    rpi_plan_device device;  /* with the facts that were fitted to all rows */
    rpi_forecast_errors own; /* its errors on these rows */
    /* Errors of each row by facts that were fitted to four fifths of the rows, without it: what
     * to expect for trainings that were not measured. */
    rpi_forecast_errors unseen;
} rpi_plan_device_fit;

/* Fits the facts that rpi_fact_info.fitted marks, beginning with those of the machine's device,
 * for the least mean |ln (predicted / measured)|, by the simplex of Nelder and Mead (1965). The
 * residual is that of the unseen rows. Takes seconds for a thousand rows; the same rows give
 * the same facts. RP_INVALID: fewer than RPI_FIT_ROWS rows. RP_NOMEM. */
rp_status rpi_forecast_fit(const rpi_measured_row *rows, int count, const rpi_machine *machine,
                           rpi_plan_device_fit *out);

#endif
