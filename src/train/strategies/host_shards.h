/* Parameters that the ranks of a host keep among them, beside what each owns in the world: of a
 * bucket that was gathered from all ranks each keeps a share, and until its values are stepped
 * it is gathered from these, inside of the host (ZeRO++'s second partition, arXiv 2306.10209).
 *
 *     forward, first run of a step   all ranks        what was gathered is shared out on hosts
 *     backward, further runs         ranks of a host
 *     the bucket is stepped          all ranks        by the next that needs it
 *
 * All ranks gather, share out and step in one order, so that all of them know where a bucket
 * comes from. */
#ifndef RPI_TRAIN_HOST_SHARDS_H
#define RPI_TRAIN_HOST_SHARDS_H

#include "train/strategies/bucket.h"
#include "train/strategies/strategy.h"

typedef struct rpi_host_shards {
    rp_comm *host; /* of its ranks, borrowed; NULL: nothing is kept */
    rpi_ownership ownership;
    rpi_weights *weights;
    rp_owned_segment *segments; /* one a part */
    float *values;              /* of what this rank has, one part behind the other */
    int64_t *places;            /* of each part there */
    bool *holds;                /* one a bucket */
} rpi_host_shards;

/* Zeros, where the setup has no communicator of the host's ranks. */
rp_status rpi_host_shards_open(const rpi_strategy_setup *setup, const rpi_buckets *buckets,
                               rpi_host_shards *out);
void rpi_host_shards_close(rpi_host_shards *shards); /* zeros are fine */

static inline bool rpi_host_shards_holds(const rpi_host_shards *shards, int bucket) {
    return shards->host && shards->holds[bucket];
}

/* A bucket that lies where the weights have it was gathered: keep this rank's share. Nothing
 * where it is kept, or nothing ever is. */
void rpi_host_shards_keep(rpi_host_shards *shards, const rpi_buckets *buckets, int bucket);
/* A bucket that is held, to where the weights have their values now. */
rp_status rpi_host_shards_gather(rpi_host_shards *shards, const rpi_buckets *buckets,
                                 int bucket, const rp_collective_options *options,
                                 rp_request **out_request);
/* Its values are new. */
void rpi_host_shards_forget(rpi_host_shards *shards, int bucket);

#endif
