/* The time to add, to sum and to apply gradients; call rpi_layer_time() first. */
#ifndef RPI_PLAN_GRADIENT_TIME_H
#define RPI_PLAN_GRADIENT_TIME_H

#include "plan/foresight/forecast_job.h"

/* The time to add a micro-batch's gradients of a stage: they are read, and added to sums that
 * are read and written. Products add to wider sums by themselves, and ZeRO 3 adds what it has
 * scattered. */
double rpi_gradients_added_s(const rpi_forecast_job *job, int64_t stage);
/* The time of sums over ranks with the same parameters that no backward pass hides. */
double rpi_gradients_exposed_s(const rpi_forecast_job *job);
/* The time to read each gradient once a step, to report one that is no number: redpoll train
 * does that, where it was measured; 0 for other trainers. */
double rpi_gradients_looked_at_s(const rpi_forecast_job *job);
/* The time of the optimizer: it reads gradients, writes weights, and reads and writes the rest.
 * Before that, trainers in a table of devices read gradients for their norm, read and write
 * them to clip, and write them to clear; redpoll train does not. */
double rpi_optimizer_time_s(const rpi_forecast_job *job);

#endif
