/* Batch normalisation of images whose channels lie in blocks of 16, with relu or without, and
 * with an image that is added in front of the relu or without.
 *
 * An image is blocks x pixels x 16; row n * blocks + b of a matrix here is what block b of
 * image n has, pixels * 16 elements. Channel c has N = images * pixels elements x: mean = sum x
 * / N, variance = sum (x - mean)^2 / N, z = (x - mean) / sqrt(variance + epsilon), y = scale z
 * + shift [+ addend], or max(0, that). With g = dy, or 0 where relu is closed (scale z + shift
 * <= 0, or with an addend y <= 0): dshift = sum g, dscale = sum g z, dx = scale / sqrt(variance
 * + epsilon) (g - (dshift + z dscale) / N), and g is the addend's gradient.
 * Matrices are f32 or bf16, each for itself; sums and statistics are f32. */
#ifndef RPI_ENGINE_KERNEL_BATCH_NORM_H
#define RPI_ENGINE_KERNEL_BATCH_NORM_H

#include "engine/backends/cpu/kernels/kernel.h"

enum { RPI_BATCH_NORM_BLOCK = 16 };

typedef struct rpi_kernel_batch_norm {
    int64_t images, blocks, pixels;
    bool relu;
    float epsilon;
    const float *scale, *shift; /* [blocks * 16], and so are the others */
    float *mean, *variance;     /* forward writes, backward reads */
    rpi_kernel_rows x;
    bool adds;              /* is there an addend? */
    rpi_kernel_rows addend; /* forward */
    rpi_kernel_rows y;      /* forward writes; backward reads, with an addend and relu */
    /* Backward. daddend may be NULL, where it is not wanted. One of dx and daddend may be dy:
     * dx only where daddend is NULL. */
    rpi_kernel_rows dy, dx, daddend;
    float *dscale, *dshift; /* overwritten */
} rpi_kernel_batch_norm;

void rpi_kernel_batch_norm_forward(const rpi_kernel_run *run, const rpi_kernel_batch_norm *it);
void rpi_kernel_batch_norm_backward(const rpi_kernel_run *run, const rpi_kernel_batch_norm *it);

/* ---- inside ---- */

RPI_KERNEL_DECLARE(batch_norm_forward);
RPI_KERNEL_DECLARE(batch_norm_backward);

#endif
