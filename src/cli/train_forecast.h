/* `redpoll train --machine`: what a run will take, said before its first step. */
#ifndef RPI_CLI_TRAIN_FORECAST_H
#define RPI_CLI_TRAIN_FORECAST_H

#include "cli/train_settings.h"

/* May there be a forecast at all? RP_INVALID: not of such a model or strategy; and as of the
 * machine's file. Nothing where --machine is not said. */
rp_status rpi_train_forecast_check(const rpi_train_settings *settings);

/* Of the run in the folder of --out, whose header has been written: prints how long a step will
 * take, or why that is not known, and copies the machine into the folder. `settings` is an
 * rpi_train_settings. For rpi_progress.begun. */
void rpi_train_forecast_print(const void *settings, FILE *stream, int64_t steps);

#endif
