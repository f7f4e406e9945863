/* How pictures are shown to a model: options of those kinds of data that read picture files. */
#ifndef RPI_TRAIN_PICTURE_OPTIONS_H
#define RPI_TRAIN_PICTURE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct rpi_picture_options {
    const char *augment; /* "none", "flip", "standard"; NULL: none */
    int64_t size;        /* pixels a side that a model sees; 0: 224 */
    bool skip_broken;    /* another picture takes the place of one that cannot be decoded; of
                          * rows of JSON: they are left out */
    int64_t threads;     /* that decode; 0: rpi_picture_threads() says */
} rpi_picture_options;

enum { RPI_PICTURE_SIZE = 224, RPI_PICTURE_SIZE_MOST = 1024, RPI_PICTURE_THREADS = 2 };

/* How many decode on a rank that has so many cores: what is asked for, else 2, but no more than
 * can run at once. */
static inline int rpi_picture_threads(int64_t asked, int cores) {
    if (asked > 0) return (int)asked;
    return cores < RPI_PICTURE_THREADS ? cores : RPI_PICTURE_THREADS;
}

#endif
