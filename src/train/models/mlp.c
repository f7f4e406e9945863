/* Linear layers with ReLU in between: 784-256-10 unless told otherwise. */
#include "engine/layers.h"
#include "train/models/model.h"

#include <stdio.h>

static rpi_value_id build(rpi_builder *builder, const rpi_model_options *options,
                          const rpi_data_shape *shape, rpi_value_id images) {
    rpi_value_id x = rpi_flatten(builder->graph, "flatten", images);
    int in = shape->channels * shape->height * shape->width;
    char name[32];
    for (int i = 0; i < options->hidden_count; i++) {
        snprintf(name, sizeof name, "fc%d", i + 1);
        x = rpi_block_linear(builder, name, x, in, options->hidden[i]);
        snprintf(name, sizeof name, "relu%d", i + 1);
        x = rpi_relu(builder->graph, name, x);
        in = options->hidden[i];
    }
    snprintf(name, sizeof name, "fc%d", options->hidden_count + 1);
    return rpi_block_linear(builder, name, x, in, shape->classes);
}

const rpi_model rpi_model_mlp = {
    .name = "mlp",
    .summary = "linear layers with ReLU; options: hidden=512x256",
    .task = "classification",
    .defaults = {.hidden = {256}, .hidden_count = 1},
    .takes = RPI_TAKES_HIDDEN,
    .build = build,
};
