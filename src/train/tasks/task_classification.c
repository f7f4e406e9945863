/* One label a picture: softmax and cross-entropy over the classes. */
#include "engine/layers.h"
#include "train/tasks/task.h"

#include <stdio.h>

extern const rpi_task rpi_task_classification;

static rpi_value_id add_loss(rpi_graph *graph, const char *name, rpi_value_id logits,
                             const rpi_value_id *inputs, rpi_value_id scale, double smoothing) {
    rpi_cross_entropy_attributes attributes = {.smoothing = (float)smoothing};
    return rpi_softmax_cross_entropy_with(graph, name, logits, inputs[1], scale, attributes);
}

static void describe(const rpi_data_shape *shape, char *text, size_t bytes) {
    snprintf(text, bytes, "%dx%dx%d images of %d classes", shape->channels, shape->height,
             shape->width, shape->classes);
}

const rpi_task rpi_task_classification = {
    .name = "classification",
    .summary = "images and their labels; cross-entropy, accuracy",
    .data = "images",
    .sample = "image",
    .unit = "images",
    .advice = "--data images:FOLDER, cifar10:FOLDER, fashion-mnist, idx or synthetic",
    .inputs = {{"images", RP_F32, {"batch", "channels", "height", "width"}, 0},
               {"labels", RP_I32, {"batch"}, 0}},
    .input_count = 2,
    .add_loss = add_loss,
    .takes_smoothing = true,
    .takes_mixing = true,
    .describe = describe,
};
