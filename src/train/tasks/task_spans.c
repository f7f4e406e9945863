/* Answers to questions as spans of a text, as in SQuAD: the token at which the answer begins,
 * and its last one; both are the first token where the text has none. */
#include "engine/layers.h"
#include "train/tasks/task.h"

#include <stdio.h>

extern const rpi_task rpi_task_spans;

enum { OUTSIDE = 3, ENDS = 4 };

/* The mean of both ends' cross-entropies over the tokens. What fills a row up is far below all
 * others: it takes no part in the softmax. */
static rpi_value_id add_loss(rpi_graph *graph, const char *name, rpi_value_id logits,
                             const rpi_value_id *inputs, rpi_value_id scale, double smoothing) {
    (void)smoothing;
    rpi_value_id inside = rpi_add(graph, "outside.add", logits, inputs[OUTSIDE]);
    return rpi_softmax_cross_entropy(graph, name, inside, inputs[ENDS], scale);
}

/* Parameters do not depend on the length of what they were trained on, and the vocabulary is
 * the model's. */
static void describe(const rpi_data_shape *shape, char *text, size_t bytes) {
    (void)shape;
    snprintf(text, bytes, "questions with spans of texts");
}

const rpi_task rpi_task_spans = {
    .name = "spans",
    .summary = "where in a text the answer to a question begins and ends; cross-entropy over "
               "the tokens, exact match and F1",
    .data = "questions with spans of texts",
    .sample = "window",
    .unit = "tokens",
    .advice = "--data spans:FILE.json,tokenizer=NAME",
    .inputs = {{"tokens", RP_I32, {"batch", "sequence"}, 0},
               {"segments", RP_I32, {"batch", "sequence"}, 0},
               {"documents", RP_I32, {"batch", "whole"}, -1},
               {"outside", RP_F32, {"batch", "2", "whole"}, RPI_TASK_FAR_BELOW},
               {"ends", RP_I32, {"batch", "2"}, 0}},
    .input_count = 5,
    .add_loss = add_loss,
    .label_input = ENDS,
    .judges_logits = true,
    .describe = describe,
};
