/* The graph: values and the nodes that make them, in the order in which they were added.
 *
 * A model is a function that adds nodes, once; programs (program.h) are compiled from the graph
 * for training, for evaluation and for each batch size. Model authors use layers.h; this is the
 * structure underneath.
 *
 * Additions need no check of their own: the first failure stays in the graph, later additions
 * do nothing and return RPI_NO_VALUE, and rpi_graph_check() returns the failure. One thread at
 * a time; a graph that is no longer added to may be read by any number of threads. */
#ifndef RPI_ENGINE_GRAPH_H
#define RPI_ENGINE_GRAPH_H

#include "base/tensor.h"
#include "engine/dimension.h"
#include "engine/op.h"

#include <stdbool.h>

typedef struct rpi_graph rpi_graph;

/* A value is named by its index in the graph. */
typedef int rpi_value_id;
enum { RPI_NO_VALUE = -1 };

typedef enum rpi_value_kind {
    RPI_VALUE_INPUT,      /* given to each run by the caller */
    RPI_VALUE_PARAMETER,  /* f32, has a gradient, lives in the arenas of rpi_weights */
    RPI_VALUE_STATE,      /* f32, outlives runs, no gradient: running statistics */
    RPI_VALUE_ACTIVATION, /* made by a node */
} rpi_value_kind;

typedef struct rpi_value {
    const char *name; /* the model's name for it, or that of its node */
    rpi_value_kind kind;
    rp_dtype dtype;
    rpi_shape shape; /* may hold named dimensions */
    int index;    /* among the values of its kind; for activations, among its node's outputs */
    int producer; /* node that makes it; -1 for all but activations */
} rpi_value;

typedef struct rpi_node {
    const char *name;
    const rpi_op *op;
    const void *attributes; /* op->attribute_bytes of them, owned by the graph */
    int input_count, output_count;
    rpi_value_id inputs[RPI_NODE_INPUTS];
    rpi_value_id outputs[RPI_NODE_OUTPUTS];
} rpi_node;

rp_status rpi_graph_create(rpi_graph **out_graph);
void rpi_graph_destroy(rpi_graph *graph);

/* RP_OK, or the first failure of an addition, recorded again for this thread. Messages name the
 * node: "node 'layer1.conv1' (conv2d): weight 8x3x3x3 takes 3 channels, input has 4". */
rp_status rpi_graph_check(const rpi_graph *graph);

/* The dimension of this name, for the shapes of inputs ("batch", which counts samples,
 * "sequence"): a program binds it to a number (rpi_program_options.dimensions). The same name
 * gives the same dimension. */
int64_t rpi_graph_dimension(rpi_graph *graph, const char *name);
int rpi_graph_dimension_count(const rpi_graph *graph);
const char *rpi_graph_dimension_name(const rpi_graph *graph, int index);

/* Names are copied, are not empty, and are unique among parameters and states, among inputs,
 * and among nodes. */
rpi_value_id rpi_graph_input(rpi_graph *graph, const char *name, rp_dtype dtype,
                             rpi_shape shape);
rpi_value_id rpi_graph_parameter(rpi_graph *graph, const char *name, rpi_shape shape);
rpi_value_id rpi_graph_state(rpi_graph *graph, const char *name, rpi_shape shape);

/* Add a node. `attributes` (op->attribute_bytes, copied; NULL where the op has none) and the
 * inputs are checked against the op's contract; trailing inputs that are RPI_NO_VALUE are
 * absent optional ones. Returns its first output. */
rpi_value_id rpi_graph_add(rpi_graph *graph, const char *name, const rpi_op *op,
                           const void *attributes, int input_count, const rpi_value_id *inputs);

/* Records a failure of the model itself in the graph ("resnet20 wants 3 x 32 x 32 images"). */
void rpi_graph_fail(rpi_graph *graph, rp_status status, const char *format, ...)
    RP_PRINTF(3, 4);

/* Further outputs of the node that makes `value`: 0 is its first. */
rpi_value_id rpi_graph_output(const rpi_graph *graph, rpi_value_id value, int index);

int rpi_graph_value_count(const rpi_graph *graph);
int rpi_graph_node_count(const rpi_graph *graph);
/* The number of values of a kind, and the id of the i-th of them. */
int rpi_graph_kind_count(const rpi_graph *graph, rpi_value_kind kind);
rpi_value_id rpi_graph_kind_at(const rpi_graph *graph, rpi_value_kind kind, int index);
/* Borrowed until the graph is added to or destroyed. Ids must be valid. */
const rpi_value *rpi_graph_value(const rpi_graph *graph, rpi_value_id id);
const rpi_node *rpi_graph_node(const rpi_graph *graph, int index);
/* By name, RPI_NO_VALUE when there is none such. */
rpi_value_id rpi_graph_find(const rpi_graph *graph, rpi_value_kind kind, const char *name);

#endif
