#include "train/models/resnet.h"

static rpi_value_id build(rpi_builder *builder, const rpi_model_options *options,
                          const rpi_data_shape *shape, rpi_value_id images) {
    return rpi_resnet_build(builder, options, shape, images, 3, 3);
}

const rpi_model rpi_model_resnet20 = {
    .name = "resnet20",
    .summary = "ResNet-20 of the CIFAR kind, 16-32-64 channels; options: width=16",
    .task = "classification",
    .defaults = {.width = 16},
    .takes = RPI_TAKES_WIDTH,
    .build = build,
};
