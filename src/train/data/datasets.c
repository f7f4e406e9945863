#include "train/data/dataset.h"

#include "base/memory.h"
#include "base/suggest.h"
#include "train/data/token_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

extern const rpi_dataset_kind rpi_dataset_cifar10;
extern const rpi_dataset_kind rpi_dataset_cifar100;
extern const rpi_dataset_kind rpi_dataset_fashion_mnist;
extern const rpi_dataset_kind rpi_dataset_idx;
extern const rpi_dataset_kind rpi_dataset_images;
extern const rpi_dataset_kind rpi_dataset_synthetic;
extern const rpi_dataset_kind rpi_dataset_tokens;
extern const rpi_dataset_kind rpi_dataset_masked;
extern const rpi_dataset_kind rpi_dataset_pairs;
extern const rpi_dataset_kind rpi_dataset_spans;
extern const rpi_dataset_kind rpi_dataset_stages;

static const rpi_dataset_kind *const kinds[] = {
    &rpi_dataset_cifar10, &rpi_dataset_cifar100, &rpi_dataset_fashion_mnist,
    &rpi_dataset_idx,     &rpi_dataset_images,   &rpi_dataset_synthetic,
    &rpi_dataset_tokens,  &rpi_dataset_masked,   &rpi_dataset_pairs,
    &rpi_dataset_spans,   &rpi_dataset_stages,
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

const rpi_dataset_kind *rpi_dataset_kind_at(int index) {
    return index >= 0 && index < KINDS ? kinds[index] : NULL;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    return index < KINDS ? kinds[index]->name : NULL;
}

rp_status rpi_dataset_kind_find(const char *name, const rpi_dataset_kind **out_kind) {
    char word[64];
    int index = 0;
    const char *colon = strchr(name, ':');
    snprintf(word, sizeof word, "%.*s", colon ? (int)(colon - name) : (int)strlen(name), name);
    if (rpi_token_raw_prefix(name))
        return RP_FAIL(INVALID, "ids without a header are read as tokens:%s", name);
    RP_TRY(rpi_name_find("data", word, name_at, NULL, &index));
    const rpi_dataset_kind *kind = kinds[index];
    if (colon && !kind->takes_text)
        return RP_FAIL(INVALID, "data %s takes nothing behind its name, so not '%s'",
                       kind->name, colon);
    if (!colon && kind->takes_text)
        return RP_FAIL(INVALID, "data %s needs more than its name: %s", kind->name,
                       kind->summary);
    *out_kind = kind;
    return RP_OK;
}

static rp_status check_labels(const rpi_images *images, int classes, const char *what) {
    for (int64_t i = 0; i < images->count; i++)
        if (images->labels[i] >= classes)
            return RP_FAIL(CORRUPT,
                           "label %d of %s image %lld is out of range; there are %d classes",
                           images->labels[i], what, (long long)i, classes);
    return RP_OK;
}

static rp_status check(const rpi_dataset *dataset) {
    const rpi_images *train = &dataset->train, *test = &dataset->test;
    if (train->count < 1 || test->count < 1)
        return RP_FAIL(CORRUPT, "%lld training and %lld test images; both must hold some",
                       (long long)train->count, (long long)test->count);
    if (train->count > UINT32_MAX)
        return RP_FAIL(UNSUPPORTED, "%lld training images; 2^32 - 1 are the most",
                       (long long)train->count);
    if (train->channels != test->channels || train->height != test->height ||
        train->width != test->width)
        return RP_FAIL(CORRUPT, "training images are %dx%dx%d, test images %dx%dx%d",
                       train->channels, train->height, train->width, test->channels,
                       test->height, test->width);
    RP_TRY(check_labels(train, dataset->classes, "training"));
    return check_labels(test, dataset->classes, "test");
}

rp_status rpi_dataset_open(const char *name, const rpi_dataset_options *options,
                           rpi_dataset *out_dataset) {
    const rpi_dataset_kind *kind = NULL;
    RP_TRY(rpi_dataset_kind_find(name, &kind));
    rpi_dataset dataset = {0};
    rpi_dataset_options named = *options;
    named.data = name;
    rp_status status = kind->load(&named, &dataset);
    if (status == RP_OK) status = check(&dataset);
    if (status != RP_OK) {
        rpi_dataset_close(&dataset);
        return rpi_fail_context(status, "data %s: ", name);
    }
    *out_dataset = dataset;
    return RP_OK;
}

rp_status rpi_dataset_check(const char *name, const rpi_picture_options *o) {
    const rpi_dataset_kind *kind = NULL;
    RP_TRY(rpi_dataset_kind_find(name, &kind));
    if (o->skip_broken && !kind->takes_pictures && !kind->skips_broken)
        return RP_FAIL(INVALID,
                       "--skip-broken is for pictures, questions and pairs, --data "
                       "images:FOLDER, spans:FILE or pairs:FILE, not for %s",
                       kind->name);
    const char *word = o->size ? "--image-size" : o->threads ? "--data-threads" : NULL;
    if (word && !kind->takes_pictures)
        return RP_FAIL(INVALID,
                       "%s is for folders of pictures, --data images:FOLDER, not for %s", word,
                       kind->name);
    if (o->augment && !kind->takes_pictures && kind->source != &rpi_source_images)
        return RP_FAIL(INVALID, "--augment is for images, not for %s", kind->name);
    return RP_OK;
}

rp_status rpi_dataset_probe(const char *name, const rpi_dataset_options *options) {
    const rpi_dataset_kind *kind = NULL;
    RP_TRY(rpi_dataset_kind_find(name, &kind));
    rpi_dataset_options named = *options;
    named.data = name;
    rp_status status = kind->probe ? kind->probe(&named) : RP_OK;
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "--data %s: ", kind->name);
}

