/* The next token of each: cross-entropy over the vocabulary, at every place of a sequence. */
#include "engine/layers.h"
#include "train/tasks/task.h"

#include <stdio.h>

extern const rpi_task rpi_task_language_model;

static rpi_value_id add_loss(rpi_graph *graph, const char *name, rpi_value_id logits,
                             const rpi_value_id *inputs, rpi_value_id scale, double smoothing) {
    rpi_cross_entropy_attributes attributes = {.smoothing = (float)smoothing};
    return rpi_softmax_cross_entropy_with(graph, name, logits, inputs[1], scale, attributes);
}

/* Parameters do not depend on the length of what they were trained on, and the vocabulary is
 * the model's. */
static void describe(const rpi_data_shape *shape, char *text, size_t bytes) {
    (void)shape;
    snprintf(text, bytes, "tokens");
}

const rpi_task rpi_task_language_model = {
    .name = "language-model",
    .summary = "the next token of each; cross-entropy, perplexity, accuracy",
    .data = "tokens",
    .sample = "sequence",
    .unit = "tokens",
    .advice = "--data tokens:PATH",
    .inputs = {{"tokens", RP_I32, {"batch", "sequence"}, 0},
               {"labels", RP_I32, {"batch", "sequence"}, RPI_TASK_IGNORED}},
    .input_count = 2,
    .add_loss = add_loss,
    .label_input = 1,
    .takes_smoothing = true,
    .has_perplexity = true,
    .describe = describe,
};
