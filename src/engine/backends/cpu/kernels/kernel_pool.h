/* Max pooling over planes of pixels that have `block` channels each; row-major is blocks of one
 * channel.
 *
 * y[i,j] = max over r,s of x[i * stride - padding + r, j * stride - padding + s], of each
 * channel and of the taps (r, s) that lie inside the plane. It is the first largest element in
 * the order of taps; a NaN counts as the largest. The element is copied to y bit for bit, and
 * `where` says which it was: tap r * side + s. */
#ifndef RPI_ENGINE_KERNEL_POOL_H
#define RPI_ENGINE_KERNEL_POOL_H

#include "engine/backends/cpu/kernels/kernel.h"

enum { RPI_MAX_POOL_SIDE = 16 }; /* so that a tap's number fits a byte */

typedef struct rpi_kernel_max_pool {
    int64_t planes, block;
    int64_t height, width, out_height, out_width;
    int side, stride, padding; /* side at most RPI_MAX_POOL_SIDE, padding at most half of it */
    rpi_kernel_rows x;         /* a row is a plane: height x width x block */
    rpi_kernel_rows y;         /* out_height x out_width x block; bf16 only where x is */
    uint8_t *where;            /* [planes, out_height, out_width, block], or NULL */
} rpi_kernel_max_pool;

/* Vector forms are for blocks of 8 and 16; others take the definition. */
void rpi_kernel_max_pool_forward(const rpi_kernel_run *run, const rpi_kernel_max_pool *it);

/* ---- inside ---- */

/* Of a window that starts at `start`, taps [first, end) lie in [0, size), in one direction. */
typedef struct rpi_pool_taps {
    int first, end;
} rpi_pool_taps;

static inline rpi_pool_taps rpi_pool_taps_of(const rpi_kernel_max_pool *it, int64_t start,
                                             int64_t size) {
    return (rpi_pool_taps){start < 0 ? (int)-start : 0,
                           size - start < it->side ? (int)(size - start) : it->side};
}

RPI_KERNEL_DECLARE(max_pool);

#endif
