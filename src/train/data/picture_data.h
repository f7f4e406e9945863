/* What a user names as pictures to learn from: "images:PATH[,validation=PATH or SHARE]
 * [,normalize=imagenet or half]". */
#ifndef RPI_TRAIN_PICTURE_DATA_H
#define RPI_TRAIN_PICTURE_DATA_H

#include "train/data/picture_folder.h"

typedef struct rpi_picture_data {
    rpi_picture_folder train, validation; /* validation empty: a part of `train` */
    /* Pictures of `train`: those to learn from, then those held out of it. NULL: all are to
     * learn from. */
    uint32_t *split;
    int64_t train_count, test_count;
    const struct rpi_picture_scale *scale;
} rpi_picture_data;

/* A colour's level of 0 to 1 becomes (level - mean) / deviation. */
typedef struct rpi_picture_scale {
    const char *name; /* behind normalize= */
    double mean[3], deviation[3];
} rpi_picture_scale;

/* The catalogue, NULL past the end; the first is what is taken where nothing is said. */
const rpi_picture_scale *rpi_picture_scale_at(int index);
/* That of a text, without a look at any folder; the text is "images:...". */
rp_status rpi_picture_scale_of(const char *text, const rpi_picture_scale **out_scale);

/* PATH holds a sub-folder for each class, one may be called `train`
 * (rpi_picture_folder_has_part()), or a part `train` and beside it `val` (or `validation`,
 * `valid`, `test`), or is itself such a `train`; what is held out where there is no second
 * folder, and none is named: every 20th picture. Failures as of rpi_picture_folder_open(). */
rp_status rpi_picture_data_open(const char *text, rpi_picture_data *out_data);
void rpi_picture_data_close(rpi_picture_data *data); /* zeros are fine */

#endif
