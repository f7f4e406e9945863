/* Reads memory once for the sum of two: into = (first op second), times a weight.
 *
 * Memory is the limit if ranks share it. A copy into an accumulator, an addition and a copy out
 * of it read it three times; a tile that stays in the first cache is read once. The bits are
 * those of the three. */
#ifndef RPI_COMM_FOLD_H
#define RPI_COMM_FOLD_H

#include "plan/plan.h"
#include "redpoll/comm.h"

#include <stdbool.h>

typedef struct rpi_fold {
    rp_reduction reduce;
    rp_dtype dtype; /* of both inputs, which may lie at any address */
    const void *first, *second;
    rpi_fraction weight; /* of the result: times / over; zeros: one */
    rp_dtype into_dtype; /* dtype, or that in which it is summed (values.h) */
    void *into;          /* may be either input; otherwise overlaps none */
    void *also;          /* a copy of the result, at any address; may be an input; NULL: none */
    bool
        is_long; /* the operation moves more than a cache holds; the bits do not depend on it */
} rpi_fold;

void rpi_fold_extent(const rpi_fold *fold, size_t count);

#endif
