/* One op on one of its examples, as a graph that can be run on any backend: every input with a
 * gradient is a parameter, so that its gradient can be read, and the loss is the dot product of
 * output 0 with fixed coefficients. */
#ifndef OP_FIXTURE_H
#define OP_FIXTURE_H

#include "solo.h"

/* SHAPE(2, 3): 2 x 3 */
#define SHAPE(...)                                                                             \
    ((rpi_shape){.dims = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                   \
                 .size = {__VA_ARGS__}})

typedef struct op_fixture {
    rpi_graph *graph;
    rpi_weights *weights;
    const rpi_op *op;
    const rpi_op_example *example;
    rp_dtype compute; /* of programs; 0 to begin with: RP_F32 */
    rpi_value_id inputs[RPI_NODE_INPUTS];
    rpi_value_id outputs[RPI_NODE_OUTPUTS];
    rpi_value_id loss;
    void *input_data[RPI_NODE_INPUTS]; /* of graph inputs, in order */
    float *coefficients;               /* one an element of output 0 */
} op_fixture;

/* Drawn from `seed`: the same seed gives the same bytes. */
rp_status op_fixture_open(const rpi_op *op, const rpi_op_example *example, uint64_t seed,
                          op_fixture *out_fixture);
void op_fixture_close(op_fixture *fixture);
/* To a fixture that holds a graph of the caller's: the loss over `output`, its coefficients,
 * all zero, and the weights. */
rp_status op_fixture_add_loss(op_fixture *fixture, rpi_value_id output);

/* What input `index` is among the weights; NULL: it is an input of the graph. */
const rpi_weight *op_fixture_weight(const op_fixture *fixture, int index);

/* An instance of a program whose results are all outputs. */
rp_status op_fixture_compile(const op_fixture *fixture, const rpi_backend *backend,
                             bool training, rpi_instance **out_instance);
rp_status op_fixture_run(const op_fixture *fixture, rpi_instance *instance, bool accumulate);

/* The dot product of output 0 with the coefficients, in double, after a run. */
double op_fixture_loss(const op_fixture *fixture, const rpi_instance *instance);

/* |a - b| / |b| in the 2-norm, sums in double; 0 for two zeros. */
double relative_l2(const float *a, const float *b, int64_t count);

#endif
