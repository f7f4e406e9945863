#include "train/models/resnet.h"

static rpi_value_id build(rpi_builder *builder, const rpi_model_options *options,
                          const rpi_data_shape *shape, rpi_value_id images) {
    return rpi_resnet_build(builder, options, shape, images, 4, 2);
}

const rpi_model rpi_model_resnet18 = {
    .name = "resnet18",
    .summary = "ResNet-18, 3x3 stem for small images; options: width=64, stem=imagenet",
    .task = "classification",
    .defaults = {.width = 64},
    .takes = RPI_TAKES_WIDTH | RPI_TAKES_STEM,
    .build = build,
};
