#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_linear;

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    (void)attributes;
    const rpi_shape *input = &inputs[0], *weight = &inputs[1];
    char text[96], other[96];
    int last = input->dims - 1;
    if (last < 0) return RP_FAIL(INVALID, "input is a scalar; ... x I is wanted");
    RP_TRY(rpi_op_check_numbers(input, last, "input"));
    if (weight->dims != 2 || weight->size[1] != input->size[last])
        return RP_FAIL(INVALID, "weight is %s; O x %lld is wanted for input %s",
                       rpi_op_shape_text(weight, text, sizeof text),
                       (long long)input->size[last],
                       rpi_op_shape_text(input, other, sizeof other));
    if (input_count > 2) RP_TRY(rpi_op_check_vector(&inputs[2], weight->size[0], "bias"));
    outputs[0] = *input;
    outputs[0].size[last] = weight->size[0];
    return RP_OK;
}

static void flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    (void)attributes;
    *out_forward = 2 * rpi_shape_count(&outputs[0]) * inputs[1].size[1];
    *out_backward = *out_forward * ((wanted & 1u) + (wanted >> 1 & 1u));
}

static const rpi_op_example examples[] = {
    {.name = "with bias", .input_count = 3, .inputs = {{2, {4, 5}}, {2, {3, 5}}, {1, {3}}}},
    {.name = "without bias", .input_count = 2, .inputs = {{2, {3, 7}}, {2, {6, 7}}}},
    {.name = "wide", .input_count = 3, .inputs = {{2, {5, 64}}, {2, {10, 64}}, {1, {10}}}},
    {.name = "sequence", .input_count = 3, .inputs = {{3, {2, 3, 5}}, {2, {4, 5}}, {1, {4}}}},
    {.name = "vector", .input_count = 2, .inputs = {{1, {6}}, {2, {3, 6}}}},
    {.name = "many rows", .input_count = 3, .inputs = {{2, {67, 5}}, {2, {6, 5}}, {1, {6}}}},
};

const rpi_op rpi_op_linear = {
    .name = "linear",
    .summary = "y = x w^T + bias",
    .input_count = 3,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true},
               {.name = "weight", .role = RPI_WEIGHT, .dtype = RP_F32, .has_gradient = true},
               {.name = "bias",
                .role = RPI_WEIGHT,
                .dtype = RP_F32,
                .has_gradient = true,
                .optional = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .flops = flops,
    .needs_inputs = 3,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_linear(rpi_graph *graph, const char *name, rpi_value_id input,
                        rpi_value_id weight, rpi_value_id bias) {
    return rpi_graph_add(graph, name, &rpi_op_linear, NULL, 3,
                         (rpi_value_id[]){input, weight, bias});
}
