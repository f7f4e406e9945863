/* Folders of pictures as the samples of a classification: threads decode batches ahead, as
 * bytes; they become numbers, (byte / 255 - mean) / deviation with ImageNet's for each colour,
 * when they are dealt. */
#include "train/data/dataset.h"

#include "base/cpu.h"
#include "base/log.h"
#include "base/memory.h"
#include "train/data/batch_ring.h"
#include "train/data/picture_data.h"
#include "train/data/picture_set.h"
#include "train/data/sampler.h"
#include "train/data/source.h"
#include "train/pictures/picture.h"

#include <stdatomic.h>
#include <string.h>

extern const rpi_dataset_kind rpi_dataset_images;

enum { CHANNELS = RPI_PICTURE_CHANNELS };
#define PATIENCE_S 300.0 /* for a batch from a slow disk */

typedef struct picture_source {
    rpi_picture_data data;
    rpi_picture_set train, test;
    int rank, world, threads, size;
    int64_t most; /* pictures of a batch of this rank */

    rpi_sampler sampler; /* holds one epoch's order: under the lock */
    pthread_mutex_t lock;
    rpi_batch_ring *ring; /* from the first step that was asked for */

    float levels[CHANNELS][256];
    float *images; /* what is dealt, likewise labels */
    int32_t *labels;
    uint8_t *bytes; /* of held-out pictures */
} picture_source;

/* ---- one batch in the ring's memory: a header, labels, indices, bytes ---- */

typedef struct header {
    int64_t count, global_count;
} header;

static size_t picture_bytes(const picture_source *self) {
    return (size_t)self->size * (size_t)self->size * CHANNELS;
}

static size_t list_bytes(const picture_source *self) {
    return rpi_align_up((size_t)self->most * sizeof(int32_t));
}

static size_t batch_bytes(const picture_source *self) {
    return rpi_align_up(sizeof(header)) + 2 * list_bytes(self) +
           (size_t)self->most * picture_bytes(self);
}

static int32_t *labels_of(void *batch) {
    return (int32_t *)(void *)((char *)batch + rpi_align_up(sizeof(header)));
}

static uint32_t *indices_of(const picture_source *self, void *batch) {
    return (uint32_t *)(void *)((char *)labels_of(batch) + list_bytes(self));
}

static uint8_t *bytes_of(const picture_source *self, void *batch) {
    return (uint8_t *)indices_of(self, batch) + list_bytes(self);
}

/* Which pictures a step has follows from seed and step alone, and so does how they are cut. */
static int64_t deal_indices(picture_source *self, int64_t step, void *batch) {
    header *h = batch;
    pthread_mutex_lock(&self->lock);
    rpi_batch dealt = rpi_sampler_deal(&self->sampler, step, self->rank, self->world);
    *h = (header){.count = dealt.count, .global_count = dealt.global_count};
    memcpy(indices_of(self, batch), dealt.indices, (size_t)dealt.count * sizeof(uint32_t));
    int64_t epoch = step / rpi_sampler_steps_per_epoch(&self->sampler);
    pthread_mutex_unlock(&self->lock);
    return epoch;
}

static rp_status fill(void *context, int64_t step, void *batch) {
    picture_source *self = context;
    int64_t epoch = deal_indices(self, step, batch);
    const uint32_t *indices = indices_of(self, batch);
    uint8_t *out = bytes_of(self, batch);
    rpi_picture_reader reader = {.set = NULL};
    rp_status status = RP_OK;
    for (int64_t i = 0; status == RP_OK && i < ((header *)batch)->count; i++)
        status =
            rpi_picture_set_read(&self->train, &reader, indices[i], epoch,
                                 out + (size_t)i * picture_bytes(self), &labels_of(batch)[i]);
    rpi_picture_reader_close(&reader);
    return status;
}

/* ---- held-out pictures: threads share what is asked for ---- */

typedef struct team {
    picture_source *self;
    int64_t first, count;
    atomic_llong next;
    pthread_mutex_t lock;
    rp_status status; /* of the first that failed */
    rpi_kept_error error;
} team;

static void *decode_some(void *context) {
    team *t = context;
    picture_source *self = t->self;
    rpi_picture_reader reader = {.set = NULL};
    for (int64_t i; (i = atomic_fetch_add(&t->next, 1)) < t->count;) {
        rp_status status = rpi_picture_set_read(&self->test, &reader, t->first + i, 0,
                                                self->bytes + (size_t)i * picture_bytes(self),
                                                &self->labels[i]);
        if (status == RP_OK) continue;
        pthread_mutex_lock(&t->lock);
        if (t->status == RP_OK) rpi_error_keep(&t->error);
        t->status = status;
        pthread_mutex_unlock(&t->lock);
        atomic_store(&t->next, t->count);
    }
    rpi_picture_reader_close(&reader);
    return NULL;
}

