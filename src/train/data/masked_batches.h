/* Batches of masked samples for one rank, read ahead: shuffled anew each epoch, the same global
 * order for any number of ranks (train/data/sampler.h), exact after a resume. */
#ifndef RPI_TRAIN_MASKED_BATCHES_H
#define RPI_TRAIN_MASKED_BATCHES_H

#include "train/data/masked_samples.h"

typedef struct rpi_masked_batches_options {
    int64_t sequence;     /* of the samples */
    int64_t count;        /* the first so many samples */
    int64_t global_batch; /* samples of all ranks together at a step */
    int rank, world;
    uint64_t seed;      /* of the order, and of what is paired and hidden */
    int64_t first_step; /* where to go on */
} rpi_masked_batches_options;

typedef struct rpi_masked_batch {
    rpi_masked_rows rows;
    int64_t count;               /* of this rank; may be 0 in the last step of an epoch */
    int64_t global_count;        /* of all ranks */
    int64_t valid, global_valid; /* hidden tokens: of this rank, of all ranks */
} rpi_masked_batch;

typedef struct rpi_masked_batches rpi_masked_batches;

/* The samples outlive it. */
rp_status rpi_masked_batches_open(const rpi_masked_samples *samples,
                                  const rpi_masked_batches_options *options,
                                  rpi_masked_batches **out_batches);
void rpi_masked_batches_close(rpi_masked_batches *batches); /* NULL is fine */

/* The next batch; it lives until the next call. Failures as of rpi_batch_ring_next(). */
rp_status rpi_masked_batches_next(rpi_masked_batches *batches, double timeout_s,
                                  rpi_masked_batch *out_batch);
/* The step of the next batch: all there is to save. */
int64_t rpi_masked_batches_step(const rpi_masked_batches *batches);

/* Rows in the memory behind `at`, of this many bytes; `count` of them. */
size_t rpi_masked_rows_bytes(int64_t count, int64_t sequence);
rpi_masked_rows rpi_masked_rows_at(void *at, int64_t count, int64_t sequence);

#endif
