/* Group normalisation of images (Wu, He 2018), with relu or without, and with an image that is
 * added in front of the relu or without.
 *
 * An image is blocks x pixels x block: `block` channels lie together, pixel after pixel, and
 * zeros pad the last block; row-major is blocks of one channel. Row n * blocks + b of a matrix
 * here is what block b of image n has, pixels * block elements. Channel c is of group
 * c / (channels / groups). A group of an image has M = pixels * channels / groups elements x:
 * mean = sum x / M, variance = sum (x - mean)^2 / M, inverse = 1 / sqrt(variance + epsilon),
 * z = (x - mean) inverse, y = scale[c] z + shift[c] [+ addend], or max(0, that). With g = dy,
 * or 0 where relu is closed (scale z + shift <= 0, or with an addend y <= 0): dshift[c] = sum g
 * and dscale[c] = sum g z over images and pixels,
 * dx = inverse (scale g - (sum scale g + z sum scale g z) / M) with sums over the group, and g
 * is the addend's gradient.
 * Matrices are f32, or in blocks of 16 without padding bf16, each for itself; sums and
 * statistics are f32. */
#ifndef RPI_ENGINE_KERNEL_GROUP_NORM_H
#define RPI_ENGINE_KERNEL_GROUP_NORM_H

#include "engine/backends/cpu/kernels/kernel.h"

typedef struct rpi_kernel_group_norm {
    int64_t images, channels, pixels, groups, block; /* block: 1, 8 or 16 */
    bool relu;
    float epsilon;
    const float *scale, *shift; /* [channels] */
    float *mean, *inverse;      /* [images * groups]; forward writes, backward reads */
    float *room;                /* rpi_group_norm_room() floats, whose contents are lost */
    rpi_kernel_rows x;
    bool adds;              /* is there an addend? */
    rpi_kernel_rows addend; /* forward */
    rpi_kernel_rows y; /* forward writes, over the addend if need be; backward reads, with an
                          addend and relu */
    /* Backward. dx and daddend may be NULL, where they are not wanted. One of them may be dy:
     * dx only where daddend is NULL. */
    rpi_kernel_rows dy, dx, daddend;
    float *dscale, *dshift;              /* [channels]; NULL where not wanted */
    bool sums_to_dscale, sums_to_dshift; /* are they added to, or overwritten? */
} rpi_kernel_group_norm;

void rpi_kernel_group_norm_forward(const rpi_kernel_run *run, const rpi_kernel_group_norm *it);
void rpi_kernel_group_norm_backward(const rpi_kernel_run *run, const rpi_kernel_group_norm *it);

/* ---- inside ---- */

RPI_KERNEL_DECLARE(group_norm_forward);
RPI_KERNEL_DECLARE(group_norm_backward);
RPI_KERNEL_DECLARE(group_norm_weights);

static inline int64_t rpi_group_norm_blocks(const rpi_kernel_group_norm *it) {
    return (it->channels + it->block - 1) / it->block;
}

/* How many blocks hold whole groups. */
static inline int64_t rpi_group_norm_span(const rpi_kernel_group_norm *it) {
    const int64_t size = it->channels / it->groups;
    if (size % it->block == 0) return size / it->block;
    return it->block % size == 0 ? 1 : rpi_group_norm_blocks(it);
}

/* A unit of work: blocks of an image that hold whole groups, and these groups. */
typedef struct rpi_group_norm_part {
    int64_t image, first_block, end_block, first_group, end_group;
} rpi_group_norm_part;

static inline rpi_group_norm_part rpi_group_norm_part_at(const rpi_kernel_group_norm *it,
                                                         int64_t unit) {
    const int64_t size = it->channels / it->groups, span = rpi_group_norm_span(it);
    const int64_t parts = rpi_group_norm_blocks(it) / span;
    const int64_t first = unit % parts * span, end = first + span;
    const int64_t end_channel = end * it->block < it->channels ? end * it->block : it->channels;
    return (rpi_group_norm_part){unit / parts, first, end, first * it->block / size,
                                 end_channel / size};
}

/* In the room: a sum of each channel in each image, another one, and backward two numbers of
 * each group in each image. */
typedef struct rpi_group_norm_sums {
    float *first, *second;           /* [channels], of an image */
    float *first_rest, *second_rest; /* [groups], of an image */
} rpi_group_norm_sums;

static inline rpi_group_norm_sums rpi_group_norm_sums_of(const rpi_kernel_group_norm *it,
                                                         int64_t image) {
    const int64_t channels = it->images * it->channels, groups = it->images * it->groups;
    float *first = it->room + image * it->channels;
    float *rest = it->room + 2 * channels + image * it->groups;
    return (rpi_group_norm_sums){first, first + channels, rest, rest + groups};
}

static inline int64_t rpi_group_norm_room(int64_t images, int64_t channels, int64_t groups) {
    return 2 * images * (channels + groups);
}

#endif
