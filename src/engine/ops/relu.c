#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_relu;

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    (void)attributes, (void)input_count;
    outputs[0] = inputs[0];
    return RP_OK;
}

static void flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    (void)attributes, (void)inputs;
    *out_forward = rpi_shape_count(&outputs[0]);
    *out_backward = wanted ? *out_forward : 0;
}

static const rpi_op_example examples[] = {
    {.name = "image", .input_count = 1, .inputs = {{4, {2, 3, 4, 5}}}},
    {.name = "wide", .input_count = 1, .inputs = {{4, {2, 32, 3, 3}}}},
    {.name = "matrix", .input_count = 1, .inputs = {{2, {3, 7}}}},
};

const rpi_op rpi_op_relu = {
    .name = "relu",
    .summary = "y = max(x, 0)",
    .input_count = 1,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .flops = flops,
    .needs_outputs = 1,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .in_place_forward = true,
    .in_place_backward = true,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_relu(rpi_graph *graph, const char *name, rpi_value_id input) {
    return rpi_graph_add(graph, name, &rpi_op_relu, NULL, 1, &input);
}
