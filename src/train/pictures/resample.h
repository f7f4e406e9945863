/* Resizing: bilinear with antialiasing, to bytes, row by row as a decoder hands them out.
 *
 * Along one axis, n pixels become m: s = n / m, r = max(s, 1). Pixel j of the result is the sum
 * of w[i] x[i] over trunc(c - r + 1/2) <= i < trunc(c + r + 1/2) within [0, n), with
 *
 *     c = (j + 1/2) s,   w[i] = max(0, 1 - |i + 1/2 - c| / r) / (sum of these),
 *
 * weights rounded to 22 binary places, the sum to the nearest byte. First along rows, then
 * along columns. These are the bytes that Pillow makes with BILINEAR, and so torchvision's
 * transforms of its pictures; integers, so that every machine makes them.
 *
 * A picture may come reduced by b: pixel i of it stands for b i <= i' < b (i + 1). c and s are
 * then those of the whole picture divided by b, so that the same box is shown, whether it
 * begins within such a pixel or not. */
#ifndef RPI_TRAIN_RESAMPLE_H
#define RPI_TRAIN_RESAMPLE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* The box of a picture that is resized, to what size, and the part of the result that is
 * wanted. All within what they are parts of; sizes at least 1. */
typedef struct rpi_resampling {
    int x, y, width, height;     /* box, in pixels of the picture */
    int64_t to_width, to_height; /* of the whole box */
    int64_t first_column, first_row;
    int columns, rows; /* wanted: of the result, from there on */
    bool flips;        /* left and right change places, last of all */
} rpi_resampling;

/* Weights of one axis: pixel j is the sum over taps k of weights[j * most + k] x[first[j] + k].
 */
typedef struct rpi_axis_weights {
    int *first, *count;
    int32_t *weights;
    int most; /* taps of any pixel */
    int size, room;
    int64_t weights_room;
} rpi_axis_weights;

/* Memory is kept for the next picture. Zeros are an empty one. */
typedef struct rpi_resampler {
    rpi_resampling how;
    rpi_axis_weights across, down;
    uint8_t *narrow; /* rows resized across: those that `down` reads */
    int64_t narrow_room;
    int column, row;          /* of the picture as it comes, where the box begins */
    int first_row, row_count; /* of the box, of those */
} rpi_resampler;

/* The most by which a picture may come reduced, 1, 2, 4 or 8, so that it still becomes twice as
 * small behind that each way: what is left out is hardly seen. */
int rpi_resampling_reduction(const rpi_resampling *how);
/* how: of the whole picture; by: what it comes reduced by. */
rp_status rpi_resampler_begin(rpi_resampler *resampler, const rpi_resampling *how, int by);
/* Row y of the picture, 3 bytes a pixel; rows that nothing is made of are passed over. */
void rpi_resampler_row(rpi_resampler *resampler, int y, const uint8_t *rgb);
/* After all rows: rows x columns x 3 bytes. */
void rpi_resampler_finish(const rpi_resampler *resampler, uint8_t *out_rgb);
void rpi_resampler_close(rpi_resampler *resampler);

#endif
