/* Batches made ahead by threads, so that training waits for none.
 *
 * What a batch holds follows from its step alone (see rpi_batch_source), so that the state of a
 * ring is one number: a ring that starts at the step where another was left goes on exactly as
 * that would have. Batches come in the order of steps; there are never more of them than
 * `ahead` and the one that is in use. */
#ifndef RPI_TRAIN_BATCH_RING_H
#define RPI_TRAIN_BATCH_RING_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { RPI_BATCHES_AHEAD_MOST = 1024, RPI_BATCH_THREADS_MOST = 64 };

typedef struct rpi_batch_source {
    void *context;
    size_t batch_bytes;
    /* Fill the batch of a step, whose memory is aligned and holds what an earlier batch left.
     * Called by several threads at once, for different steps. A failure is what the consumer
     * gets for this step. */
    rp_status (*fill)(void *context, int64_t step, void *batch);
} rpi_batch_source;

typedef struct rpi_batch_ring rpi_batch_ring;

/* source->context must outlive the ring. 1 <= ahead, threads. */
rp_status rpi_batch_ring_start(const rpi_batch_source *source, int64_t first_step, int ahead,
                               int threads, rpi_batch_ring **out_ring);
/* Threads end with the batches that they are filling. NULL is fine. */
void rpi_batch_ring_stop(rpi_batch_ring *ring);

/* The next batch, valid until the next call. One thread at a time. What fill() failed with
 * comes when the step's turn has come, and again at every further call. RP_TIMEOUT: it is not
 * ready after timeout_s; another call waits on. */
rp_status rpi_batch_ring_next(rpi_batch_ring *ring, double timeout_s, int64_t *out_step,
                              const void **out_batch);

/* The step that rpi_batch_ring_next() gives next: where to go on after a checkpoint. */
int64_t rpi_batch_ring_step(const rpi_batch_ring *ring);

#endif
