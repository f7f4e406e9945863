#include "train/models/resnet.h"

extern const rpi_model rpi_model_resnet20;

static const rpi_option options[] = {
    RPI_RESNET_WIDTH("16"),
    RPI_IMAGE_NORM_OPTIONS(rpi_resnet_options, norm),
    {0},
};

static rpi_value_id build(rpi_builder *builder, const void *chosen, const rpi_data_shape *shape,
                          rpi_value_id images) {
    return rpi_resnet_build(builder, chosen, shape, images,
                            (rpi_resnet_layout){.blocks = {3, 3, 3}});
}

const rpi_model rpi_model_resnet20 = {
    .name = "resnet20",
    .summary = "ResNet-20 of the CIFAR kind, 16-32-64 channels",
    .task = "classification",
    .options = options,
    .build = build,
};
