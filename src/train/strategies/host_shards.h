/* Parameters that the ranks of a host keep together, beside what each rank owns in the world.
 * When a bucket has been gathered from all ranks, each rank of the host keeps a share of it.
 * Until its values are updated the bucket is gathered from these shares, inside the host
 * (ZeRO++'s second partition, arXiv 2306.10209).
 *
 *     forward, first run of a step   all ranks        what was gathered is shared out on hosts
 *     backward, further runs         ranks of a host
 *     the bucket is stepped          all ranks        by the next that needs it
 *
 * All ranks gather, share and update buckets in one order, so that they agree on where a bucket
 * comes from. */
#ifndef RPI_TRAIN_HOST_SHARDS_H
#define RPI_TRAIN_HOST_SHARDS_H

#include "train/strategies/bucket.h"
#include "train/strategies/strategy.h"

typedef struct rpi_host_shards {
    rp_comm *host; /* the host's ranks, borrowed; NULL: nothing is kept */
    rpi_ownership ownership;
    rpi_weights *weights;
    rp_owned_segment *segments; /* one a part */
    float *values;              /* this rank's parts, one after the other */
    int64_t *places;            /* where each part begins there */
    bool *holds;                /* one a bucket: its share is kept */
} rpi_host_shards;

/* Zeros if the setup has no communicator of the host's ranks. */
rp_status rpi_host_shards_open(const rpi_strategy_setup *setup, const rpi_buckets *buckets,
                               rpi_host_shards *out);
void rpi_host_shards_close(rpi_host_shards *shards); /* zeros are fine */

static inline bool rpi_host_shards_holds(const rpi_host_shards *shards, int bucket) {
    return shards->host && shards->holds[bucket];
}

/* A bucket has been gathered to where the weights have it: keeps this rank's share. Does
 * nothing if the share is kept already, or nothing is ever kept. */
void rpi_host_shards_keep(rpi_host_shards *shards, const rpi_buckets *buckets, int bucket);
/* Gathers a bucket whose shares are kept to where the weights have their values now. */
rp_status rpi_host_shards_gather(rpi_host_shards *shards, const rpi_buckets *buckets,
                                 int bucket, const rp_collective_options *options,
                                 rp_request **out_request);
/* The values of the bucket have changed: its share is dropped. */
void rpi_host_shards_forget(rpi_host_shards *shards, int bucket);

#endif
