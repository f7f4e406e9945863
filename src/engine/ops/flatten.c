#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_flatten;

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    (void)attributes, (void)input_count;
    if (inputs[0].dims < 1) return RP_FAIL(INVALID, "input is a scalar; N x ... is wanted");
    int64_t rest = 1;
    for (int i = 1; i < inputs[0].dims; i++)
        if (!rpi_dimension_multiply(rest, inputs[0].size[i], &rest))
            return RP_FAIL(INVALID, "axis %d makes the product of the rest too large", i);
    outputs[0] = (rpi_shape){.dims = 2, .size = {inputs[0].size[0], rest}};
    return RP_OK;
}

static const rpi_op_example examples[] = {
    {.name = "image", .input_count = 1, .inputs = {{4, {2, 3, 4, 5}}}},
    {.name = "vector", .input_count = 1, .inputs = {{1, {4}}}},
};

const rpi_op rpi_op_flatten = {
    .name = "flatten",
    .summary = "the elements of x as N x (all others)",
    .input_count = 1,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .gradient_from = RPI_GRADIENT_OF_OUTPUT,
    .is_view = true,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_flatten(rpi_graph *graph, const char *name, rpi_value_id input) {
    return rpi_graph_add(graph, name, &rpi_op_flatten, NULL, 1, &input);
}