/* With as many threads as can be had: the work is done by any number. */
static rp_status decode_held_out(picture_source *self, int64_t first, int64_t count) {
    pthread_t helpers[RPI_BATCH_THREADS_MOST];
    team t = {.self = self, .first = first, .count = count};
    int started = 0;
    pthread_mutex_init(&t.lock, NULL);
    while (started < self->threads - 1 && started < count - 1 &&
           pthread_create(&helpers[started], NULL, decode_some, &t) == 0)
        started++;
    decode_some(&t);
    while (started > 0) pthread_join(helpers[--started], NULL);
    pthread_mutex_destroy(&t.lock);
    if (t.status != RP_OK) rpi_error_put_back(&t.error);
    return t.status;
}

/* ---- bytes to numbers ---- */

static void measure_levels(picture_source *self) {
    const rpi_picture_scale *scale = self->data.scale;
    for (int c = 0; c < CHANNELS; c++)
        for (int level = 0; level < 256; level++)
            self->levels[c][level] =
                ((float)level / 255.0f - (float)scale->mean[c]) / (float)scale->deviation[c];
}

static void to_numbers(const picture_source *self, const uint8_t *bytes, int64_t count) {
    int64_t pixels = (int64_t)self->size * self->size;
    for (int64_t i = 0; i < count; i++)
        for (int c = 0; c < CHANNELS; c++) {
            const uint8_t *from = bytes + i * pixels * CHANNELS + c;
            float *to = self->images + (i * CHANNELS + c) * pixels;
            for (int64_t p = 0; p < pixels; p++) to[p] = self->levels[c][from[p * CHANNELS]];
        }
}

/* ---- the source ---- */

static void close_pictures(void *context) {
    picture_source *self = context;
    rpi_batch_ring_stop(self->ring);
    rpi_picture_set_close(&self->train);
    rpi_picture_set_close(&self->test);
    rpi_sampler_destroy(&self->sampler);
    rpi_picture_data_close(&self->data);
    pthread_mutex_destroy(&self->lock);
    rpi_free(self->images);
    rpi_free(self->labels);
    rpi_free(self->bytes);
    rpi_free(self);
}

static rp_status check_options(const rpi_picture_options *o,
                               const rpi_augmentation **out_augmentation) {
    RP_TRY(rpi_augmentation_find(o->augment, out_augmentation));
    if (o->size < 0 || o->size > RPI_PICTURE_SIZE_MOST)
        return RP_FAIL(INVALID, "--image-size %lld; 1 to %d are allowed", (long long)o->size,
                       RPI_PICTURE_SIZE_MOST);
    if (o->threads < 0 || o->threads > RPI_BATCH_THREADS_MOST)
        return RP_FAIL(INVALID, "--data-threads %lld; 1 to %d are allowed",
                       (long long)o->threads, RPI_BATCH_THREADS_MOST);
    return RP_OK;
}

static void tell_others(const rpi_picture_folder *folder) {
    if (folder->others)
        rpi_log(RP_LOG_WARNING,
                "%s: %lld file%s no picture%s by name (.jpg, .jpeg, .png) and left out: %s%s",
                folder->path, (long long)folder->others, folder->others == 1 ? " is" : "s are",
                folder->others == 1 ? "" : "s", folder->others_text,
                folder->others > 1 ? " ..." : "");
}

static rp_status open_sets(picture_source *self, const rpi_source_options *o,
                           const rpi_augmentation *augmentation) {
    rpi_picture_data *d = &self->data;
    bool is_split = d->split != NULL;
    self->train = (rpi_picture_set){.folder = &d->train,
                                    .indices = d->split,
                                    .count = d->train_count,
                                    .size = self->size,
                                    .augmentation = augmentation,
                                    .seed = o->seed};
    self->test = (rpi_picture_set){.folder = is_split ? &d->train : &d->validation,
                                   .indices = is_split ? d->split + d->train_count : NULL,
                                   .count = d->test_count,
                                   .size = self->size};
    RP_TRY(rpi_picture_set_open(&self->train, o->pictures.skip_broken));
    return rpi_picture_set_open(&self->test, o->pictures.skip_broken);
}

static int label_at(const void *context, int64_t sample) {
    const rpi_picture_set *set = context;
    return set->folder->pictures[set->indices ? set->indices[sample] : (uint32_t)sample].label;
}

