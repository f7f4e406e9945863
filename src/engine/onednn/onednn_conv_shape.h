/* How a convolution is put to oneDNN: its layouts, and the channels it is said to have. */
#ifndef RPI_ENGINE_ONEDNN_CONV_SHAPE_H
#define RPI_ENGINE_ONEDNN_CONV_SHAPE_H

#include "engine/onednn/onednn_algorithm.h"
#include "engine/onednn/onednn_session.h"

/* Of an output, for which oneDNN's kernels for AMX are quick. */
enum { RPI_DNN_SHORTEST_ROW = 7 };

typedef struct rpi_dnn_conv_shape {
    rpi_dnn_geometry geometry; /* but for the direction */
    rp_dtype compute;
    /* Layouts: in which the input comes in where it is an activation, in which the primitives
     * read it, and in which they make the output. */
    int outer, inner, made;
    int output; /* RPI_DNN_HALF where the output is kept so, else RPI_DNN_BLOCKED */
    /* What the parameters have; where the geometry counts more, the convolution is widened:
     * the channels that pad a block are taken for channels, whose weights must be zero. */
    int64_t channels, filters;
} rpi_dnn_conv_shape;

/* Of the tensors: outside of the kernel, and as the primitives take them. The latter count the
 * channels that pad a block as channels where the convolution is widened. */
typedef struct rpi_dnn_conv_layouts {
    rpi_dnn_md outer_input;      /* as it lies: row-major for graph inputs and parameters */
    rpi_dnn_md outer_grad_input; /* lies as the input does */
    rpi_dnn_md input;            /* blocked, or row-major where there are few channels */
    rpi_dnn_md outer_output;     /* as it lies outside */
    rpi_dnn_md outer_grad, grad; /* of the output: as it lies, and as the primitives read it */
    /* What primitives read, in what the unit computes in; any: they choose the packing. */
    rpi_dnn_md source, any_weight, grad_destination;
    /* What they make, of f32 where it is not handed on in bf16; weight: as the parameter lies,
     * widened where it is. */
    rpi_dnn_md destination, grad_source, any_grad_weight, weight, bias;
} rpi_dnn_conv_layouts;

/* As the unit says it, but for the direction. */
rpi_dnn_geometry rpi_dnn_conv_geometry(const rpi_dnn_session *session, const rpi_unit *unit);
/* What oneDNN has kernels for in every direction that the unit wants, if there is such. */
rp_status rpi_dnn_conv_shape_choose(const rpi_dnn_session *session, const rpi_unit *unit,
                                    rpi_dnn_conv_shape *out_shape);
/* Is the output handed on in RPI_DNN_HALF? */
bool rpi_dnn_conv_makes_half(const rpi_dnn_session *session, const rpi_unit *unit);
/* How the input comes in where `wanted` was asked for: RPI_DNN_HALF if it lies so. */
int rpi_dnn_conv_input_layout(const rpi_unit *unit, int wanted);
bool rpi_dnn_conv_wants(const rpi_unit *unit, rpi_dnn_direction direction);

/* On failure what was made is in *out_layouts all the same. */
rp_status rpi_dnn_conv_layouts_make(const rpi_dnn_session *session, const rpi_unit *unit,
                                    const rpi_dnn_conv_shape *shape,
                                    rpi_dnn_conv_layouts *out_layouts);
void rpi_dnn_conv_layouts_destroy(rpi_dnn_conv_layouts *layouts); /* zeros are fine */
/* The convolution in each direction, which borrows the layouts. */
typedef struct rpi_dnn_convs {
    rpi_dnn_conv of[RPI_DNN_DIRECTIONS];
} rpi_dnn_convs;
void rpi_dnn_conv_of(const rpi_dnn_conv_shape *shape, const rpi_dnn_conv_layouts *layouts,
                     rpi_dnn_convs *out_convs);

/* onednn_conv_bias.c */

/* sums [filters] = or += those of dy over images and pixels, in double: the bias's gradient of
 * a convolution, as they are handed on. dy lies in blocks of `block` channels, 16 at most. */
void rpi_dnn_conv_sum_bias(rpi_kernel_rows dy, int64_t images, int64_t filters, int64_t pixels,
                           int64_t block, bool accumulate, float *sums);

#endif
