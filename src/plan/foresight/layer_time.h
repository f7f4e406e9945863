/* How long a layer takes, and all that is no layer. */
#ifndef RPI_PLAN_LAYER_TIME_H
#define RPI_PLAN_LAYER_TIME_H

#include "plan/foresight/forecast_job.h"

/* Into the job's terms: forward, backward, and once more what is made again. */
void rpi_layer_time(const rpi_forecast_job *job);
/* Of a layer's backward pass, the half for weights, which no other stage waits for. */
double rpi_layer_weights_s(const rpi_forecast_job *job);
/* Passes over a layer in which tensor-parallel ranks sum and wait. */
double rpi_layer_sum_passes(const rpi_forecast_job *job);
/* How often keys and values of a layer go around among the ranks that share sequences, whatever
 * is made again: forward, where the backward pass reads them, and as gradients. */
enum { RPI_LAYER_KEY_PASSES = 3 };
/* Bytes that a forward pass over a layer reads and writes beside products and fused attention.
 */
double rpi_layer_rest_bytes(const rpi_training_layout *layout);

/* Logits and their loss, forward and backward. */
double rpi_head_time_s(const rpi_forecast_job *job);

#endif
