#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_softmax_cross_entropy;

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    (void)input_count;
    const rpi_cross_entropy_attributes *loss = attributes;
    char text[96], other[96];
    rpi_shape rows = inputs[0];
    if (!(loss->smoothing >= 0 && loss->smoothing <= 1))
        return RP_FAIL(INVALID, "smoothing is %g; 0 to 1 are allowed", (double)loss->smoothing);
    if (loss->ignored >= 0)
        return RP_FAIL(INVALID, "the ignored label is %d; a negative one is wanted",
                       (int)loss->ignored);
    if (rows.dims < 2)
        return RP_FAIL(INVALID, "logits are %s; ... x C is wanted",
                       rpi_op_shape_text(&inputs[0], text, sizeof text));
    rows.dims--;
    rows.size[rows.dims] = 0;
    if (!rpi_shape_equal(&inputs[1], &rows))
        return RP_FAIL(INVALID, "labels are %s; one a row of the logits, %s, is wanted",
                       rpi_op_shape_text(&inputs[1], text, sizeof text),
                       rpi_op_shape_text(&rows, other, sizeof other));
    if (inputs[2].dims != 0)
        return RP_FAIL(INVALID, "scale is %s; a scalar is wanted",
                       rpi_op_shape_text(&inputs[2], text, sizeof text));
    outputs[0] = outputs[1] = outputs[2] = (rpi_shape){.dims = 0};
    return RP_OK;
}

/* An element: subtract the maximum, exponential, sum, divide. */
static void flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    (void)attributes, (void)outputs;
    *out_forward = 4 * rpi_shape_count(&inputs[0]);
    *out_backward = wanted ? *out_forward : 0;
}

static const rpi_cross_entropy_attributes usual = {.ignored = -100};
static const rpi_cross_entropy_attributes smoothed = {.smoothing = 0.2f, .ignored = -1};

static const rpi_op_example examples[] = {
    {.name = "ten classes",
     .attributes = &usual,
     .input_count = 3,
     .inputs = {{2, {6, 10}}, {1, {6}}, {0}},
     .classes = 10},
    {.name = "sequence",
     .attributes = &usual,
     .input_count = 3,
     .inputs = {{3, {2, 3, 4}}, {2, {2, 3}}, {0}},
     .classes = 4},
    {.name = "one row",
     .attributes = &usual,
     .input_count = 3,
     .inputs = {{2, {1, 3}}, {1, {1}}, {0}},
     .classes = 3},
    {.name = "smoothed",
     .attributes = &smoothed,
     .input_count = 3,
     .inputs = {{3, {2, 3, 37}}, {2, {2, 3}}, {0}},
     .classes = 37},
};

const rpi_op rpi_op_softmax_cross_entropy = {
    .name = "softmax_cross_entropy",
    .summary = "loss = scale * sum over n of -log softmax(x[n])[label[n]]; correct answers, "
               "valid labels",
    .attribute_bytes = sizeof(rpi_cross_entropy_attributes),
    .input_count = 3,
    .output_count = 3,
    .inputs = {{.name = "logits", .dtype = RP_F32, .has_gradient = true},
               {.name = "labels", .dtype = RP_I32},
               {.name = "scale", .dtype = RP_F32}},
    .outputs = {{"loss", RP_F32}, {"correct", RP_I32}, {"valid", RP_I32}},
    .infer = infer,
    .flops = flops,
    .needs_inputs = 7,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_softmax_cross_entropy_with(rpi_graph *graph, const char *name,
                                            rpi_value_id logits, rpi_value_id labels,
                                            rpi_value_id scale,
                                            rpi_cross_entropy_attributes attributes) {
    if (attributes.ignored == 0) attributes.ignored = -100;
    return rpi_graph_add(graph, name, &rpi_op_softmax_cross_entropy, &attributes, 3,
                         (rpi_value_id[]){logits, labels, scale});
}

rpi_value_id rpi_softmax_cross_entropy(rpi_graph *graph, const char *name, rpi_value_id logits,
                                       rpi_value_id labels, rpi_value_id scale) {
    return rpi_softmax_cross_entropy_with(graph, name, logits, labels, scale,
                                          (rpi_cross_entropy_attributes){0});
}
