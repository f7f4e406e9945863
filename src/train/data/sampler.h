/* Which images a rank sees at a step: the same global order for any number of ranks.
 *
 * An epoch is a permutation of all images, drawn by Fisher-Yates from the Philox stream (seed,
 * shuffle, epoch). Step s takes the next `global_batch` of them; the last step of an epoch
 * takes what is left, so that no image is dropped and none comes twice. Ranks share a batch
 * in contiguous parts, in rank order, as even as can be. Where ranks
 * have parts of the data of their own (label_split.h), each part is permuted by itself and
 * fills its rank's places. All follows from (seed, step): there is no other state, and a
 * checkpoint needs none. */
#ifndef RPI_TRAIN_SAMPLER_H
#define RPI_TRAIN_SAMPLER_H

#include "base/status.h"
#include "train/data/label_split.h"

#include <stdint.h>

typedef struct rpi_sampler {
    uint64_t seed;
    int64_t count, global_batch;
    int64_t epoch;         /* of `order`; -1: none yet */
    uint32_t *order;       /* count */
    rpi_split_parts parts; /* zeros: none */
    uint32_t *shuffled;    /* the parts, in the epoch's order */
} rpi_sampler;

typedef struct rpi_batch {
    const uint32_t *indices; /* this rank's images; valid until the next call */
    int64_t count;           /* of them; may be 0 where a last batch has fewer than ranks */
    int64_t global_count;    /* images of all ranks at this step */
} rpi_batch;

/* count >= 1, global_batch >= 1. */
rp_status rpi_sampler_create(uint64_t seed, int64_t count, int64_t global_batch,
                             rpi_sampler *out_sampler);
/* Each rank has a part of the samples. Before the first deal; nothing is done for iid. */
rp_status rpi_sampler_split(rpi_sampler *sampler, const rpi_label_split *split, int world,
                            int classes, int (*label_at)(const void *context, int64_t sample),
                            const void *context);
void rpi_sampler_destroy(rpi_sampler *sampler); /* zeros are fine */

int64_t rpi_sampler_steps_per_epoch(const rpi_sampler *sampler);
rpi_batch rpi_sampler_deal(rpi_sampler *sampler, int64_t step, int rank, int world);
/* How many images of all ranks there are at this step, without dealing them. */
int64_t rpi_sampler_count(const rpi_sampler *sampler, int64_t step);

#endif
