/* The norm behind a convolution, which a user may choose: norm=batch, or norm=group (Wu, He,
 * "Group normalization", 2018), which sees one image at a time and so does not care what else
 * is in a batch. */
#ifndef RPI_TRAIN_IMAGE_NORM_H
#define RPI_TRAIN_IMAGE_NORM_H

#include "train/models/model.h"

typedef struct rpi_image_norm {
    const char *kind; /* "batch" or "group" */
    int64_t groups;   /* 0: rpi_image_norm_groups() */
} rpi_image_norm;

rp_status rpi_image_norm_check_kind(const char *text);

/* Rows of a model's option table; `member` is the rpi_image_norm of its options. */
#define RPI_IMAGE_NORM_OPTIONS(type, member)                                                   \
    RPI_MODEL_OPTION("norm", RPI_OPTION_TEXT, offsetof(type, member.kind), "batch", 0, 0,      \
                     "batch|group",                                                            \
                     "behind convolutions: batch norm, or group norm, which "                  \
                     "sees one image at a time",                                               \
                     rpi_image_norm_check_kind),                                               \
        RPI_MODEL_OPTION("groups", RPI_OPTION_COUNT, offsetof(type, member.groups), "0", 0,    \
                         65536, "N",                                                           \
                         "of norm=group, in each layer; 0: as many as divide its channels, "   \
                         "up to 32, of 8 channels or more",                                    \
                         NULL)

/* Of `channels` where none are chosen: the most that divide them, up to the 32 of the paper,
 * with 8 channels in each: statistics of few are poor where images have become small. */
int64_t rpi_image_norm_groups(int64_t channels);

/* Batch norm as rpi_block_batch_norm; or group norm with name.weight as `init` says and
 * name.bias 0, and no states. */
rpi_value_id rpi_block_image_norm(rpi_builder *builder, const rpi_image_norm *norm,
                                  const char *name, rpi_value_id x, int channels,
                                  rpi_init_rule init);

#endif
