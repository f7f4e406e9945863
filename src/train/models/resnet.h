/* Residual networks (He, Zhang, Ren, Sun, "Deep residual learning for image recognition",
 * 2015), named as torchvision does. A depth is a file that says its blocks. */
#ifndef RPI_TRAIN_RESNET_H
#define RPI_TRAIN_RESNET_H

#include "train/models/image_norm.h"

typedef struct rpi_resnet_options {
    int64_t width;    /* channels of the first stage */
    const char *stem; /* "small", "imagenet": 7x7 with stride 2 and a pooling, or "auto": by the
                         images' size; NULL: small */
    bool zero_init_residual; /* the last norm of a block starts at 0 */
    rpi_image_norm norm;
} rpi_resnet_options;

#define RPI_RESNET_WIDTH(fallback)                                                             \
    RPI_MODEL_OPTION("width", RPI_OPTION_COUNT, offsetof(rpi_resnet_options, width), fallback, \
                     1, 65536, "N", "channels of the first stage", NULL)

/* width=64, stem=auto, zero-init-residual and norm: those of the networks of the paper's
 * table 1. */
extern const rpi_option rpi_resnet_options_table[];

enum { RPI_RESNET_STAGES = 4 };

typedef struct rpi_resnet_layout {
    int blocks[RPI_RESNET_STAGES]; /* in each stage; 0: there are no more stages */
    bool is_bottleneck;            /* blocks of 1x1, 3x3, 1x1; else of two 3x3 */
} rpi_resnet_layout;

/* The first stage is options->width wide, each further one twice as wide and half as high.
 * Shortcuts that change shape are 1x1 convolutions. */
rpi_value_id rpi_resnet_build(rpi_builder *builder, const rpi_resnet_options *options,
                              const rpi_data_shape *shape, rpi_value_id images,
                              rpi_resnet_layout layout);

#endif
