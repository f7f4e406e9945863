#include "train/models/resnet.h"

#include "base/status.h"

#include <string.h>

extern const rpi_model rpi_model_resnet18;

static rp_status check_stem(const char *text) {
    if (strcmp(text, "small") == 0 || strcmp(text, "imagenet") == 0) return RP_OK;
    return RP_FAIL(INVALID, "'%s' is no stem; small or imagenet", text);
}

static const rpi_option options[] = {
    RPI_RESNET_WIDTH("64"),
    RPI_MODEL_OPTION("stem", RPI_OPTION_TEXT, offsetof(rpi_resnet_options, stem), "small", 0, 0,
                     "small|imagenet", "3x3, or imagenet: 7x7 with stride 2 and a pooling",
                     check_stem),
    {0},
};

static rpi_value_id build(rpi_builder *builder, const void *chosen, const rpi_data_shape *shape,
                          rpi_value_id images) {
    return rpi_resnet_build(builder, chosen, shape, images, 4, 2);
}

const rpi_model rpi_model_resnet18 = {
    .name = "resnet18",
    .summary = "ResNet-18, 3x3 stem for small images",
    .task = "classification",
    .options = options,
    .build = build,
};
