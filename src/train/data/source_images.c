#include "train/data/source_images.h"

#include "base/memory.h"
#include "train/data/sampler.h"
#include "train/pictures/augment.h"

#include <string.h>

typedef struct image_source {
    rpi_dataset dataset;
    rpi_sampler sampler;
    int rank, world;
    float *images;
    int32_t *labels;
    uint32_t *indices; /* of held-out images */
    const rpi_augmentation *augmentation;
    float *plane; /* a channel of an image that is shifted */
} image_source;

static void close_images(void *context) {
    image_source *self = context;
    rpi_sampler_destroy(&self->sampler);
    rpi_dataset_close(&self->dataset);
    rpi_free(self->images);
    rpi_free(self->labels);
    rpi_free(self->indices);
    rpi_free(self->plane);
    rpi_free(self);
}

static int label_at(const void *context, int64_t sample) {
    return ((const rpi_images *)context)->labels[sample];
}

static rp_status prepare(image_source *self, const rpi_source_options *options) {
    const rpi_dataset_kind *kind = NULL;
    rpi_dataset_options dataset = {.folder = options->folder,
                                   .seed = options->seed,
                                   .train_count = options->train_count,
                                   .test_count = options->test_count};
    RP_TRY(rpi_augmentation_find(options->pictures.augment, &self->augmentation));
    RP_TRY(rpi_dataset_kind_of(options->kinds, options->data, &kind));
    RP_TRY(rpi_dataset_load(kind, options->data, &dataset, &self->dataset));
    const rpi_images *images = &self->dataset.train;
    size_t pixels = (size_t)images->channels * (size_t)images->height * (size_t)images->width;
    size_t most = (size_t)options->most;
    RP_TRY(rpi_alloc_array(most, pixels * sizeof(float), "a batch", &self->images));
    RP_TRY(rpi_alloc_array(most, sizeof(int32_t), "labels", &self->labels));
    RP_TRY(rpi_alloc_array(most, sizeof(uint32_t), "indices", &self->indices));
    RP_TRY(rpi_alloc_array(pixels, sizeof(float), "an image", &self->plane));
    RP_TRY(rpi_sampler_create(options->seed, images->count, options->global_batch,
                              &self->sampler));
    return rpi_sampler_split(&self->sampler, &options->split, options->world,
                             self->dataset.classes, label_at, images);
}

static rp_status open_images(const rpi_source_options *options, rpi_source *source) {
    image_source *self = NULL;
    RP_TRY(rpi_alloc(sizeof *self, "the data", &self));
    self->rank = options->rank;
    self->world = options->world;
    rp_status status = prepare(self, options);
    if (status != RP_OK) {
        close_images(self);
        return status;
    }
    const rpi_images *train = &self->dataset.train;
    source->self = self;
    source->shape = (rpi_data_shape){.channels = train->channels,
                                     .height = train->height,
                                     .width = train->width,
                                     .classes = self->dataset.classes};
    source->train_count = train->count;
    source->test_count = self->dataset.test.count;
    source->sample_units = 1;
    source->parts = self->sampler.parts.samples ? &self->sampler.parts : NULL;
    return RP_OK;
}

rpi_dataset *rpi_source_images_dataset(const rpi_source *source) {
    image_source *self = source->kind == &rpi_source_images ? source->self : NULL;
    return self ? &self->dataset : NULL;
}

static rpi_source_batch batch_of(const image_source *self, const rpi_images *images,
                                 const uint32_t *indices, int64_t count) {
    rpi_dataset_batch(&self->dataset, images, indices, count, self->images, self->labels);
    return (rpi_source_batch){
        .inputs = {self->images, self->labels}, .count = count, .labels = count};
}

/* ---- augmentation ---- */

/* One channel; `black` comes in at the borders. */
static void shift_plane(const rpi_shift *shift, const float *from, int width, int height,
                        float black, float *to) {
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            int column = (shift->flips ? width - 1 - x : x) - shift->right;
            int row = y - shift->down;
            bool is_inside = column >= 0 && column < width && row >= 0 && row < height;
            to[y * width + x] = is_inside ? from[row * width + column] : black;
        }
}

static void augment(image_source *self, const rpi_batch *dealt, int64_t epoch) {
    const rpi_images *images = &self->dataset.train;
    int64_t plane = (int64_t)images->height * images->width;
    if (!self->augmentation->crops && !self->augmentation->flips) return;
    for (int c = 0; c < images->channels; c++) {
        float levels[256];
        rpi_dataset_levels(&self->dataset, c, levels);
        for (int64_t i = 0; i < dealt->count; i++) {
            rpi_draw draw = {self->sampler.seed, epoch, dealt->indices[i]};
            rpi_shift shift =
                rpi_augment_shift(self->augmentation, &draw, images->width, images->height);
            float *image = self->images + (i * images->channels + c) * plane;
            memcpy(self->plane, image, (size_t)plane * sizeof *image);
            shift_plane(&shift, self->plane, images->width, images->height, levels[0], image);
        }
    }
}

static rp_status deal(rpi_source *source, int64_t step, rpi_source_batch *out_batch) {
    image_source *self = source->self;
    rpi_batch dealt = rpi_sampler_deal(&self->sampler, step, self->rank, self->world);
    *out_batch = batch_of(self, &self->dataset.train, dealt.indices, dealt.count);
    augment(self, &dealt, step / rpi_sampler_steps_per_epoch(&self->sampler));
    out_batch->global_count = out_batch->global_labels = dealt.global_count;
    return RP_OK;
}

static rp_status hold_out(rpi_source *source, int64_t first, int64_t count,
                          rpi_source_batch *out_batch) {
    image_source *self = source->self;
    for (int64_t i = 0; i < count; i++) self->indices[i] = (uint32_t)(first + i);
    *out_batch = batch_of(self, &self->dataset.test, self->indices, count);
    return RP_OK;
}

const rpi_source_kind rpi_source_images = {.task = "classification",
                                           .open = open_images,
                                           .close = close_images,
                                           .deal = deal,
                                           .hold_out = hold_out};
