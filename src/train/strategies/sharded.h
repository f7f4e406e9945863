/* Communication of buckets of which each rank owns a part (ownership.h): gradients are summed
 * at their owners, and the values that owners update are sent back to all ranks. For a bucket a
 * rank sends and receives as much as in an all-reduce. */
#ifndef RPI_TRAIN_SHARDED_H
#define RPI_TRAIN_SHARDED_H

#include "train/strategies/bucket.h"
#include "train/strategies/strategy.h"

typedef struct rpi_sharded {
    rp_comm *comm;
    const rpi_ownership *ownership;
    rpi_weights *weights;
    const rpi_optimizer_state *optimizer;
    rp_codec codec; /* of values; tensors that are not compressed are sent exactly */
    const rpi_network *network;
    rp_owned_segment *gradients, *values; /* one a part */
    rp_request **gathers;                 /* one a bucket; NULL: no gather is under way */
    int buckets;
} rpi_sharded;

/* Is it in use? Zeros: it is not. */
static inline bool rpi_sharded_is_open(const rpi_sharded *sharded) {
    return sharded->ownership != NULL;
}

/* Does nothing if the setup has no ownership. buckets: their number. */
rp_status rpi_sharded_open(const rpi_strategy_setup *setup, int buckets, rpi_sharded *out);
/* zeros are fine; waits for operations under way */
void rpi_sharded_close(rpi_sharded *sharded);

/* The algorithm of reduce-scatter and all-gather for that of an all-reduce, which consists of
 * the two: the same name. NULL stays NULL. */
const char *rpi_sharded_algorithm(const char *all_reduce);

/* Posts the sum of a bucket's gradients at their owners; segments have their current codecs. */
rp_status rpi_sharded_scatter_start(rpi_sharded *sharded, const rpi_buckets *buckets, int index,
                                    const rp_collective_options *options,
                                    rp_request **out_request);
/* Posts the gather of a bucket's updated values on all ranks. */
rp_status rpi_sharded_gather_start(rpi_sharded *sharded, const rpi_buckets *buckets, int index,
                                   const rp_collective_options *options);
/* The same, to where the weights have their values now; the caller waits for the request. */
rp_status rpi_sharded_gather_into(rpi_sharded *sharded, const rpi_buckets *buckets, int index,
                                  const rp_collective_options *options,
                                  rp_request **out_request);
/* Waits for what gather_start() has posted, if it is under way; and for that of all buckets. */
rp_status rpi_sharded_gather_wait(rpi_sharded *sharded, const rpi_buckets *buckets, int index);
rp_status rpi_sharded_complete(rpi_sharded *sharded, const rpi_buckets *buckets);

#endif
