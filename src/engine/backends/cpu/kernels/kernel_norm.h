/* Layer normalisation and root-mean-square normalisation over rows, optionally of a residual
 * sum.
 *
 * Shapes: matrices [rows, cols], f32 or bf16; gamma, beta, their gradients [cols] f32; mean and
 * inverse deviation [rows] f32. Statistics are f32, the variance in a second pass over the row.
 *
 *   h = x + residual            (written to `sum`, rounded to its dtype; without one, h = x)
 *   layer: y = (h - mean) r gamma + beta, r = 1 / sqrt(variance + epsilon), variance over n
 *   rms:   y = h r gamma,                 r = 1 / sqrt(mean of h^2 + epsilon)
 *
 * Backward, with g = dy gamma and n = (h - mean) r (rms: h r):
 *   inputs:  dx = r (g - mean(g) - n mean(g n)) + dsum   (rms: without mean(g))
 *            which is the gradient of the residual too
 *   weights: dgamma = sum over rows of dy n, dbeta = sum over rows of dy
 *
 * Ba, Kiros, Hinton, "Layer normalization", 2016. Zhang, Sennrich, "Root mean square layer
 * normalization", NeurIPS 2019. */
#ifndef RPI_ENGINE_KERNEL_NORM_H
#define RPI_ENGINE_KERNEL_NORM_H

#include "engine/backends/cpu/kernels/kernel.h"

typedef struct rpi_kernel_norm {
    bool rms;
    int64_t rows, cols;
    float epsilon;
    const float *gamma; /* NULL: ones */
    const float *beta;  /* NULL: zeros; not used by rms */

    /* Forward. y may be x or sum. */
    rpi_kernel_rows x;
    rpi_kernel_rows residual; /* without data: none */
    rpi_kernel_rows sum;      /* out, h; needed with a residual; may be x or residual */
    rpi_kernel_rows y;
    float *mean;    /* out; not touched by rms; NULL: not wanted */
    float *inverse; /* out, r; NULL: not wanted */

    /* Backward reads h, mean, inverse and dy; h is x, or sum where there was a residual. */
    rpi_kernel_rows h, dy;
    rpi_kernel_rows dsum;  /* what else flows into h; without data: nothing; may be dx */
    rpi_kernel_rows dx;    /* may be dy */
    float *dgamma, *dbeta; /* NULL: not wanted */
    bool accumulate;       /* add to what dgamma and dbeta hold */
} rpi_kernel_norm;

void rpi_kernel_norm_forward(const rpi_kernel_run *run, const rpi_kernel_norm *it);
void rpi_kernel_norm_backward_inputs(const rpi_kernel_run *run, const rpi_kernel_norm *it);
/* Cut over threads by columns; sums in blocks of 64 rows, in order. */
void rpi_kernel_norm_backward_weights(const rpi_kernel_run *run, const rpi_kernel_norm *it);

/* ---- inside ---- */

enum { RPI_KERNEL_NORM_ROWS = 64 };

RPI_KERNEL_DECLARE(norm_forward);
RPI_KERNEL_DECLARE(norm_backward_inputs);
RPI_KERNEL_DECLARE(norm_backward_weights);

#endif
