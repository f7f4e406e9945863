#include "train/data/token_batches.h"

#include "base/memory.h"
#include "train/data/batch_ring.h"
#include "train/data/sampler.h"
#include "train/data/share.h"

#include <pthread.h>
#include <string.h>

enum { AHEAD = 4, THREADS = 1 };

/* What lies at the beginning of a batch's memory; the rows follow. */
typedef struct header {
    int64_t count, global_count, valid, global_valid;
} header;

struct rpi_token_batches {
    rpi_token_batches_options options;
    rpi_token_samples samples;
    rpi_sampler sampler; /* holds one epoch's order: under the lock */
    pthread_mutex_t lock;
    int64_t most; /* rows of a batch of this rank */
    rpi_batch_ring *ring;
};

static size_t header_bytes(void) {
    return rpi_align_up(sizeof(header));
}

static size_t list_bytes(const rpi_token_batches *b) {
    return rpi_align_up((size_t)b->most * (size_t)b->samples.sequence * sizeof(int32_t));
}

static rpi_token_rows rows_of(const rpi_token_batches *b, const void *batch) {
    char *at = (char *)(uintptr_t)batch + header_bytes();
    size_t bytes = list_bytes(b);
    return (rpi_token_rows){
        .inputs = (int32_t *)(void *)at,
        .labels = (int32_t *)(void *)(at + bytes),
        .positions = b->options.isolates ? (int32_t *)(void *)(at + 2 * bytes) : NULL};
}

/* Behind the rows lie the indices of a batch's samples. */
static uint32_t *indices_of(const rpi_token_batches *b, void *batch) {
    return (uint32_t *)(void *)((char *)batch + header_bytes() + 3 * list_bytes(b));
}

/* The i-th sample of a step of all ranks; `start`: of the step in its epoch. */
static uint32_t sample_at(const rpi_token_batches *b, const rpi_batch *all, int64_t start,
                          int64_t i) {
    const rpi_token_batches_options *o = &b->options;
    if (o->continues)
        return (uint32_t)(i * (b->samples.count / o->global_batch) + start / o->global_batch);
    return o->in_order ? (uint32_t)(start + i) : all->indices[i];
}

/* What counts of the others' samples is known without reading them. */
static void deal(rpi_token_batches *b, int64_t step, header *h, uint32_t *indices) {
    const rpi_token_batches_options *o = &b->options;
    pthread_mutex_lock(&b->lock);
    rpi_batch all = rpi_sampler_deal(&b->sampler, step, 0, 1);
    int64_t start = all.indices - b->sampler.order;
    int64_t first = rpi_share_first(all.count, o->rank, o->world);
    int64_t count = rpi_share_first(all.count, o->rank + 1, o->world) - first;
    *h = (header){.count = count, .global_count = all.count};
    for (int64_t i = 0; i < count; i++) indices[i] = sample_at(b, &all, start, first + i);
    if (!o->isolates) h->global_valid = all.count * b->samples.sequence;
    for (int64_t i = 0; o->isolates && i < all.count; i++)
        h->global_valid += rpi_token_sample_valid(&b->samples, sample_at(b, &all, start, i));
    pthread_mutex_unlock(&b->lock);
}

static rp_status fill(void *context, int64_t step, void *batch) {
    rpi_token_batches *b = context;
    header *h = batch;
    uint32_t *indices = indices_of(b, batch);
    rpi_token_rows rows = rows_of(b, batch);
    deal(b, step, h, indices);
    for (int64_t i = 0; i < h->count; i++) {
        int64_t valid = 0;
        RP_TRY(rpi_token_sample_read(&b->samples, indices[i], &rows, i, &valid));
        h->valid += valid;
    }
    return RP_OK;
}

int64_t rpi_token_stream_steps(int64_t samples, int64_t global_batch) {
    return samples / global_batch;
}

