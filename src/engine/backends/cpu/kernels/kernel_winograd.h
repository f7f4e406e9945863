/* Convolutions with a window of 3 x 3 and stride 1, in f32, by Winograd's F(4x4, 3x3): tiles of
 * 4 x 4 outputs take 36 products of channels where direct sums take 144.
 *
 *     y = A^T ((G g G^T) * (B^T d B)) A          d: 6 x 6 inputs of a tile, g: 3 x 3 weights
 *
 * summed over channels before A: 36 matrix products, tiles x channels by channels x filters.
 * Images lie in blocks of 16 channels: [images, channels / 16, height, width, 16]; channels and
 * filters are multiples of 16. What lies outside of an image counts as zeros.
 *
 * Errors have a deviation of some 2e-6 of a sum's own, ten times that of direct sums. Infinity
 * becomes NaN all over the tiles that see it. Tiles are taken some at a time, by the shape
 * alone: the bits depend neither on threads nor on the instruction set.
 *
 * Lavin, Gray, "Fast algorithms for convolutional neural networks", CVPR 2016. */
#ifndef RPI_ENGINE_KERNEL_WINOGRAD_H
#define RPI_ENGINE_KERNEL_WINOGRAD_H

#include "engine/backends/cpu/kernels/kernel.h"

#include <stddef.h>

/* Of x [images, channels, height, width] and y [images, filters, rows, cols], where rows is
 * height + 2 padding - 2 and cols alike; padding is 0, 1 or 2. */
typedef struct rpi_winograd_shape {
    int64_t images, channels, filters, height, width, padding;
} rpi_winograd_shape;

/* y = or += x convolved with the weight, + bias. */
typedef struct rpi_kernel_winograd {
    rpi_winograd_shape shape;
    const float *x, *weight; /* [filters, channels, 3, 3] */
    /* The weight is [channels, filters, 3, 3], turned by half a turn: with a padding of 2 less
     * that of the convolution this is the gradient of its input, x being that of its output. */
    bool turned;
    const float *bias; /* [filters] or NULL */
    float *y;
    bool accumulate;
    float *workspace; /* rpi_kernel_winograd_workspace() bytes, aligned to RPI_ALIGNMENT */
} rpi_kernel_winograd;

void rpi_kernel_winograd_run(const rpi_kernel_run *run, const rpi_kernel_winograd *it);

/* dw = or += the gradient of the weight [filters, channels, 3, 3] by that of y. */
typedef struct rpi_kernel_winograd_weight {
    rpi_winograd_shape shape;
    const float *x, *dy;
    float *dw;
    bool accumulate;
    float *workspace;
} rpi_kernel_winograd_weight;

void rpi_kernel_winograd_weight_run(const rpi_kernel_run *run,
                                    const rpi_kernel_winograd_weight *it);

size_t rpi_kernel_winograd_workspace(const rpi_winograd_shape *shape); /* enough for both */

/* ---- inside ---- */

enum {
    RPI_WINOGRAD_BLOCK = 16, /* channels */
    RPI_WINOGRAD_TILE = 4,   /* outputs along a side, */
    RPI_WINOGRAD_SIDE = 6,   /* inputs, */
    RPI_WINOGRAD_POINTS = 36,
    RPI_WINOGRAD_PANEL = 32, /* columns of a matrix that lie together */
    RPI_WINOGRAD_PAD = 16    /* behind rows and matrices, so that they share no cache sets */
};

/* What the bodies of a call see. Matrices of all 36 points, `step` floats from one to the next:
 * inputs [tiles, channels], outputs [tiles, filters], whose rows are `row` floats apart,
 * weights in panels of 32 filters [channels, 32], the last of a shape's narrower. Tiles or
 * panels are taken some at a time, never both. */
typedef struct rpi_winograd_call {
    const rpi_kernel_winograd *it; /* one of the two */
    const rpi_kernel_winograd_weight *of_weight;
    rpi_winograd_shape shape;
    int64_t rows, cols, down, across; /* of y, and its tiles in an image */
    int64_t first, tiles, most;       /* of the tiles at hand; the most at a time */
    int64_t first_panel, panels, most_panels;
    float *inputs, *outputs, *weights;
    int64_t input_row, output_row, input_step, output_step, weight_step;
} rpi_winograd_call;

RPI_KERNEL_DECLARE(winograd_weights);   /* units: panels x blocks of channels */
RPI_KERNEL_DECLARE(winograd_inputs);    /* tiles */
RPI_KERNEL_DECLARE(winograd_multiply);  /* points x panels of filters */
RPI_KERNEL_DECLARE(winograd_outputs);   /* tiles */
RPI_KERNEL_DECLARE(winograd_gradients); /* tiles: inputs and gradients of outputs */
RPI_KERNEL_DECLARE(winograd_sum);       /* points x panels */
RPI_KERNEL_DECLARE(winograd_deliver);   /* panels x blocks of channels */

#endif
