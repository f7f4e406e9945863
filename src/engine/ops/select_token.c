#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_select_token;

static rp_status check_bound(const void *attributes, int input_count, const rpi_shape *inputs) {
    (void)input_count;
    const rpi_select_token_attributes *select = attributes;
    if (select->index >= inputs[0].size[1])
        return RP_FAIL(INVALID, "token %lld of a sequence of %lld; 0 to %lld are there",
                       (long long)select->index, (long long)inputs[0].size[1],
                       (long long)inputs[0].size[1] - 1);
    return RP_OK;
}

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    const rpi_select_token_attributes *select = attributes;
    char text[96];
    if (inputs[0].dims != 3)
        return RP_FAIL(INVALID, "input is %s; batch x sequence x width is wanted",
                       rpi_op_shape_text(&inputs[0], text, sizeof text));
    if (select->index < 0)
        return RP_FAIL(INVALID, "token %lld; 0 or more", (long long)select->index);
    outputs[0] = (rpi_shape){2, {inputs[0].size[0], inputs[0].size[2]}};
    if (rpi_dimension_is_named(inputs[0].size[1])) return RP_OK;
    return check_bound(attributes, input_count, inputs);
}

static const rpi_select_token_attributes first = {.index = 0};
static const rpi_select_token_attributes third = {.index = 2};

static const rpi_op_example examples[] = {
    {.name = "first", .attributes = &first, .input_count = 1, .inputs = {{3, {3, 4, 5}}}},
    {.name = "third", .attributes = &third, .input_count = 1, .inputs = {{3, {2, 3, 17}}}},
};

const rpi_op rpi_op_select_token = {
    .name = "select_token",
    .summary = "y[n] = x[n, index]",
    .attribute_bytes = sizeof(rpi_select_token_attributes),
    .input_count = 1,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .check_bound = check_bound,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_select_token(rpi_graph *graph, const char *name, rpi_value_id input,
                              int64_t index) {
    rpi_select_token_attributes attributes = {.index = index};
    return rpi_graph_add(graph, name, &rpi_op_select_token, &attributes, 1, &input);
}
