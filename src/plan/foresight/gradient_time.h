/* How long it takes to add, to sum and to apply gradients; after rpi_layer_time(). */
#ifndef RPI_PLAN_GRADIENT_TIME_H
#define RPI_PLAN_GRADIENT_TIME_H

#include "plan/foresight/forecast_job.h"

/* A micro-batch's gradients of a stage are read, and added to those that are read and written;
 * products add to wider ones by themselves, and ZeRO 3 adds what it has scattered. */
double rpi_gradients_added_s(const rpi_forecast_job *job, int64_t stage);
/* Sums over ranks that hold the same parameters, of which what no backward pass hides. */
double rpi_gradients_exposed_s(const rpi_forecast_job *job);
/* Gradients are read, weights written, the rest read and written. Before that gradients are
 * read for their norm, read and written to clip them, and written where they are cleared, by
 * trainers that a table of devices knows; redpoll train does not. */
double rpi_optimizer_time_s(const rpi_forecast_job *job);

#endif
