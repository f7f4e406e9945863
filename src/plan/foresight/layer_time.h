/* The time of a layer, and of everything outside of layers. */
#ifndef RPI_PLAN_LAYER_TIME_H
#define RPI_PLAN_LAYER_TIME_H

#include "plan/foresight/forecast_job.h"

/* Writes the job's terms: forward, backward, and recomputation. */
void rpi_layer_time(const rpi_forecast_job *job);
/* The half of a layer's backward pass for weights, for which no other stage waits. */
double rpi_layer_weights_s(const rpi_forecast_job *job);
/* The passes over a layer in which tensor-parallel ranks sum and wait. */
double rpi_layer_sum_passes(const rpi_forecast_job *job);
/* The number of times that a layer's keys and values are exchanged among ranks that share
 * sequences, with any recomputation: forward, for the backward pass, and as gradients. */
enum { RPI_LAYER_KEY_PASSES = 3 };
/* The bytes that a forward pass over a layer reads and writes, without products and fused
 * attention. */
double rpi_layer_rest_bytes(const rpi_training_layout *layout);

/* The time of logits and their loss, forward and backward. */
double rpi_head_time_s(const rpi_forecast_job *job);

#endif
