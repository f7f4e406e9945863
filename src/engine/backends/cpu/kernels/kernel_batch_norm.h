/* Batch normalisation of images whose channels lie in blocks of 16, with relu or without.
 *
 * An image is blocks x pixels x 16; row n * blocks + b of a matrix here is what block b of
 * image n has, pixels * 16 elements. Channel c has N = images * pixels elements x: mean = sum x
 * / N, variance = sum (x - mean)^2 / N, z = (x - mean) / sqrt(variance + epsilon), y = scale z
 * + shift, or max(0, that). With dy 0 where relu is closed (scale z + shift <= 0): dshift = sum
 * dy, dscale = sum dy z, dx = scale / sqrt(variance + epsilon) (dy - (dshift + z dscale) / N).
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
    rpi_kernel_rows y;      /* forward */
    rpi_kernel_rows dy, dx; /* backward; dx may be dy */
    float *dscale, *dshift; /* overwritten */
} rpi_kernel_batch_norm;

void rpi_kernel_batch_norm_forward(const rpi_kernel_run *run, const rpi_kernel_batch_norm *it);
void rpi_kernel_batch_norm_backward(const rpi_kernel_run *run, const rpi_kernel_batch_norm *it);

/* ---- inside ---- */

RPI_KERNEL_DECLARE(batch_norm_forward);
RPI_KERNEL_DECLARE(batch_norm_backward);

#endif
