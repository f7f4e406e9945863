/* Residual networks of basic blocks (He, Zhang, Ren, Sun 2015), named as torchvision does. */
#ifndef RPI_TRAIN_RESNET_H
#define RPI_TRAIN_RESNET_H

#include "train/models/model.h"

typedef struct rpi_resnet_options {
    int64_t width;    /* channels of the first stage */
    const char *stem; /* "small", or "imagenet": 7x7 with stride 2 and a pooling; NULL: small */
} rpi_resnet_options;

#define RPI_RESNET_WIDTH(fallback)                                                             \
    RPI_MODEL_OPTION("width", RPI_OPTION_COUNT, offsetof(rpi_resnet_options, width), fallback, \
                     1, 65536, "N", "channels of the first stage", NULL)

/* `stages` stages of `blocks` basic blocks each; the first is options->width wide, each further
 * one twice as wide and half as high. Shortcuts that change shape are 1x1 convolutions. */
rpi_value_id rpi_resnet_build(rpi_builder *builder, const rpi_resnet_options *options,
                              const rpi_data_shape *shape, rpi_value_id images, int stages,
                              int blocks);

#endif