static rp_status prepare(picture_source *self, const rpi_source_options *o) {
    const rpi_augmentation *augmentation = NULL;
    RP_TRY(check_options(&o->pictures, &augmentation));
    self->rank = o->rank;
    self->world = o->world;
    self->most = o->most;
    self->size = o->pictures.size ? (int)o->pictures.size : RPI_PICTURE_SIZE;
    self->threads = rpi_picture_threads(o->pictures.threads, rpi_cpu_count());
    RP_TRY(rpi_picture_data_open(o->data, &self->data));
    measure_levels(self);
    if (o->rank == 0) {
        tell_others(&self->data.train);
        tell_others(&self->data.validation);
    }
    RP_TRY(open_sets(self, o, augmentation));
    size_t most = (size_t)o->most, bytes = picture_bytes(self);
    RP_TRY(rpi_alloc_array(most, bytes * sizeof(float), "a batch", &self->images));
    RP_TRY(rpi_alloc_array(most, sizeof(int32_t), "labels", &self->labels));
    RP_TRY(rpi_alloc_array(most, bytes, "held-out pictures", &self->bytes));
    RP_TRY(rpi_sampler_create(o->seed, self->train.count, o->global_batch, &self->sampler));
    return rpi_sampler_split(&self->sampler, &o->split, o->world, self->data.train.class_count,
                             label_at, &self->train);
}

static rp_status open_pictures(const rpi_source_options *options, rpi_source *source) {
    picture_source *self = NULL;
    RP_TRY(rpi_alloc(sizeof *self, "the data", &self));
    pthread_mutex_init(&self->lock, NULL);
    rp_status status = prepare(self, options);
    if (status != RP_OK) {
        close_pictures(self);
        return rpi_fail_context(status, "--data images: ");
    }
    source->self = self;
    source->shape = (rpi_data_shape){.channels = CHANNELS,
                                     .height = self->size,
                                     .width = self->size,
                                     .classes = self->data.train.class_count};
    source->train_count = self->train.count;
    source->test_count = self->test.count;
    source->sample_units = 1;
    source->parts = self->sampler.parts.samples ? &self->sampler.parts : NULL;
    return RP_OK;
}

/* As many batches ahead as threads make at once, and one that is ready. */
static rp_status start_ring(picture_source *self, int64_t step) {
    rpi_batch_source source = {.context = self, .batch_bytes = batch_bytes(self), .fill = fill};
    if (self->ring && rpi_batch_ring_step(self->ring) == step) return RP_OK;
    rpi_batch_ring_stop(self->ring);
    self->ring = NULL;
    return rpi_batch_ring_start(&source, step, self->threads + 1, self->threads, &self->ring);
}

static rp_status deal(rpi_source *source, int64_t step, rpi_source_batch *out_batch) {
    picture_source *self = source->self;
    const void *batch = NULL;
    int64_t got = 0;
    RP_TRY(start_ring(self, step));
    RP_TRY(rpi_batch_ring_next(self->ring, PATIENCE_S, &got, &batch));
    void *filled = (void *)(uintptr_t)batch;
    const header *h = batch;
    to_numbers(self, bytes_of(self, filled), h->count);
    *out_batch = (rpi_source_batch){.inputs = {self->images, labels_of(filled)},
                                    .count = h->count,
                                    .global_count = h->global_count,
                                    .labels = h->count,
                                    .global_labels = h->global_count};
    return RP_OK;
}

static rp_status hold_out(rpi_source *source, int64_t first, int64_t count,
                          rpi_source_batch *out_batch) {
    picture_source *self = source->self;
    RP_TRY(decode_held_out(self, first, count));
    to_numbers(self, self->bytes, count);
    *out_batch = (rpi_source_batch){.inputs = {self->images, self->labels}, .count = count};
    for (int64_t i = 0; i < count; i++)
        out_batch->labels += self->labels[i] != RPI_LABEL_IGNORED;
    return RP_OK;
}

static const rpi_source_kind source_pictures = {.task = "classification",
                                                .open = open_pictures,
                                                .close = close_pictures,
                                                .deal = deal,
                                                .hold_out = hold_out};

static rp_status probe(const rpi_dataset_options *options) {
    const rpi_augmentation *augmentation = NULL;
    rpi_picture_data data;
    if (options->folder)
        return RP_FAIL(INVALID, "--data-dir is not for it; write images:FOLDER");
    RP_TRY(check_options(&options->pictures, &augmentation));
    RP_TRY(rpi_picture_data_open(options->data, &data));
    rpi_picture_data_close(&data);
    return RP_OK;
}

const rpi_dataset_kind rpi_dataset_images = {
    .name = "images",
    .summary = "folders of JPEG and PNG pictures, one for each class: images:FOLDER, with "
               ",validation=FOLDER or ,validation=5% (what is held out; FOLDER/val beside "
               "FOLDER/train when absent, else every 20th picture) and ,normalize=half "
               "(colours from -1 to 1)",
    .takes_text = true,
    .takes_pictures = true,
    .source = &source_pictures,
    .probe = probe,
};
