/* Parameters, their gradients and states: a table of the model's own, by name.
 *
 * It is made from graphs and independent of them: a program binds its graph's parameters and
 * states by name (rpi_weights_match), so that graphs of other lengths, batch sizes or tasks
 * share one model.
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
    const char *name; /* the table's own copy */
    rpi_shape shape;
    bool is_state;
    int index;            /* among the parameters, or the states, in the order of the arena */
    int64_t first, count; /* elements */
} rpi_weight;

/* One graph of a model. `loss` gives the order of its parameters; RPI_NO_VALUE: the order of
 * declaration, for a graph that is never trained. */
typedef struct rpi_weights_source {
    const rpi_graph *graph;
    rpi_value_id loss;
} rpi_weights_source;

/* Where gradients lie when they are not in memory of the table's own: whoever makes it may have
 * them where others read them, too. */
typedef struct rpi_gradient_memory {
    /* Zeroed, and aligned to RPI_ALIGNMENT. */
    rp_status (*take)(void *context, size_t bytes, void **out_memory);
    void (*give)(void *memory); /* when the table is destroyed; NULL is fine */
    void *context;              /* of take() */
} rpi_gradient_memory;

/* Zeroed arenas for the parameters and states of all graphs; those of one name are one, and
 * later graphs append what is new. The graphs may go before the table does. RP_INVALID names
 * both shapes of a name that means two things. */
rp_status rpi_weights_create_shared(const rpi_weights_source *sources, int count,
                                    rpi_weights **out_weights);
/* The same of one graph. */
rp_status rpi_weights_create(const rpi_graph *graph, rpi_value_id loss,
                             rpi_weights **out_weights);
/* The same, with gradients in such memory. */
rp_status rpi_weights_create_with(const rpi_graph *graph, rpi_value_id loss,
                                  const rpi_gradient_memory *memory, rpi_weights **out_weights);
/* The same without elements: for programs that are compiled to be counted, and never run. */
rp_status rpi_weights_create_table(const rpi_graph *graph, rpi_value_id loss,
                                   rpi_weights **out_weights);
void rpi_weights_destroy(rpi_weights *weights);

int rpi_weights_parameter_count(const rpi_weights *weights); /* tensors */
int rpi_weights_state_count(const rpi_weights *weights);
/* The i-th in the order of the arena. */
const rpi_weight *rpi_weights_parameter(const rpi_weights *weights, int index);
const rpi_weight *rpi_weights_state(const rpi_weights *weights, int index);
/* NULL when there is no parameter or state of this name. */
const rpi_weight *rpi_weights_find(const rpi_weights *weights, const char *name);
/* What a parameter or state of `graph` is here, by its name. RP_NOT_FOUND: no such name;
 * RP_INVALID names both when kinds or shapes differ. */
rp_status rpi_weights_match(const rpi_weights *weights, const rpi_graph *graph,
                            rpi_value_id value, const rpi_weight **out_weight);

int64_t rpi_weights_count(const rpi_weights *weights); /* elements of all parameters */
int64_t rpi_weights_states_count(const rpi_weights *weights);
float *rpi_weights_values(rpi_weights *weights);
float *rpi_weights_gradients(rpi_weights *weights);
float *rpi_weights_states(rpi_weights *weights);

/* Tell that parameter values in [first, first + count) were written, so that backends renew
 * packed copies. Call it after every write, before the next use: also between two uses in one
 * run, as an external node may write what it has gathered. */
void rpi_weights_changed(rpi_weights *weights, int64_t first, int64_t count);
/* Of the index-th parameter: changes whenever it was written; starts at 1. */
uint64_t rpi_weights_version(const rpi_weights *weights, int index);

#endif
