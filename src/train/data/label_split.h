/* Which rank has which labelled samples, --split: ranks of a federation do not see the same.
 *
 *   iid            every rank sees all (the sampler's one order for all)
 *   by-label       samples sorted by label, cut into one part a rank
 *   dirichlet=A    each rank's shares of the labels are a draw from Dir(A, ..., A): the smaller
 *                  A, the fewer labels a rank has. Drawn as Polya's urn, whose arithmetic
 *                  is the same on all machines, from the labels that are left (of data whose
 *                  labels are not equally frequent, Dir(A f_1, ..., A f_n) by frequency)
 *
 * Parts are as large as what the sampler deals each rank in an epoch, so that every sample
 * comes once an epoch all the same. All follows from seed, labels and world. */
#ifndef RPI_TRAIN_LABEL_SPLIT_H
#define RPI_TRAIN_LABEL_SPLIT_H

#include "redpoll/status.h"

#include <stdint.h>

typedef enum rpi_split_kind {
    RPI_SPLIT_IID,
    RPI_SPLIT_BY_LABEL,
    RPI_SPLIT_DIRICHLET
} rpi_split_kind;

typedef struct rpi_label_split {
    rpi_split_kind kind;
    double concentration; /* of dirichlet */
} rpi_label_split;

/* text NULL: iid. RP_INVALID: what there is. */
rp_status rpi_split_parse(const char *text, rpi_label_split *out_split);

typedef struct rpi_split_request {
    uint64_t seed;
    int64_t count, global_batch; /* samples; of a step, of all ranks */
    int world, classes;
    int (*label_at)(const void *context, int64_t sample); /* below `classes` */
    const void *context;
} rpi_split_request;

typedef struct rpi_split_parts {
    int world, classes;
    uint32_t *samples;  /* of rank 0, of rank 1, ... */
    int64_t *first;     /* world + 1: where each rank's begin */
    int64_t *of_labels; /* world x classes: how many samples of each label */
} rpi_split_parts;

/* Of by-label and dirichlet. */
rp_status rpi_split_make(const rpi_label_split *split, const rpi_split_request *request,
                         rpi_split_parts *out_parts);
void rpi_split_close(rpi_split_parts *parts); /* zeros are fine */

#endif
