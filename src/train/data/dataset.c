#include "train/data/dataset.h"

#include "base/memory.h"
#include "base/suggest.h"
#include "train/data/token_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *name_at(const void *context, int index) {
    const rpi_dataset_kind *kind = ((const rpi_dataset_kind *const *)context)[index];
    return kind ? kind->name : NULL;
}

rp_status rpi_dataset_kind_of(const rpi_dataset_kind *const *kinds, const char *name,
                              const rpi_dataset_kind **out_kind) {
    char word[64];
    int index = 0;
    const char *colon = strchr(name, ':');
    snprintf(word, sizeof word, "%.*s", colon ? (int)(colon - name) : (int)strlen(name), name);
    if (rpi_token_raw_prefix(name))
        return RP_FAIL(INVALID, "ids without a header are read as tokens:%s", name);
    RP_TRY(rpi_name_find("data", word, name_at, kinds, &index));
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

rp_status rpi_dataset_load(const rpi_dataset_kind *kind, const char *name,
                           const rpi_dataset_options *options, rpi_dataset *out_dataset) {
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

rp_status rpi_dataset_probe_of(const rpi_dataset_kind *const *kinds, const char *name,
                               const rpi_dataset_options *options) {
    const rpi_dataset_kind *kind = NULL;
    RP_TRY(rpi_dataset_kind_of(kinds, name, &kind));
    rpi_dataset_options named = *options;
    named.data = name;
    named.kinds = kinds;
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
