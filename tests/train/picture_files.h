/* Pictures for tests, drawn and written as files of many kinds. */
#ifndef PICTURE_FILES_H
#define PICTURE_FILES_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* The pixel that every made-up picture has there. */
uint8_t picture_pixel(int x, int y, int channel);
/* width x height x channels of them, by malloc(). */
uint8_t *picture_draw(int width, int height, int channels);

typedef enum picture_kind {
    PICTURE_PNG_RGB,
    PICTURE_PNG_RGBA,
    PICTURE_PNG_GREY,
    PICTURE_PNG_GREY_ALPHA,
    PICTURE_PNG_GREY_1,
    PICTURE_PNG_RGB_16,
    PICTURE_PNG_GREY_16,
    PICTURE_PNG_PALETTE,             /* index i is (i, 255 - i, i / 2) */
    PICTURE_PNG_TRANSPARENT_PALETTE, /* the same, with a transparent entry */
    PICTURE_PNG_INTERLACED,
    PICTURE_JPEG_RGB,
    PICTURE_JPEG_GREY,
    PICTURE_JPEG_PROGRESSIVE,
    PICTURE_JPEG_CMYK,
    PICTURE_KINDS
} picture_kind;

typedef struct picture_file {
    uint8_t *bytes; /* by malloc() */
    size_t count;
} picture_file;

/* Grey kinds hold channel 0; of JPEGs the picture is of one colour, picture_pixel(0, 0, c). */
picture_file picture_encode(picture_kind kind, int width, int height);
/* What decoding it should give: red, green, blue of pixel (x, y). */
uint8_t picture_wanted(picture_kind kind, int x, int y, int channel);

/* Write bytes as a file; folders on the way are made. */
void picture_write(const char *path, const void *bytes, size_t count);
/* An RGB PNG of one colour below the root: ROOT/CLASS/NAME. */
void picture_put(const char *root, const char *class_name, const char *name, int width,
                 int height, const uint8_t rgb[3]);

#endif
