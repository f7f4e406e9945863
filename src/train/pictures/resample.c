#include "train/pictures/resample.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { PLACES = 22, CHANNELS = 3 };
static const int32_t half = 1 << (PLACES - 1);

/* Room for `count` elements, at least; what was there is not kept. */
static rp_status make_room(int64_t count, size_t bytes, int64_t *room, void *in_out_array) {
    void **array = in_out_array;
    if (count <= *room) return RP_OK;
    rpi_free(*array);
    *array = NULL;
    *room = 0;
    RP_TRY(rpi_alloc_array((size_t)count, bytes, "a picture's weights", array));
    *room = count;
    return RP_OK;
}

/* ---- weights ---- */

typedef struct axis {
    int at, from;  /* the box: its first pixel, how many, of the whole picture */
    int64_t to;    /* they become so many, */
    int64_t first; /* of which these are wanted */
    int count;
    int by; /* the picture comes reduced */
} axis;

static rp_status make_axis_room(rpi_axis_weights *w, int count, int most) {
    if (count > w->room) {
        rpi_free(w->first);
        rpi_free(w->count);
        w->first = w->count = NULL;
        w->room = 0;
        RP_TRY(rpi_alloc_array((size_t)count, sizeof(int), "a picture's weights", &w->first));
        RP_TRY(rpi_alloc_array((size_t)count, sizeof(int), "a picture's weights", &w->count));
        w->room = count;
    }
    w->size = count;
    w->most = most;
    return make_room((int64_t)count * most, sizeof(int32_t), &w->weights_room, &w->weights);
}

static int clip(double place, int size) {
    return place < 0 ? 0 : place > size ? size : (int)place;
}

/* The weights of pixel j of the wanted ones. */
static void weigh(const axis *a, rpi_axis_weights *w, int j, double *taps) {
    double whole_step = (double)a->from / (double)a->to, step = whole_step / a->by;
    double reach = step > 1 ? step : 1, inverse = 1 / reach, sum = 0;
    double centre = (a->at % a->by + ((double)(a->first + j) + 0.5) * whole_step) / a->by;
    int size = (a->at + a->from + a->by - 1) / a->by - a->at / a->by;
    int first = clip(centre - reach + 0.5, size);
    int count = clip(centre + reach + 0.5, size) - first;
    for (int k = 0; k < count; k++) {
        double distance = fabs((k + first - centre + 0.5) * inverse);
        taps[k] = distance < 1 ? 1 - distance : 0;
        sum += taps[k];
    }
    w->first[j] = first;
    w->count[j] = count;
    int32_t *rounded = w->weights + (int64_t)j * w->most;
    for (int k = 0; k < count; k++)
        rounded[k] = (int32_t)(0.5 + taps[k] / sum * (double)(1 << PLACES));
}

static rp_status weigh_axis(const axis *a, rpi_axis_weights *w) {
    double step = (double)a->from / (double)a->to / a->by, *taps = NULL;
    int most = (int)ceil(step > 1 ? step : 1) * 2 + 1;
    RP_TRY(make_axis_room(w, a->count, most));
    RP_TRY(rpi_alloc_array((size_t)most, sizeof *taps, "a picture's weights", &taps));
    for (int j = 0; j < a->count; j++) weigh(a, w, j, taps);
    rpi_free(taps);
    return RP_OK;
}

static bool stays_large(int from, int64_t to, int by) {
    return from / by >= 2 * to;
}

int rpi_resampling_reduction(const rpi_resampling *how) {
    int by = 8;
    while (by > 1 && !(stays_large(how->width, how->to_width, by) &&
                       stays_large(how->height, how->to_height, by)))
        by /= 2;
    return by;
}