void rpi_dataset_close(rpi_dataset *dataset) {
    rpi_free(dataset->train.pixels);
    rpi_free(dataset->train.labels);
    rpi_free(dataset->test.pixels);
    rpi_free(dataset->test.labels);
    *dataset = (rpi_dataset){0};
}

static int64_t pixels_of(const rpi_images *images) {
    return (int64_t)images->channels * images->height * images->width;
}

void rpi_dataset_measure(const rpi_images *images, float *out_mean, float *out_deviation) {
    int64_t total = images->count * pixels_of(images);
    int64_t histogram[256] = {0};
    for (int64_t i = 0; i < total; i++) histogram[images->pixels[i]]++;
    double sum = 0, squares = 0;
    for (int level = 0; level < 256; level++) {
        double x = level / 255.0, share = (double)histogram[level] / (double)total;
        sum += share * x;
        squares += share * x * x;
    }
    double variance = squares - sum * sum;
    *out_mean = (float)sum;
    /* Images of one colour carry nothing, and must not divide by zero. */
    *out_deviation = variance > 1e-12 ? (float)sqrt(variance) : 1.0f;
}

void rpi_dataset_levels(const rpi_dataset *dataset, int channel, float out_levels[256]) {
    float mean = dataset->mean, deviation = dataset->deviation;
    if (dataset->channel_means) mean = dataset->channel_means[channel];
    if (dataset->channel_deviations) deviation = dataset->channel_deviations[channel];
    for (int level = 0; level < 256; level++)
        out_levels[level] = ((float)level / 255.0f - mean) / deviation;
}

void rpi_dataset_batch(const rpi_dataset *dataset, const rpi_images *images,
                       const uint32_t *indices, int64_t count, float *out_x,
                       int32_t *out_labels) {
    int64_t plane = (int64_t)images->height * images->width, pixels = pixels_of(images);
    for (int c = 0; c < images->channels; c++) {
        float levels[256];
        rpi_dataset_levels(dataset, c, levels);
        for (int64_t i = 0; i < count; i++) {
            const uint8_t *from = images->pixels + indices[i] * pixels + c * plane;
            float *to = out_x + i * pixels + c * plane;
            for (int64_t p = 0; p < plane; p++) to[p] = levels[from[p]];
        }
    }
    for (int64_t i = 0; i < count; i++) out_labels[i] = images->labels[indices[i]];
}
