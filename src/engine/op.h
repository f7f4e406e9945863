/* The contract of an op: what ops.c (the catalogue) lists. A new op is one file in ops/ that
 * exports one `const rpi_op`, one row in ops.c, one word in CMakeLists.txt, and a kernel in
 * each backend that supports it; its examples are then tested against finite differences, and
 * every backend against the reference.
 *
 * An op says what is computed and never how: no kernel here. All functions are pure.
 *
 * NaN and infinity go through every op as its equation in IEEE arithmetic says, forward and
 * backward (layers.h names the cases that a choice decides, and tests/engine/nonfinite_test.c
 * compares backends in them); none takes them for numbers. An algorithm that mixes neighbours,
 * as Winograd's convolution its tiles, may spread them further. */
#ifndef RPI_ENGINE_OP_H
#define RPI_ENGINE_OP_H

#include "base/tensor.h"
#include "engine/token_pieces.h"

#include <stdbool.h>

enum { RPI_NODE_INPUTS = 8, RPI_NODE_OUTPUTS = 4 }; /* most a node has */

/* What an op says of one input. */
typedef struct rpi_op_input {
    const char *name;   /* "weight", for messages */
    rp_dtype dtype;     /* RP_F32, RP_I32 ... */
    unsigned char role; /* RPI_DATA, RPI_WEIGHT, RPI_STATE or RPI_CACHE */
    bool optional;      /* only trailing ones */
    bool has_gradient;  /* backward can make its gradient */
} rpi_op_input;

/* Roles of inputs. */
enum {
    RPI_DATA,   /* anything but a state; a parameter here is treated like an activation */
    RPI_WEIGHT, /* a parameter; its gradient is written, or added, right into the arena */
    RPI_STATE,  /* a state; forward in training rewrites it */
    RPI_CACHE,  /* an input of the graph that forward rewrites: what a run leaves for the next,
                   of this program or another. Of one node, which no gradient goes through;
                   a run repeated with the same inputs must leave the same */
};

typedef struct rpi_op_output {
    const char *name;
    rp_dtype dtype;
} rpi_op_output;

/* Where the gradient of an input comes from; a number from 0 says: equal to that of the input
 * with this index, and written once, there. */
enum {
    RPI_GRADIENT_WRITTEN = -1,   /* the backward kernel writes it */
    RPI_GRADIENT_OF_OUTPUT = -2, /* it is the gradient of output 0, unchanged */
};

/* A small instance, for tests and measurements. Float inputs are drawn so that no kink is near:
 * all elements of a tensor differ by at least 0.02 and stay 0.01 away from 0. */
typedef struct rpi_op_example {
    const char *name;
    const void *attributes;
    int input_count;
    int classes; /* integer inputs are drawn below it */
    rpi_shape inputs[RPI_NODE_INPUTS];
} rpi_op_example;

typedef struct rpi_op {
    const char *name;    /* "conv2d" */
    const char *summary; /* one line: the equation */
    size_t attribute_bytes;
    int input_count, output_count; /* optional inputs included; the most that there are */
    rpi_op_input inputs[RPI_NODE_INPUTS];
    rpi_op_output outputs[RPI_NODE_OUTPUTS];

    /* How many outputs a node has; NULL: output_count. */
    int (*count_outputs)(const void *attributes);

    /* Shapes of all outputs from those of the inputs present. Dimensions may be named: they are
     * copied, compared and multiplied (dimension.h), or refused where a number is needed
     * (rpi_op_check_numbers). RP_INVALID says which shape does not fit, in the names above (the
     * graph puts the node's name in front). Also checks the attributes. */
    rp_status (*infer)(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs);

    /* Optional: what can be said only of numbers, once dimensions are bound; as in infer. */
    rp_status (*check_bound)(const void *attributes, int input_count, const rpi_shape *inputs);

    /* Floating-point operations, a multiply-add being two, for bound shapes. `wanted` is the
     * mask of inputs whose gradients are made. NULL: none to speak of. */
    void (*flops)(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward);

    /* What backward reads besides the gradients of the outputs: masks of inputs and outputs,
     * and bytes that forward saves for it (statistics, indices). These are the defaults; a
     * backend's kernel may need other ones. saved_bytes NULL: nothing. */
    uint32_t needs_inputs, needs_outputs;
    size_t (*saved_bytes)(const void *attributes, const rpi_shape *inputs,
                          const rpi_shape *outputs);
    /* RPI_GRADIENT_OF_OUTPUT or RPI_GRADIENT_WRITTEN for all inputs with gradients. */
    int gradient_from;

    /* Output 0 is input 0's elements under another shape: no kernel, no copy. */
    bool is_view;
    /* Forward may write output 0 over input 0, where nobody else needs that; backward may write
     * the gradient of input 0 over that of output 0. The defaults for kernels. */
    bool in_place_forward, in_place_backward;

    const rpi_op_example *examples;
    int example_count;
} rpi_op;

/* "batch x 3 x 8 x 8" in messages ($0 until the graph puts the name), "a scalar". Returns text.
 */
const char *rpi_op_shape_text(const rpi_shape *shape, char *text, size_t bytes);
/* RP_INVALID, "WHAT is 2; 0 to 1 are allowed", for what is no probability. */
rp_status rpi_op_check_probability(float probability, const char *what);
/* Pieces that there are, in order, of `length` tokens, which may be a named dimension. */
rp_status rpi_op_check_pieces(const rpi_token_pieces *pieces, int64_t length);
/* Fails when an axis from `first` on is named. */
rp_status rpi_op_check_numbers(const rpi_shape *shape, int first, const char *what);
/* Fails where a value is no vector of `count` elements. */
rp_status rpi_op_check_vector(const rpi_shape *shape, int64_t count, const char *what);
/* RP_INVALID: it is another shape; what: of the input, in the message. */
rp_status rpi_op_check_shape(const rpi_shape *shape, const rpi_shape *wanted, const char *what);
/* The shape without leading axes of 1, but with at least `dims` axes. */
rpi_shape rpi_op_drop_ones(const rpi_shape *shape, int dims);
/* The size of the last axis. */
static inline int64_t rpi_op_width(const rpi_shape *shape) {
    return shape->size[shape->dims - 1];
}

/* Does it rewrite a cache? Programs for training have none such. */
bool rpi_op_has_cache(const rpi_op *op);

/* The catalogue; NULL past the end. */
const rpi_op *rpi_op_at(int index);
const rpi_op *rpi_op_find(const char *name); /* NULL when there is none such */

#endif
