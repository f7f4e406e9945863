/* Pictures as files hold them, and the contract of a format, which pictures.c lists. A new
 * format is one file that exports one `const rpi_picture_format`, one row in pictures.c and one
 * word in CMakeLists.txt.
 *
 * A decoder hands out rows as it makes them, so that a picture whose rows follow each other in
 * its file (baseline JPEG, PNG without interlacing) is never in memory as a whole. Every pixel
 * comes as three bytes, red, green, blue; grey has them equal, an alpha channel is left out,
 * colours are those of the file, whatever its profile says. */
#ifndef RPI_TRAIN_PICTURE_H
#define RPI_TRAIN_PICTURE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RPI_PICTURE_CHANNELS = 3,
    /* A header that says more is refused before anything of the size is allocated. */
    RPI_PICTURE_MOST_PIXELS = 1 << 26,
    RPI_PICTURE_MOST_SIDE = 65535,
    RPI_PICTURE_MOST_BYTES = 1 << 28 /* of a file */
};

/* A picture that is reduced by n has a pixel for each n x n of its own, the last ones of a row
 * or column for what is left. */
static inline int rpi_picture_reduced(int side, int by) {
    return (side + by - 1) / by;
}

typedef struct rpi_picture_sink {
    void *context;
    /* Of a picture of that size: by how much it may come reduced, 1, 2, 4 or 8. NULL: 1. */
    int (*reduce)(void *context, int width, int height);
    /* The size is known, and is allowed; rows of it follow, reduced by as much: no more than
     * allowed, and 1 of formats that cannot. */
    rp_status (*begin)(void *context, int width, int height, int by);
    /* Row y of 3 bytes a pixel, borrowed for the call; from 0 on. */
    void (*row)(void *context, int y, const uint8_t *rgb);
} rpi_picture_sink;

typedef struct rpi_picture_format {
    const char *name;            /* "JPEG" */
    const char *package;         /* Debian's, which brings the library */
    const char *const *suffixes; /* of file names: ".jpg"; NULL ends them */
    const uint8_t *magic;        /* first bytes of every file */
    int magic_bytes;
    /* All of it: a file that ends early or is damaged fails with RP_CORRUPT, in the decoder's
     * words and with the offset that it had come to, after any number of rows. NULL: this build
     * is without the library. */
    rp_status (*decode)(const uint8_t *bytes, size_t count, const rpi_picture_sink *sink);
} rpi_picture_format;

/* The catalogue; NULL past the end. */
const rpi_picture_format *rpi_picture_format_at(int index);
/* By the end of a file's name, in small or capital letters; NULL: no picture. */
const rpi_picture_format *rpi_picture_format_of_name(const char *name);
/* RP_UNSUPPORTED: the library is missing in this build, and the package that brings it. */
rp_status rpi_picture_format_check(const rpi_picture_format *format);

/* What the first bytes say counts, not the name. RP_CORRUPT: damaged, no picture, or larger
 * than allowed. RP_UNSUPPORTED: see above. Memory: some rows; of progressive JPEGs and
 * interlaced PNGs up to 6 bytes a pixel. */
rp_status rpi_picture_decode(const uint8_t *bytes, size_t count, const rpi_picture_sink *sink);

/* For decoders, as soon as they know it. */
rp_status rpi_picture_check_size(uint64_t width, uint64_t height);

#endif
