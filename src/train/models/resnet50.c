#include "train/models/resnet.h"

extern const rpi_model rpi_model_resnet50;

static rpi_value_id build(rpi_builder *builder, const void *chosen, const rpi_data_shape *shape,
                          rpi_value_id images) {
    return rpi_resnet_build(builder, chosen, shape, images,
                            (rpi_resnet_layout){.blocks = {3, 4, 6, 3}, .is_bottleneck = true});
}

const rpi_model rpi_model_resnet50 = {
    .name = "resnet50",
    .summary = "ResNet-50, of which small images get a 3x3 stem",
    .task = "classification",
    .options = rpi_resnet_options_table,
    .build = build,
};
