/* Made-up images that can be learnt: every class has a pattern, every image is its pattern and
 * noise. Image i depends on (seed, i) alone. */
#include "train/data/dataset.h"

#include "base/memory.h"
#include "base/rng.h"

enum { CLASSES = 10, DEFAULT_TRAIN = 2048, DEFAULT_TEST = 512, DEFAULT_SIDE = 28 };

/* Streams: patterns first, then training images, then test images far behind them. */
static const uint64_t first_test_stream = UINT64_C(1) << 40;

static void draw_pattern(uint64_t seed, int class_index, int64_t pixels, float *pattern) {
    rpi_rng rng = rpi_rng_make(seed, RPI_RNG_SYNTHETIC, (uint64_t)class_index);
    for (int64_t p = 0; p < pixels; p++) pattern[p] = rpi_rng_uniform(&rng);
}

static uint8_t to_pixel(float value) {
    return (uint8_t)(value < 0 ? 0 : value > 1 ? 255 : (int)(value * 255.0f + 0.5f));
}

static void draw_images(uint64_t seed, uint64_t first_stream, const float *patterns,
                        rpi_images *images) {
    int64_t pixels = (int64_t)images->channels * images->height * images->width;
    for (int64_t i = 0; i < images->count; i++) {
        rpi_rng rng = rpi_rng_make(seed, RPI_RNG_SYNTHETIC, first_stream + (uint64_t)i);
        int label = (int)rpi_rng_below(&rng, CLASSES);
        images->labels[i] = (uint8_t)label;
        for (int64_t p = 0; p < pixels; p++)
            images->pixels[i * pixels + p] =
                to_pixel(0.5f * patterns[label * pixels + p] + 0.5f * rpi_rng_uniform(&rng));
    }
}

static rp_status make_part(const rpi_dataset_options *options, uint64_t first_stream,
                           int64_t count, const float *patterns, rpi_images *images) {
    images->channels = options->channels ? options->channels : 1;
    images->height = options->height ? options->height : DEFAULT_SIDE;
    images->width = options->width ? options->width : DEFAULT_SIDE;
    images->count = count;
    size_t pixels = (size_t)images->channels * (size_t)images->height * (size_t)images->width;
    RP_TRY(rpi_alloc_array((size_t)count, pixels, "made-up images", &images->pixels));
    RP_TRY(rpi_alloc_array((size_t)count, 1, "made-up labels", &images->labels));
    draw_images(options->seed, first_stream, patterns, images);
    return RP_OK;
}

static rp_status load(const rpi_dataset_options *options, rpi_dataset *dataset) {
    int64_t pixels = (int64_t)(options->channels ? options->channels : 1) *
                     (options->height ? options->height : DEFAULT_SIDE) *
                     (options->width ? options->width : DEFAULT_SIDE);
    float *patterns = NULL;
    RP_TRY(rpi_alloc_array((size_t)pixels * CLASSES, sizeof(float), "patterns", &patterns));
    for (int c = 0; c < CLASSES; c++)
        draw_pattern(options->seed, c, pixels, patterns + c * pixels);
    int64_t train = options->train_count ? options->train_count : DEFAULT_TRAIN;
    int64_t test = options->test_count ? options->test_count : DEFAULT_TEST;
    rp_status status = make_part(options, CLASSES, train, patterns, &dataset->train);
    if (status == RP_OK)
        status = make_part(options, first_test_stream, test, patterns, &dataset->test);
    rpi_free(patterns);
    if (status != RP_OK) return status;
    dataset->classes = CLASSES;
    rpi_dataset_measure(&dataset->train, &dataset->mean, &dataset->deviation);
    return RP_OK;
}

const rpi_dataset_kind rpi_dataset_synthetic = {
    .name = "synthetic",
    .summary = "made-up images of 10 classes, from the seed",
    .load = load,
    .source = &rpi_source_images,
};