static rp_status check(rpi_token_batches *b) {
    rpi_token_batches_options *o = &b->options;
    if (o->world == 0) o->world = 1;
    if (o->ahead == 0) o->ahead = AHEAD;
    if (o->threads == 0) o->threads = THREADS;
    if (o->rank < 0 || o->rank >= o->world)
        return RP_FAIL(INVALID, "rank %d of a world of %d", o->rank, o->world);
    if (o->global_batch < 1 || o->first_step < 0)
        return RP_FAIL(INVALID, "a global batch of %lld samples from step %lld on",
                       (long long)o->global_batch, (long long)o->first_step);
    if (o->samples && o->samples < b->samples.count) b->samples.count = o->samples;
    if (o->continues) {
        int64_t steps = rpi_token_stream_steps(b->samples.count, o->global_batch);
        if (steps < 1)
            return RP_FAIL(INVALID, "%lld samples are no step of %lld that go on",
                           (long long)b->samples.count, (long long)o->global_batch);
        b->samples.count = steps * o->global_batch;
    }
    if (b->samples.count > UINT32_MAX)
        return RP_FAIL(UNSUPPORTED,
                       "%lld samples; 2^32 - 1 are the most: take longer sequences",
                       (long long)b->samples.count);
    return RP_OK;
}

static rp_status open_parts(rpi_token_batches *b) {
    const rpi_token_batches_options *o = &b->options;
    int64_t global = b->samples.count < o->global_batch ? b->samples.count : o->global_batch;
    b->most = (global + o->world - 1) / o->world;
    RP_TRY(rpi_sampler_create(o->seed, b->samples.count, o->global_batch, &b->sampler));
    rpi_batch_source source = {.context = b,
                               .batch_bytes = header_bytes() + 3 * list_bytes(b) +
                                              (size_t)b->most * sizeof(uint32_t),
                               .fill = fill};
    return rpi_batch_ring_start(&source, o->first_step, o->ahead, o->threads, &b->ring);
}

rp_status rpi_token_batches_open(const rpi_token_file *file,
                                 const rpi_token_batches_options *options,
                                 rpi_token_batches **out_batches) {
    rpi_token_batches *b = NULL;
    RP_TRY(rpi_alloc(sizeof *b, "batches", &b));
    b->options = *options;
    pthread_mutex_init(&b->lock, NULL);
    rp_status status = rpi_token_samples_open(file, options->sequence, &b->samples);
    if (status == RP_OK && options->continues) rpi_token_samples_join(&b->samples);
    if (status == RP_OK) status = check(b);
    if (status == RP_OK) status = open_parts(b);
    if (status == RP_OK)
        *out_batches = b;
    else
        rpi_token_batches_close(b);
    return status;
}

void rpi_token_batches_close(rpi_token_batches *b) {
    if (!b) return;
    rpi_batch_ring_stop(b->ring);
    rpi_sampler_destroy(&b->sampler);
    pthread_mutex_destroy(&b->lock);
    rpi_free(b);
}

int64_t rpi_token_batches_steps_per_epoch(const rpi_token_batches *b) {
    return rpi_sampler_steps_per_epoch(&b->sampler);
}

int64_t rpi_token_batches_step(const rpi_token_batches *b) {
    return rpi_batch_ring_step(b->ring);
}

rp_status rpi_token_batches_next(rpi_token_batches *b, double timeout_s,
                                 rpi_token_batch *out_batch) {
    const void *batch = NULL;
    int64_t step = 0;
    RP_TRY(rpi_batch_ring_next(b->ring, timeout_s, &step, &batch));
    const header *h = batch;
    *out_batch = (rpi_token_batch){.rows = rows_of(b, batch),
                                   .count = h->count,
                                   .global_count = h->global_count,
                                   .valid = h->valid,
                                   .global_valid = h->global_valid,
                                   .step = step,
                                   .epoch = step / rpi_token_batches_steps_per_epoch(b)};
    return RP_OK;
}
