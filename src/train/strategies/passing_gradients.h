/* Gradients of ranks that keep only the sums of what they own. The gradients of a bucket lie in
 * temporary memory from the time when the first of them is written until its owners have the
 * sums.
 *
 *     a layer's backward   bucket 2 is written        its memory: taken
 *     the layer before     bucket 2 is being summed, bucket 3 is written
 *     and so on            bucket 2 is summed: owners keep their parts, its memory is free
 *
 * If a step has several runs of the model each run is summed by itself, and owners add up the
 * sums. */
#ifndef RPI_TRAIN_PASSING_GRADIENTS_H
#define RPI_TRAIN_PASSING_GRADIENTS_H

#include "train/strategies/passing_memory.h"
#include "train/strategies/sharded.h"

/* Buckets that are summed at a time, before the backward pass waits for the first of them. */
enum { RPI_PASSING_TRAVEL = 3 };

typedef struct rpi_passing_gradients {
    rpi_passing_memory memory;
    rpi_weights *weights; /* NULL: gradients lie in an arena, and this is not used */
    const rpi_ownership *ownership;
    const rpi_optimizer_state *optimizer;
    int rank;
    bool adds; /* adds to the sums of an earlier run of this step */
} rpi_passing_gradients;

/* Zeros if the setup's weights have an arena of gradients. Buckets are borrowed. */
rp_status rpi_passing_gradients_open(const rpi_strategy_setup *setup,
                                     const rpi_buckets *buckets, rpi_passing_gradients *out);
void rpi_passing_gradients_close(rpi_passing_gradients *gradients); /* zeros are fine */

static inline bool rpi_passing_gradients_is_open(const rpi_passing_gradients *gradients) {
    return gradients->weights != NULL;
}

/* Gives memory to a bucket that is about to be written. */
rp_status rpi_passing_gradients_place(rpi_passing_gradients *gradients, int bucket);
bool rpi_passing_gradients_lies(const rpi_passing_gradients *gradients, int bucket);
/* The sums of a bucket are at their owners: keeps what this rank owns, and frees the memory. */
void rpi_passing_gradients_keep(rpi_passing_gradients *gradients, int bucket);

#endif
