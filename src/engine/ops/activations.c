/* Functions of one element: gelu, silu, tanh. */
#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_gelu, rpi_op_silu, rpi_op_tanh;

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    (void)attributes, (void)input_count;
    outputs[0] = inputs[0];
    return RP_OK;
}

static rp_status infer_gelu(const void *attributes, int input_count, const rpi_shape *inputs,
                            rpi_shape *outputs) {
    const rpi_gelu_attributes *gelu = attributes;
    if (gelu->form != RPI_GELU_ERF && gelu->form != RPI_GELU_TANH)
        return RP_FAIL(INVALID, "form %d; RPI_GELU_ERF and RPI_GELU_TANH are there",
                       (int)gelu->form);
    return infer(attributes, input_count, inputs, outputs);
}

/* An element: the exponential counts as eight, the rest as four; backward one more product. */
static void flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    (void)attributes, (void)inputs;
    *out_forward = 12 * rpi_shape_count(&outputs[0]);
    *out_backward = wanted ? 13 * rpi_shape_count(&outputs[0]) : 0;
}

static const rpi_gelu_attributes by_erf = {.form = RPI_GELU_ERF};
static const rpi_gelu_attributes by_tanh = {.form = RPI_GELU_TANH};

static const rpi_op_example gelu_examples[] = {
    {.name = "erf", .attributes = &by_erf, .input_count = 1, .inputs = {{3, {2, 7, 23}}}},
    {.name = "tanh", .attributes = &by_tanh, .input_count = 1, .inputs = {{3, {2, 7, 23}}}},
    {.name = "a scalar", .attributes = &by_tanh, .input_count = 1, .inputs = {{0}}},
};

static const rpi_op_example plain_examples[] = {
    {.name = "sequences", .input_count = 1, .inputs = {{3, {2, 7, 23}}}},
    {.name = "row", .input_count = 1, .inputs = {{1, {16}}}},
};

#define ACTIVATION                                                                             \
    .input_count = 1, .output_count = 1,                                                       \
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true}},                      \
    .outputs = {{"output", RP_F32}}, .flops = flops, .needs_inputs = 1,                        \
    .gradient_from = RPI_GRADIENT_WRITTEN, .in_place_forward = true, .in_place_backward = true

const rpi_op rpi_op_gelu = {
    .name = "gelu",
    .summary = "y = x Phi(x), Phi the normal distribution or its approximation by tanh",
    .attribute_bytes = sizeof(rpi_gelu_attributes),
    .infer = infer_gelu,
    .examples = gelu_examples,
    .example_count = sizeof gelu_examples / sizeof gelu_examples[0],
    ACTIVATION,
};

const rpi_op rpi_op_silu = {
    .name = "silu",
    .summary = "y = x / (1 + e^-x)",
    .infer = infer,
    .examples = plain_examples,
    .example_count = sizeof plain_examples / sizeof plain_examples[0],
    ACTIVATION,
};

const rpi_op rpi_op_tanh = {
    .name = "tanh",
    .summary = "y = tanh(x)",
    .infer = infer,
    .examples = plain_examples,
    .example_count = sizeof plain_examples / sizeof plain_examples[0],
    ACTIVATION,
};

rpi_value_id rpi_gelu(rpi_graph *graph, const char *name, rpi_value_id input,
                      rpi_gelu_form form) {
    rpi_gelu_attributes attributes = {.form = form};
    return rpi_graph_add(graph, name, &rpi_op_gelu, &attributes, 1, &input);
}

rpi_value_id rpi_silu(rpi_graph *graph, const char *name, rpi_value_id input) {
    return rpi_graph_add(graph, name, &rpi_op_silu, NULL, 1, &input);
}

rpi_value_id rpi_tanh(rpi_graph *graph, const char *name, rpi_value_id input) {
    return rpi_graph_add(graph, name, &rpi_op_tanh, NULL, 1, &input);
}
