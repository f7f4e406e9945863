/* Parameters, their gradients and states: a table of the model's own, by name.
 *
 * It is made from graphs and independent of them: a program binds its graph's parameters and
 * states by name (rpi_weights_match), so that graphs of other lengths, batch sizes or tasks
 * share one model.
 *
 * Values and gradients are one contiguous range of f32 each, row-major and unpadded, in the
 * order in which gradients become final in a backward pass (the last layer first). So a bucket
 * of gradients is a range, and an optimizer runs over ranges. Parameters that the loss does not
 * depend on come last; their gradients stay 0.
 *
 * A program addresses each parameter by its index, and asks the table at every step where it
 * lies: in the arena, or wherever rpi_weights_place_values() and its like have put it. */
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
    /* A part of the graph, by the values that are given to it and the seeds of its gradients
     * (rpi_program_options): it has its own parameters and states alone. Neither: the whole
     * graph's, those that nothing reads included. Borrowed for the call. */
    int given_count, seed_count;
    const rpi_value_id *given, *seeds;
} rpi_weights_source;

/* Memory of an arena: whoever makes a table may have values or gradients where others read
 * them, too. */
typedef struct rpi_arena_memory {
    /* Zeroed, and aligned to RPI_ALIGNMENT. */
    rp_status (*take)(void *context, size_t bytes, const char *what, void **out_memory);
    void (*give)(void *memory); /* when the table is destroyed; NULL is fine */
    void *context;              /* of take() */
} rpi_arena_memory;

extern const rpi_arena_memory rpi_arena_memory_own; /* the table's */

/* Memory of both arenas. NULL: there is no such arena. */
typedef struct rpi_weights_memory {
    const rpi_arena_memory *values, *gradients;
} rpi_weights_memory;

/* Zeroed arenas for the parameters and states of all graphs; those of one name are one, and
 * later graphs append what is new. The graphs may go before the table does. RP_INVALID names
 * both shapes of a name that means two things. */
rp_status rpi_weights_create_shared(const rpi_weights_source *sources, int count,
                                    rpi_weights **out_weights);
/* The same of one graph. */
rp_status rpi_weights_create(const rpi_graph *graph, rpi_value_id loss,
                             rpi_weights **out_weights);
/* The same, with arenas in such memory: what has no arena lies nowhere until it is placed. */
rp_status rpi_weights_create_with(const rpi_weights_source *sources, int count,
                                  const rpi_weights_memory *memory, rpi_weights **out_weights);
/* The same without elements, of states neither: for programs that are compiled to be counted,
 * and for those whose parameters are placed by the caller before they run. */
rp_status rpi_weights_create_table(const rpi_graph *graph, rpi_value_id loss,
                                   rpi_weights **out_weights);
rp_status rpi_weights_create_shared_table(const rpi_weights_source *sources, int count,
                                          rpi_weights **out_weights);
void rpi_weights_destroy(rpi_weights *weights);

/* An arena of values, zeroed, for as long as all of them are wanted in one, and away with it.
 * Nothing happens where one is there, or none. RP_NOMEM. */
rp_status rpi_weights_open_values(rpi_weights *weights);
void rpi_weights_close_values(rpi_weights *weights);

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
/* The arenas; NULL where the table has none. */
float *rpi_weights_values(rpi_weights *weights);
float *rpi_weights_gradients(rpi_weights *weights);
float *rpi_weights_states(rpi_weights *weights);

/* Where the elements of the index-th parameter or state lie now; NULL: nowhere. */
float *rpi_weights_value_at(const rpi_weights *weights, int index);
float *rpi_weights_gradient_at(const rpi_weights *weights, int index);
float *rpi_weights_state_at(const rpi_weights *weights, int index);
/* Have them lie in memory of the caller's from now on, aligned to its elements and borrowed
 * until it is placed elsewhere; NULL: where they began, in the arena if there is one. Elements
 * are not copied. Any time but while a step reads or writes them; values that are new are told
 * with rpi_weights_changed(). */
void rpi_weights_place_values(rpi_weights *weights, int index, float *values);
void rpi_weights_place_gradient(rpi_weights *weights, int index, float *gradient);
void rpi_weights_place_state(rpi_weights *weights, int index, float *values);

/* Tell that parameter values in [first, first + count) were written, so that backends renew
 * packed copies. Call it after every write, before the next use: also between two uses in one
 * run, as an external node may write what it has gathered. */
void rpi_weights_changed(rpi_weights *weights, int64_t first, int64_t count);
/* Of the index-th parameter: changes whenever it was written; starts at 1. */
uint64_t rpi_weights_version(const rpi_weights *weights, int index);

#endif
