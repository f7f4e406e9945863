/* Facts of a device chosen so that forecasts meet what was measured. */
#ifndef RPI_PLAN_FORECAST_FIT_H
#define RPI_PLAN_FORECAST_FIT_H

#include "plan/foresight/forecast_errors.h"

enum { RPI_FIT_FOLDS = 5, RPI_FIT_ROWS = 2 * RPI_FIT_FOLDS };

typedef struct rpi_plan_device_fit {
    rpi_plan_device device;  /* with the facts that were fitted to all rows */
    rpi_forecast_errors own; /* of it, on these rows */
    /* Each row forecast by facts that were fitted to four fifths of the rows without it: what
     * to expect of trainings that nobody has measured. */
    rpi_forecast_errors unseen;
} rpi_plan_device_fit;

/* Chooses the facts that rpi_fact_info.fitted marks, from those of the machine's device on, for
 * the least mean |ln (predicted / measured)|, by the simplex of Nelder and Mead (1965). Its
 * residual is that of the unseen rows. Seconds for a thousand rows; the same rows give the same
 * facts. RP_INVALID: fewer than RPI_FIT_ROWS rows. RP_NOMEM. */
rp_status rpi_forecast_fit(const rpi_measured_row *rows, int count, const rpi_machine *machine,
                           rpi_plan_device_fit *out);

#endif
