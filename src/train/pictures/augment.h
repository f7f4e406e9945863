/* What of a picture is shown: the same in every evaluation, and in training drawn anew in each
 * epoch.
 *
 * An evaluation resizes the shorter side to 8/7 of the size (256 for 224) and takes the centre.
 * Training does the same, or as its augmentation says:
 *
 *     flip       left and right change places with probability 1/2
 *     standard   that, and instead of the centre a box of 8 % to 100 % of the area, its sides
 *                3:4 to 4:3 (both uniform, the ratio in its logarithm), resized to the size;
 *                after ten boxes that do not fit, the largest of these ratios in the centre
 *
 * (Szegedy and others, "Going deeper with convolutions", 2014; rounding as torchvision's.)
 * Draws are of the Philox stream (seed, augment, epoch 2^32 + picture): they depend on nothing
 * else, be it the number of threads or of ranks, or whether a run was resumed. */
#ifndef RPI_TRAIN_AUGMENT_H
#define RPI_TRAIN_AUGMENT_H

#include "train/pictures/resample.h"

typedef struct rpi_augmentation {
    const char *name, *summary;
    bool crops, flips; /* crops: a random box, or a shift */
} rpi_augmentation;

/* The catalogue; NULL past the end. */
const rpi_augmentation *rpi_augmentation_at(int index);
/* NULL: none. RP_INVALID names those there are. */
rp_status rpi_augmentation_find(const char *name, const rpi_augmentation **out_augmentation);

/* Which picture, when. */
typedef struct rpi_draw {
    uint64_t seed;
    int64_t epoch, picture; /* both below 2^32 */
} rpi_draw;

/* Of a picture of width x height, for a result of size x size. */
void rpi_augment(const rpi_augmentation *augmentation, const rpi_draw *draw, int width,
                 int height, int size, rpi_resampling *out_how);
/* Of images that are as small as a model sees them, such as CIFAR's: `standard` moves them by
 * up to an eighth of a side, 4 of 32 pixels, each way; black comes in. Mirrored afterwards. */
typedef struct rpi_shift {
    int right, down;
    bool flips;
} rpi_shift;
rpi_shift rpi_augment_shift(const rpi_augmentation *augmentation, const rpi_draw *draw,
                            int width, int height);

void rpi_centre_crop(int width, int height, int size, rpi_resampling *out_how);

#endif
