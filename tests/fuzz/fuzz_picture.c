/* Pictures, decoded and resized as training does. The first byte says what of them is shown. */
#include "fuzz_input.h"

#include "train/pictures/augment.h"
#include "train/pictures/picture.h"

enum { SIZE = 8, MOST_PIXELS = 1 << 20 }; /* larger ones are right, but slow */

typedef struct shown {
    rpi_resampler resampler;
    uint8_t choice;
} shown;

static int reduce(void *context, int width, int height) {
    (void)width, (void)height;
    return 1 << (((shown *)context)->choice >> 6);
}

static rp_status begin(void *context, int width, int height, int by) {
    shown *s = context;
    rpi_resampling how;
    rpi_draw draw = {.seed = 1, .epoch = s->choice};
    if (width * (int64_t)height > MOST_PIXELS) return RP_FAIL(UNSUPPORTED, "too slow");
    if (s->choice % 2)
        rpi_augment(rpi_augmentation_at(s->choice / 2 % 3), &draw, width, height, SIZE, &how);
    else
        rpi_centre_crop(width, height, SIZE, &how);
    return rpi_resampler_begin(&s->resampler, &how, by);
}

static void row(void *context, int y, const uint8_t *rgb) {
    shown *s = context;
    rpi_resampler_row(&s->resampler, y, rgb);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    uint8_t out[SIZE * SIZE * RPI_PICTURE_CHANNELS];
    if (bytes < 1) return 0;
    shown s = {.choice = data[0]};
    rpi_picture_sink sink = {.context = &s, .reduce = reduce, .begin = begin, .row = row};
    if (rpi_picture_decode(data + 1, bytes - 1, &sink) == RP_OK)
        rpi_resampler_finish(&s.resampler, out);
    rpi_resampler_close(&s.resampler);
    return 0;
}
