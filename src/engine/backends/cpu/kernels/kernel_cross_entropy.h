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

/* ---- of a slice of the classes ---- */

/* What a softmax over all classes needs to know of a slice of them, in each row. */
enum {
    RPI_STATISTICS_LSE,     /* log of the sum of exponentials; -infinity where there is none */
    RPI_STATISTICS_LABEL,   /* the label's logit where it is in the slice, else 0 */
    RPI_STATISTICS_SUM,     /* of the logits */
    RPI_STATISTICS_LARGEST, /* the first of the largest logits, */
    RPI_STATISTICS_INDEX,   /* and its class */
    RPI_STATISTICS
};

/* Shapes: logits [rows, classes], of classes `first` and on; those from `whole` on are padding,
 * which counts for nothing. statistics [rows, RPI_STATISTICS]; zeros in ignored rows. */
typedef struct rpi_kernel_statistics {
    int64_t rows, classes, first, whole;
    rpi_kernel_rows logits;
    const int32_t *labels;
    int32_t ignored;
    float *statistics;       /* forward: out; backward: what forward made */
    const float *gradients;  /* backward: of the statistics; else NULL */
    rpi_kernel_rows dlogits; /* backward: out */
} rpi_kernel_statistics;

void rpi_kernel_statistics_run(const rpi_kernel_run *run, const rpi_kernel_statistics *it);

/* ---- inside ---- */

static inline int64_t rpi_statistics_classes(const rpi_kernel_statistics *it) {
    int64_t real = it->whole - it->first;
    return real < 0 ? 0 : real < it->classes ? real : it->classes;
}

RPI_KERNEL_DECLARE(cross_entropy);
RPI_KERNEL_DECLARE(statistics);

#endif
