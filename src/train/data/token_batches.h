/* Batches of token samples for one rank, read ahead: shuffled anew each epoch, the same global
 * order for any number of ranks (train/data/sampler.h), exact after a resume. */
#ifndef RPI_TRAIN_TOKEN_BATCHES_H
#define RPI_TRAIN_TOKEN_BATCHES_H

#include "train/data/token_samples.h"

#include <stdbool.h>

typedef struct rpi_token_batches_options {
    int64_t sequence;
    int64_t samples;      /* only the first so many; 0: all */
    int64_t global_batch; /* samples of all ranks together at a step */
    int rank, world;      /* world 0: 1 */
    uint64_t seed;        /* of the order */
    bool in_order;        /* not shuffled */
    /* Not shuffled, but in as many streams as a global batch has rows: row r of a step goes on
     * where row r of the step before ended. Samples that fill no step are left out. */
    bool continues;
    bool isolates;      /* documents do not see each other: positions, ignored labels */
    int64_t first_step; /* where to go on */
    int ahead, threads; /* 0: 4, 1 */
} rpi_token_batches_options;

typedef struct rpi_token_batch {
    rpi_token_rows rows;
    int64_t count;               /* of this rank; may be 0 in the last step of an epoch */
    int64_t global_count;        /* of all ranks */
    int64_t valid, global_valid; /* labels that count: of this rank, of all ranks */
    int64_t step, epoch;
} rpi_token_batch;

typedef struct rpi_token_batches rpi_token_batches;

/* `file` outlives it. RP_INVALID: see rpi_token_samples_open(); no global batch; a rank that is
 * not in the world. */
rp_status rpi_token_batches_open(const rpi_token_file *file,
                                 const rpi_token_batches_options *options,
                                 rpi_token_batches **out_batches);
void rpi_token_batches_close(rpi_token_batches *batches); /* NULL is fine */

/* Steps of an epoch where rows go on: 0 where there are fewer samples than rows. */
int64_t rpi_token_stream_steps(int64_t samples, int64_t global_batch);
int64_t rpi_token_batches_steps_per_epoch(const rpi_token_batches *batches);
/* The next batch; it lives until the next call. Failures as of rpi_batch_ring_next(). */
rp_status rpi_token_batches_next(rpi_token_batches *batches, double timeout_s,
                                 rpi_token_batch *out_batch);
/* The step of the next batch: all there is to save. */
int64_t rpi_token_batches_step(const rpi_token_batches *batches);

#endif
