/* Pictures of a folder as samples: decoded, cut and resized to bytes. */
#ifndef RPI_TRAIN_PICTURE_SET_H
#define RPI_TRAIN_PICTURE_SET_H

#include "train/data/picture_folder.h"
#include "train/pictures/augment.h"

#include <pthread.h>

enum { RPI_LABEL_IGNORED = -100 }; /* of softmax cross-entropy */

typedef struct rpi_picture_set {
    const rpi_picture_folder *folder;
    const uint32_t *indices; /* of its pictures, one a sample; NULL: all, in order */
    int64_t count;           /* samples */
    int size;
    /* Of training; NULL: for evaluation. */
    const rpi_augmentation *augmentation;
    uint64_t seed;

    bool skips_broken;
    pthread_mutex_t lock; /* of what follows */
    uint8_t *is_broken;   /* a bit for each picture of the folder that was met */
    int64_t broken;
} rpi_picture_set;

/* What one thread needs; its memory serves one picture after the other. Zeros are an empty one.
 */
typedef struct rpi_picture_reader {
    rpi_resampler resampler;
    const rpi_picture_set *set;
    rpi_draw draw;
} rpi_picture_reader;

/* `set` with its first six fields filled in. */
rp_status rpi_picture_set_open(rpi_picture_set *set, bool skips_broken);
void rpi_picture_set_close(rpi_picture_set *set); /* after open alone */

/* Sample as it is shown in an epoch: size x size x 3 bytes, and its label. A broken picture
 * fails with its path, what is wrong with it, and where. With skips_broken it is warned of
 * once; in training the next whole one of the list is shown in its place, in evaluation the
 * label is RPI_LABEL_IGNORED. Any threads, each with a reader of its own. */
rp_status rpi_picture_set_read(rpi_picture_set *set, rpi_picture_reader *reader, int64_t sample,
                               int64_t epoch, uint8_t *out_rgb, int32_t *out_label);
void rpi_picture_reader_close(rpi_picture_reader *reader);

#endif
