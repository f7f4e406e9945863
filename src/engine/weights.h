/* Parameters, their gradients and states: what all programs of one graph share.
 *
 * Values and gradients are one contiguous range of f32 each, row-major and unpadded, in the
 * order in which gradients become final in a backward pass (the last layer first). So a bucket
 * of gradients is a range, and an optimizer runs over ranges. Parameters that the loss does not
 * depend on come last; their gradients stay 0. */
#ifndef RPI_ENGINE_WEIGHTS_H
#define RPI_ENGINE_WEIGHTS_H

#include "engine/graph.h"

typedef struct rpi_weights rpi_weights;

/* Where one parameter or state lies in its arena. */
typedef struct rpi_weight {
    rpi_value_id value;
    const char *name; /* the graph's */
    rpi_shape shape;
    int64_t first, count; /* elements */
} rpi_weight;

/* Zeroed arenas for the parameters and states of a graph, which must outlive them. `loss` gives
 * the order; RPI_NO_VALUE: order of declaration, for a graph that is never trained. */
rp_status rpi_weights_create(const rpi_graph *graph, rpi_value_id loss,
                             rpi_weights **out_weights);
void rpi_weights_destroy(rpi_weights *weights);

const rpi_graph *rpi_weights_graph(const rpi_weights *weights);
int rpi_weights_parameter_count(const rpi_weights *weights); /* tensors */
int rpi_weights_state_count(const rpi_weights *weights);
/* The i-th in the order of the arena. */
const rpi_weight *rpi_weights_parameter(const rpi_weights *weights, int index);
const rpi_weight *rpi_weights_state(const rpi_weights *weights, int index);
/* NULL when there is no parameter (state) of this value or name. */
const rpi_weight *rpi_weights_of(const rpi_weights *weights, rpi_value_id value);
const rpi_weight *rpi_weights_find(const rpi_weights *weights, const char *name);

int64_t rpi_weights_count(const rpi_weights *weights); /* elements of all parameters */
int64_t rpi_weights_states_count(const rpi_weights *weights);
float *rpi_weights_values(rpi_weights *weights);
float *rpi_weights_gradients(rpi_weights *weights);
float *rpi_weights_states(rpi_weights *weights);

/* Tell that parameter values in [first, first + count) were written, so that backends renew
 * packed copies. Call it after every write, before the next run of a program. */
void rpi_weights_changed(rpi_weights *weights, int64_t first, int64_t count);
/* Changes whenever a parameter was written; starts at 1. */
uint64_t rpi_weights_version(const rpi_weights *weights, rpi_value_id parameter);

#endif
