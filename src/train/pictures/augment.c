#include "train/pictures/augment.h"

#include "base/rng.h"
#include "base/suggest.h"

#include <math.h>

static const rpi_augmentation augmentations[] = {
    {"none", "the centre, as in evaluation", false, false},
    {"flip", "the centre, and half of the pictures mirrored", false, true},
    {"standard", "a random box of 8 to 100 % of the area, and half mirrored", true, true},
};
enum { AUGMENTATIONS = sizeof augmentations / sizeof augmentations[0] };

const rpi_augmentation *rpi_augmentation_at(int index) {
    return index >= 0 && index < AUGMENTATIONS ? &augmentations[index] : NULL;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    return index < AUGMENTATIONS ? augmentations[index].name : NULL;
}

rp_status rpi_augmentation_find(const char *name, const rpi_augmentation **out_augmentation) {
    int index = 0;
    if (name) RP_TRY(rpi_name_find("augmentation", name, name_at, NULL, &index));
    *out_augmentation = &augmentations[index];
    return RP_OK;
}

/* ---- the centre ---- */

/* round(n / 2), halves to the even number, as torchvision's. */
static int64_t half_of(int64_t n) {
    return n / 2 + (n % 4 == 3);
}

void rpi_centre_crop(int width, int height, int size, rpi_resampling *out_how) {
    int64_t shorter = ((int64_t)size * 16 + 7) / 14; /* 8/7, to the nearest */
    int64_t w = width <= height ? shorter : shorter * width / height;
    int64_t h = width <= height ? shorter * height / width : shorter;
    *out_how = (rpi_resampling){.width = width,
                                .height = height,
                                .to_width = w,
                                .to_height = h,
                                .first_column = half_of(w - size),
                                .first_row = half_of(h - size),
                                .columns = size,
                                .rows = size};
}

/* ---- a random box ---- */

enum { ATTEMPTS = 10 };
#define LEAST_AREA     0.08
#define LEAST_RATIO    (3.0 / 4.0)
#define MOST_RATIO     (4.0 / 3.0)
#define LOG_MOST_RATIO 0.28768207245178085 /* ln(4/3) */

/* e^x for |x| < 0.3 by its series: the C library's may differ in its last bit. */
static double small_exp(double x) {
    double term = 1, sum = 1;
    for (int n = 1; n <= 14; n++) {
        term = term * x / n;
        sum += term;
    }
    return sum;
}

static double uniform(rpi_rng *rng) {
    return (double)rpi_rng_u32(rng) * 0x1p-32;
}

static bool draw_box(rpi_rng *rng, rpi_resampling *how, int width, int height) {
    double area = (double)width * height * (LEAST_AREA + (1 - LEAST_AREA) * uniform(rng));
    double ratio = small_exp(LOG_MOST_RATIO * (2 * uniform(rng) - 1));
    double w = rint(sqrt(area * ratio)), h = rint(sqrt(area / ratio));
    if (!(w >= 1 && w <= width && h >= 1 && h <= height)) return false;
    how->width = (int)w;
    how->height = (int)h;
    how->y = (int)rpi_rng_below(rng, (uint32_t)(height - how->height + 1));
    how->x = (int)rpi_rng_below(rng, (uint32_t)(width - how->width + 1));
    return true;
}

static void largest_box(rpi_resampling *how, int width, int height) {
    double ratio = (double)width / height;
    how->width = ratio > MOST_RATIO ? (int)rint(height * MOST_RATIO) : width;
    how->height = ratio < LEAST_RATIO ? (int)rint(width / LEAST_RATIO) : height;
    how->x = (width - how->width) / 2;
    how->y = (height - how->height) / 2;
}

static void random_box(rpi_rng *rng, int width, int height, int size, rpi_resampling *how) {
    *how = (rpi_resampling){.to_width = size, .to_height = size, .columns = size, .rows = size};
    for (int i = 0; i < ATTEMPTS; i++)
        if (draw_box(rng, how, width, height)) return;
    largest_box(how, width, height);
}

static rpi_rng stream_of(const rpi_draw *draw) {
    return rpi_rng_make(draw->seed, RPI_RNG_AUGMENT,
                        (uint64_t)draw->epoch << 32 | (uint64_t)draw->picture);
}

void rpi_augment(const rpi_augmentation *augmentation, const rpi_draw *draw, int width,
                 int height, int size, rpi_resampling *out_how) {
    rpi_rng rng = stream_of(draw);
    /* Whether it is mirrored is drawn first: the same with every augmentation that mirrors. */
    bool flips = rpi_rng_u32(&rng) >> 31;
    if (augmentation->crops)
        random_box(&rng, width, height, size, out_how);
    else
        rpi_centre_crop(width, height, size, out_how);
    out_how->flips = augmentation->flips && flips;
}

rpi_shift rpi_augment_shift(const rpi_augmentation *augmentation, const rpi_draw *draw,
                            int width, int height) {
    rpi_rng rng = stream_of(draw);
    int most_right = width / 8, most_down = height / 8;
    bool flips = rpi_rng_u32(&rng) >> 31;
    rpi_shift shift = {.flips = augmentation->flips && flips};
    if (!augmentation->crops) return shift;
    shift.right = (int)rpi_rng_below(&rng, 2 * (uint32_t)most_right + 1) - most_right;
    shift.down = (int)rpi_rng_below(&rng, 2 * (uint32_t)most_down + 1) - most_down;
    return shift;
}
