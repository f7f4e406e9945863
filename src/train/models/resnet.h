/* Residual networks of basic blocks (He, Zhang, Ren, Sun 2015), named as torchvision does. */
#ifndef RPI_TRAIN_RESNET_H
#define RPI_TRAIN_RESNET_H

#include "train/models/model.h"

/* `stages` stages of `blocks` basic blocks each; the first is options->width wide, each further
 * one twice as wide and half as high. Shortcuts that change shape are 1x1 convolutions. */
rpi_value_id rpi_resnet_build(rpi_builder *builder, const rpi_model_options *options,
                              const rpi_data_shape *shape, rpi_value_id images, int stages,
                              int blocks);

#endif
