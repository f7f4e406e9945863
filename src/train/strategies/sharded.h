/* Buckets of which each rank owns a part (ownership.h), as they travel: gradients are summed
 * where they are owned, and values that were stepped there come back to all. What a rank sends
 * and receives of a bucket is as much as an all-reduce of it. */
#ifndef RPI_TRAIN_SHARDED_H
#define RPI_TRAIN_SHARDED_H

#include "train/strategies/bucket.h"
#include "train/strategies/strategy.h"

typedef struct rpi_sharded {
    rp_comm *comm;
    const rpi_ownership *ownership;
    rpi_weights *weights;
    const rpi_optimizer_state *optimizer;
    rp_codec codec; /* of values; those of tensors that do not compress travel exact */
    const rpi_network *network;
    rp_owned_segment *gradients, *values; /* one a part */
    rp_request **gathers;                 /* one a bucket; NULL: none under way */
    int buckets;
} rpi_sharded;

/* Is it used? Zeros: it is not. */
static inline bool rpi_sharded_is_open(const rpi_sharded *sharded) {
    return sharded->ownership != NULL;
}

/* Nothing, where the setup has no ownership. buckets: how many there are. */
rp_status rpi_sharded_open(const rpi_strategy_setup *setup, int buckets, rpi_sharded *out);
void rpi_sharded_close(rpi_sharded *sharded); /* zeros are fine; waits for what travels */

/* Of an all-reduce there is a reduce-scatter and an all-gather; what it is called, they are.
 * NULL stays. */
const char *rpi_sharded_algorithm(const char *all_reduce);

/* Post the sum of a bucket's gradients at their owners; segments have the codecs of now. */
rp_status rpi_sharded_scatter_start(rpi_sharded *sharded, const rpi_buckets *buckets, int index,
                                    const rp_collective_options *options,
                                    rp_request **out_request);
/* Post the way of its stepped values to all ranks. */
rp_status rpi_sharded_gather_start(rpi_sharded *sharded, const rpi_buckets *buckets, int index,
                                   const rp_collective_options *options);
/* The same, to where the weights have their values now, for whoever waits for it himself. */
rp_status rpi_sharded_gather_into(rpi_sharded *sharded, const rpi_buckets *buckets, int index,
                                  const rp_collective_options *options,
                                  rp_request **out_request);
/* Wait for what gather_start() has posted, where it is under way; and for that of all buckets.
 */
rp_status rpi_sharded_gather_wait(rpi_sharded *sharded, const rpi_buckets *buckets, int index);
rp_status rpi_sharded_complete(rpi_sharded *sharded, const rpi_buckets *buckets);

#endif
