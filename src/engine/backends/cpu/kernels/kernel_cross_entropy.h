/* Softmax cross-entropy over rows of logits, forward and backward in one call; meant for large
 * vocabularies, chunk of rows by chunk, so that not all logits of a batch exist at once.
 *
 * Shapes: logits [rows, classes] f32 or bf16; labels [rows]. With p = softmax(logits), l the
 * label and s the smoothing,
 *   q = (1 - s) [j = l] + s / classes
 *   loss = -sum_j q_j log p_j,   dlogits = scale (p - q)
 * `scale` is the caller's: 1 / valid tokens of the whole step. Rows with the ignored label have
 * loss 0 and gradient 0. Logits of -infinity are classes that cannot be; NaN and +infinity make
 * the row NaN.
 *
 * Szegedy et al., "Rethinking the Inception architecture", CVPR 2016, for the smoothing. */
#ifndef RPI_ENGINE_KERNEL_CROSS_ENTROPY_H
#define RPI_ENGINE_KERNEL_CROSS_ENTROPY_H

#include "engine/backends/cpu/kernels/kernel.h"

typedef struct rpi_kernel_cross_entropy {
    int64_t rows, classes;
    rpi_kernel_rows logits;
    const int32_t *labels;
    int32_t ignored;  /* a label that counts for nothing, -100 in PyTorch */
    float smoothing;  /* 0 to 1 */
    float scale;      /* of the gradient alone */
    float *losses;    /* [rows], out; without scale */
    uint8_t *correct; /* [rows], out: 1 where the label is the first of the largest logits */
    /* Out; without data: forward alone. May be logits: then nothing but their memory is used.
     */
    rpi_kernel_rows dlogits;
} rpi_kernel_cross_entropy;

/* Sums over the rows, in their order. */
typedef struct rpi_cross_entropy_totals {
    double loss;            /* without scale */
    int64_t valid, correct; /* rows that are not ignored; those of them that are right,
                               among which is none whose loss is NaN */
    int64_t bad_row;        /* the first whose label is neither ignored nor a class; -1: none.
                               Such a row has loss NaN and gradient 0. */
} rpi_cross_entropy_totals;

rpi_cross_entropy_totals rpi_kernel_cross_entropy_run(const rpi_kernel_run *run,
                                                      const rpi_kernel_cross_entropy *it);

/* ---- inside ---- */

RPI_KERNEL_DECLARE(cross_entropy);

#endif
