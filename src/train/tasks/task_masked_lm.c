/* BERT's pre-training: the tokens that are hidden, and whether the second piece of text follows
 * the first. */
#include "engine/layers.h"
#include "train/tasks/task.h"

#include <stdio.h>

extern const rpi_task rpi_task_masked_lm;

enum { LABELS = 3, NEXT = 4 };

static rpi_value_id add_loss(rpi_graph *graph, const char *name, rpi_value_id logits,
                             const rpi_value_id *inputs, rpi_value_id scale, double smoothing) {
    (void)name, (void)smoothing;
    return rpi_softmax_cross_entropy(graph, "mlm_loss", logits, inputs[LABELS], scale);
}

static rpi_value_id add_sample_loss(rpi_graph *graph, rpi_value_id logits,
                                    const rpi_value_id *inputs, rpi_value_id scale) {
    return rpi_softmax_cross_entropy(graph, "nsp_loss", logits, inputs[NEXT], scale);
}

/* Parameters do not depend on the length of what they were trained on, and the vocabulary is
 * the model's. */
static void describe(const rpi_data_shape *shape, char *text, size_t bytes) {
    (void)shape;
    snprintf(text, bytes, "pairs of texts with hidden tokens");
}

const rpi_task rpi_task_masked_lm = {
    .name = "masked-lm",
    .summary = "hidden tokens, and whether the second piece of text follows the first; "
               "cross-entropy of both, their accuracies",
    .data = "pairs of texts with hidden tokens",
    .sample = "sequence",
    .unit = "tokens",
    .advice = "--data masked:PATH",
    .inputs = {{"tokens", RP_I32, {"batch", "sequence"}, 0},
               {"segments", RP_I32, {"batch", "sequence"}, 0},
               {"documents", RP_I32, {"batch", "whole"}, -1},
               {"labels", RP_I32, {"batch", "sequence"}, RPI_TASK_IGNORED},
               {"next", RP_I32, {"batch"}, 0}},
    .input_count = 5,
    .add_loss = add_loss,
    .label_input = LABELS,
    .loss_name = "mlm_loss",
    .sample_metric = "nsp",
    .add_sample_loss = add_sample_loss,
    .describe = describe,
};