rp_status rpi_resampler_begin(rpi_resampler *r, const rpi_resampling *how, int by) {
    r->how = *how;
    r->column = how->x / by;
    r->row = how->y / by;
    axis across = {how->x, how->width, how->to_width, how->first_column, how->columns, by};
    axis down = {how->y, how->height, how->to_height, how->first_row, how->rows, by};
    RP_TRY(weigh_axis(&across, &r->across));
    RP_TRY(weigh_axis(&down, &r->down));
    int last = how->rows - 1;
    r->first_row = r->down.first[0];
    r->row_count = r->down.first[last] + r->down.count[last] - r->first_row;
    return make_room((int64_t)r->row_count * how->columns * CHANNELS, 1, &r->narrow_room,
                     &r->narrow);
}

/* ---- along rows ---- */

void rpi_resampler_row(rpi_resampler *r, int y, const uint8_t *rgb) {
    int place = y - r->row - r->first_row;
    if (place < 0 || place >= r->row_count) return;
    const rpi_axis_weights *w = &r->across;
    const uint8_t *box = rgb + (size_t)r->column * CHANNELS;
    uint8_t *out = r->narrow + (int64_t)place * r->how.columns * CHANNELS;
    for (int j = 0; j < w->size; j++, out += CHANNELS) {
        const int32_t *weights = w->weights + (int64_t)j * w->most;
        const uint8_t *x = box + (size_t)w->first[j] * CHANNELS;
        int32_t red = half, green = half, blue = half;
        for (int k = 0; k < w->count[j]; k++, x += CHANNELS) {
            red += weights[k] * x[0];
            green += weights[k] * x[1];
            blue += weights[k] * x[2];
        }
        /* Weights are not negative, and rounded they add up to little more than 1. */
        out[0] = (uint8_t)(red >> PLACES > 255 ? 255 : red >> PLACES);
        out[1] = (uint8_t)(green >> PLACES > 255 ? 255 : green >> PLACES);
        out[2] = (uint8_t)(blue >> PLACES > 255 ? 255 : blue >> PLACES);
    }
}

/* ---- along columns ---- */

enum { STRIP = 256 }; /* sums that stay in the first cache */

static void sum_strip(const rpi_resampler *r, int j, int64_t first, int count, uint8_t *out) {
    const rpi_axis_weights *w = &r->down;
    const int32_t *weights = w->weights + (int64_t)j * w->most;
    int64_t bytes = (int64_t)r->how.columns * CHANNELS;
    const uint8_t *x = r->narrow + (w->first[j] - r->first_row) * bytes + first;
    int32_t sums[STRIP];
    for (int i = 0; i < count; i++) sums[i] = half;
    for (int k = 0; k < w->count[j]; k++, x += bytes) {
        int32_t weight = weights[k];
        for (int i = 0; i < count; i++) sums[i] += weight * x[i];
    }
    for (int i = 0; i < count; i++) {
        int32_t value = sums[i] >> PLACES;
        out[i] = (uint8_t)(value > 255 ? 255 : value);
    }
}

static void flip(uint8_t *row, int columns) {
    for (int left = 0, right = columns - 1; left < right; left++, right--) {
        uint8_t pixel[CHANNELS];
        memcpy(pixel, row + (size_t)left * CHANNELS, CHANNELS);
        memcpy(row + (size_t)left * CHANNELS, row + (size_t)right * CHANNELS, CHANNELS);
        memcpy(row + (size_t)right * CHANNELS, pixel, CHANNELS);
    }
}

void rpi_resampler_finish(const rpi_resampler *r, uint8_t *out_rgb) {
    int64_t bytes = (int64_t)r->how.columns * CHANNELS;
    for (int j = 0; j < r->how.rows; j++, out_rgb += bytes) {
        for (int64_t first = 0; first < bytes; first += STRIP) {
            int64_t left = bytes - first;
            sum_strip(r, j, first, left < STRIP ? (int)left : STRIP, out_rgb + first);
        }
        if (r->how.flips) flip(out_rgb, r->how.columns);
    }
}

static void close_axis(rpi_axis_weights *w) {
    rpi_free(w->first);
    rpi_free(w->count);
    rpi_free(w->weights);
}

void rpi_resampler_close(rpi_resampler *r) {
    close_axis(&r->across);
    close_axis(&r->down);
    rpi_free(r->narrow);
    *r = (rpi_resampler){0};
}
