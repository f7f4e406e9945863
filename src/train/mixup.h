/* Mixup: a picture is blended with another of its batch, and so are their labels.
 *
 *     x = share x_i + (1 - share) x_j,   loss = share loss(y_i) + (1 - share) loss(y_j)
 *
 * j is the one before i among the pictures of a rank's part of the step, the last for the
 * first; share is of Beta(alpha, alpha), the same for all pictures of a step and on all ranks:
 * it is drawn from the Philox stream (seed, mixup, step). Zhang, Cisse, Dauphin, Lopez-Paz,
 * "mixup: beyond empirical risk minimization", 2018. */
#ifndef RPI_TRAIN_MIXUP_H
#define RPI_TRAIN_MIXUP_H

#include "train/data/data_shape.h"
#include "train/data/source.h"

typedef struct rpi_mixup {
    double alpha;   /* 0: nothing is blended, and every function does nothing */
    int64_t pixels; /* pixels of a picture, in all channels */
    float *images;  /* [most, pixels] */
    int32_t *labels;
    float share; /* of the first picture and its label in the current step */
} rpi_mixup;

/* most: pictures of a rank's part of a step. */
rp_status rpi_mixup_open(double alpha, const rpi_data_shape *shape, int64_t most,
                         rpi_mixup *out_mixup);
void rpi_mixup_close(rpi_mixup *mixup); /* zeros are fine */

/* Replaces the pictures of a step's batch by blended ones; the other pictures' labels are in
 * mixup->labels, until the next call. */
void rpi_mixup_blend(rpi_mixup *mixup, uint64_t seed, int64_t step, rpi_source_batch *batch);

/* A draw of Beta(alpha, alpha), a multiple of 2^-16; alpha above 0 and at most 1. */
double rpi_mixup_share(double alpha, uint64_t seed, int64_t step);

#endif
