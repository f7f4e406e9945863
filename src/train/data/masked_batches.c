#include "train/data/masked_batches.h"

#include "base/memory.h"
#include "train/data/batch_ring.h"
#include "train/data/sampler.h"
#include "train/data/share.h"

#include <pthread.h>

enum { AHEAD = 4, THREADS = 1, LISTS = 4 }; /* lists of a number a token */

/* What lies at the beginning of a batch's memory; the rows follow, one more than this rank has:
 * the others' are read there, to be counted. Behind them lie the indices of all samples. */
typedef struct header {
    int64_t first, count, global_count, valid, global_valid, epoch;
} header;

struct rpi_masked_batches {
    const rpi_masked_samples *samples;
    rpi_masked_batches_options options;
    rpi_sampler sampler; /* holds one epoch's order: under the lock */
    pthread_mutex_t lock;
    int64_t most; /* samples of a step of all ranks */
    int64_t rows; /* of a batch's memory */
    rpi_batch_ring *ring;
};

static size_t list_bytes(int64_t count, int64_t sequence) {
    return rpi_align_up((size_t)count * (size_t)sequence * sizeof(int32_t));
}

size_t rpi_masked_rows_bytes(int64_t count, int64_t sequence) {
    return LISTS * list_bytes(count, sequence) + list_bytes(count, 1);
}

rpi_masked_rows rpi_masked_rows_at(void *at, int64_t count, int64_t sequence) {
    size_t bytes = list_bytes(count, sequence);
    char *list[LISTS + 1];
    for (size_t i = 0; i <= LISTS; i++) list[i] = (char *)at + i * bytes;
    return (rpi_masked_rows){.tokens = (int32_t *)(void *)list[0],
                             .segments = (int32_t *)(void *)list[1],
                             .documents = (int32_t *)(void *)list[2],
                             .labels = (int32_t *)(void *)list[3],
                             .next = (int32_t *)(void *)list[4]};
}

static size_t header_bytes(void) {
    return rpi_align_up(sizeof(header));
}

static rpi_masked_rows rows_of(const rpi_masked_batches *b, const void *batch) {
    char *at = (char *)(uintptr_t)batch + header_bytes();
    return rpi_masked_rows_at(at, b->rows, b->options.sequence);
}

static uint32_t *indices_of(const rpi_masked_batches *b, void *batch) {
    size_t bytes = header_bytes() + rpi_masked_rows_bytes(b->rows, b->options.sequence);
    return (uint32_t *)(void *)((char *)batch + bytes);
}

static void deal(rpi_masked_batches *b, int64_t step, header *h, uint32_t *indices) {
    const rpi_masked_batches_options *o = &b->options;
    pthread_mutex_lock(&b->lock);
    rpi_batch all = rpi_sampler_deal(&b->sampler, step, 0, 1);
    for (int64_t i = 0; i < all.count; i++) indices[i] = all.indices[i];
    pthread_mutex_unlock(&b->lock);
    int64_t first = rpi_share_first(all.count, o->rank, o->world);
    int64_t end = rpi_share_first(all.count, o->rank + 1, o->world);
    *h = (header){.first = first,
                  .count = end - first,
                  .global_count = all.count,
                  .epoch = step / rpi_sampler_steps_per_epoch(&b->sampler)};
}

/* How many tokens of a sample are hidden is known only when it is made: so each rank makes all
 * samples of a step, and keeps its own. */
static rp_status fill(void *context, int64_t step, void *batch) {
    rpi_masked_batches *b = context;
    header *h = batch;
    uint32_t *indices = indices_of(b, batch);
    rpi_masked_rows rows = rows_of(b, batch);
    deal(b, step, h, indices);
    rpi_masked_draw draw = {
        .seed = b->options.seed, .epoch = h->epoch, .first = 0, .count = b->options.count};
    for (int64_t i = 0; i < h->global_count; i++) {
        int64_t valid = 0, row = i - h->first;
        bool is_own = row >= 0 && row < h->count;
        RP_TRY(rpi_masked_sample_read(b->samples, &draw, indices[i], &rows,
                                      is_own ? row : b->rows - 1, &valid));
        h->global_valid += valid;
        if (is_own) h->valid += valid;
    }
    return RP_OK;
}

static rp_status open_parts(rpi_masked_batches *b) {
    const rpi_masked_batches_options *o = &b->options;
    if (o->count > UINT32_MAX)
        return RP_FAIL(UNSUPPORTED,
                       "%lld samples; 2^32 - 1 are the most: take longer sequences",
                       (long long)o->count);
    b->most = o->count < o->global_batch ? o->count : o->global_batch;
    b->rows = (b->most + o->world - 1) / o->world + 1;
    RP_TRY(rpi_sampler_create(o->seed, o->count, o->global_batch, &b->sampler));
    rpi_batch_source source = {.context = b,
                               .batch_bytes = header_bytes() +
                                              rpi_masked_rows_bytes(b->rows, o->sequence) +
                                              (size_t)b->most * sizeof(uint32_t),
                               .fill = fill};
    return rpi_batch_ring_start(&source, o->first_step, AHEAD, THREADS, &b->ring);
}

rp_status rpi_masked_batches_open(const rpi_masked_samples *samples,
                                  const rpi_masked_batches_options *options,
                                  rpi_masked_batches **out_batches) {
    rpi_masked_batches *b = NULL;
    RP_TRY(rpi_alloc(sizeof *b, "batches", &b));
    b->samples = samples;
    b->options = *options;
    pthread_mutex_init(&b->lock, NULL);
    rp_status status = open_parts(b);
    if (status == RP_OK)
        *out_batches = b;
    else
        rpi_masked_batches_close(b);
    return status;
}

void rpi_masked_batches_close(rpi_masked_batches *b) {
    if (!b) return;
    rpi_batch_ring_stop(b->ring);
    rpi_sampler_destroy(&b->sampler);
    pthread_mutex_destroy(&b->lock);
    rpi_free(b);
}

int64_t rpi_masked_batches_step(const rpi_masked_batches *b) {
    return rpi_batch_ring_step(b->ring);
}

rp_status rpi_masked_batches_next(rpi_masked_batches *b, double timeout_s,
                                  rpi_masked_batch *out_batch) {
    const void *batch = NULL;
    int64_t step = 0;
    RP_TRY(rpi_batch_ring_next(b->ring, timeout_s, &step, &batch));
    const header *h = batch;
    *out_batch = (rpi_masked_batch){.rows = rows_of(b, batch),
                                    .count = h->count,
                                    .global_count = h->global_count,
                                    .valid = h->valid,
                                    .global_valid = h->global_valid};
    return RP_OK;
}
