/* Images with labels, held in memory; the contract of a kind, which datasets.c lists.
 *
 * A new kind is one file that exports one `const rpi_dataset_kind`, one row in datasets.c and
 * one word in CMakeLists.txt. Pixels stay bytes; a batch is normalised as it is dealt: x =
 * (pixel / 255 - mean) / deviation, with one mean and one deviation for all channels, or with
 * those of each. */
#ifndef RPI_TRAIN_DATASET_H
#define RPI_TRAIN_DATASET_H

#include "base/status.h"
#include "train/data/picture_options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rpi_images {
    int64_t count;
    int channels, height, width;
    uint8_t *pixels; /* count x channels x height x width */
    uint8_t *labels; /* count, each below the dataset's classes */
} rpi_images;

typedef struct rpi_dataset {
    rpi_images train, test; /* of one shape */
    int classes;
    float mean, deviation; /* of pixels / 255 */
    /* Of each channel, instead of the two; borrowed, or NULL. */
    const float *channel_means, *channel_deviations;
} rpi_dataset;

typedef struct rpi_dataset_options {
    const char *data;                /* as the user wrote it: "fashion-mnist", "tokens:PATH" */
    int64_t sequence;                /* of tokens; 0: 256 */
    const char *folder;              /* NULL: where the kind looks by itself */
    uint64_t seed;                   /* of made-up data */
    int64_t train_count, test_count; /* of made-up data; 0: 2048 and 512 */
    int channels, height, width;     /* of made-up data; 0: 1, 28, 28 */
    rpi_picture_options pictures;    /* of kinds that take them */
    /* The catalogue, for data made of other data; set by rpi_dataset_probe. */
    const struct rpi_dataset_kind *const *kinds;
} rpi_dataset_options;

typedef struct rpi_dataset_kind {
    const char *name, *summary;
    bool takes_text;     /* "name:text" rather than "name" */
    bool takes_pictures; /* options of picture files mean something */
    bool skips_broken;   /* and so does --skip-broken, of rows */
    /* Fill in *dataset, which is all zeros; what was allocated is the caller's to free, also
     * after a failure. Messages name the file and what to do. */
    /* Kinds whose source is rpi_source_images only. */
    rp_status (*load)(const rpi_dataset_options *options, rpi_dataset *dataset);
    const struct rpi_source_kind *source; /* what makes batches of them */
    /* Are the files there? Quick, for a check before ranks start. NULL: there are none. */
    rp_status (*probe)(const rpi_dataset_options *options);
} rpi_dataset_kind;

extern const struct rpi_source_kind rpi_source_images; /* of kinds that load images */

/* The catalogue; NULL past the end. */
const rpi_dataset_kind *rpi_dataset_kind_at(int index);
/* Of "name" or "name:text". RP_INVALID names those there are, and the nearest. */
rp_status rpi_dataset_kind_find(const char *name, const rpi_dataset_kind **out_kind);

/* ---- of the kinds of a catalogue, of which the last is NULL ---- */

rp_status rpi_dataset_kind_of(const rpi_dataset_kind *const *kinds, const char *name,
                              const rpi_dataset_kind **out_kind);
rp_status rpi_dataset_probe_of(const rpi_dataset_kind *const *kinds, const char *name,
                               const rpi_dataset_options *options);
/* As rpi_dataset_open, of the name's kind. */
rp_status rpi_dataset_load(const rpi_dataset_kind *kind, const char *name,
                           const rpi_dataset_options *options, rpi_dataset *out_dataset);

/* ---- images ---- */

/* Load and check what every dataset promises (see the structs). On failure nothing is left. */
rp_status rpi_dataset_open(const char *name, const rpi_dataset_options *options,
                           rpi_dataset *out_dataset);
/* Do the words go together? RP_INVALID: an option that would do nothing. */
rp_status rpi_dataset_check(const char *name, const rpi_picture_options *pictures);
rp_status rpi_dataset_probe(const char *name, const rpi_dataset_options *options);
void rpi_dataset_close(rpi_dataset *dataset); /* zeros are fine */

/* mean and deviation over all pixels of `images`, in double precision. */
void rpi_dataset_measure(const rpi_images *images, float *out_mean, float *out_deviation);

/* What becomes of each level of a pixel in this channel. */
void rpi_dataset_levels(const rpi_dataset *dataset, int channel, float out_levels[256]);
/* The images with these indices as floats (count x channels x height x width), and their
 * labels. */
void rpi_dataset_batch(const rpi_dataset *dataset, const rpi_images *images,
                       const uint32_t *indices, int64_t count, float *out_x,
                       int32_t *out_labels);

#endif
