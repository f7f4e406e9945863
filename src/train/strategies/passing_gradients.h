/* Gradients of ranks that keep the sums of what they own alone: those of a bucket lie in
 * passing memory from the first that is written to the moment its owners have the sums.
 *
 *     a layer's backward   bucket 2 is written        its memory: taken
 *     the layer before     bucket 2 travels, bucket 3 is written
 *     and so on            bucket 2 is summed: owners keep their parts, its memory is free
 *
 * Of a step of several runs of the model each is summed by itself, and owners add up the sums.
 */
#ifndef RPI_TRAIN_PASSING_GRADIENTS_H
#define RPI_TRAIN_PASSING_GRADIENTS_H

#include "train/strategies/passing_memory.h"
#include "train/strategies/sharded.h"

/* Buckets that travel at a time, before the backward pass waits for the first of them. */
enum { RPI_PASSING_TRAVEL = 3 };

typedef struct rpi_passing_gradients {
    rpi_passing_memory memory;
    rpi_weights *weights; /* NULL: gradients lie in an arena, and nothing passes */
    const rpi_ownership *ownership;
    const rpi_optimizer_state *optimizer;
    int rank;
    bool adds; /* to the sums of an earlier run of this step */
} rpi_passing_gradients;

/* Zeros, where the setup's weights have an arena of gradients. Buckets are borrowed. */
rp_status rpi_passing_gradients_open(const rpi_strategy_setup *setup,
                                     const rpi_buckets *buckets, rpi_passing_gradients *out);
void rpi_passing_gradients_close(rpi_passing_gradients *gradients); /* zeros are fine */

static inline bool rpi_passing_gradients_is_open(const rpi_passing_gradients *gradients) {
    return gradients->weights != NULL;
}

/* A bucket is about to be written: it has memory. */
rp_status rpi_passing_gradients_place(rpi_passing_gradients *gradients, int bucket);
bool rpi_passing_gradients_lies(const rpi_passing_gradients *gradients, int bucket);
/* Its sums are there, at their owners: what this one owns is kept, and the memory is free. */
void rpi_passing_gradients_keep(rpi_passing_gradients *gradients, int bucket);

#endif
