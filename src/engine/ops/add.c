#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_add;

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    (void)attributes, (void)input_count;
    if (!rpi_shape_equal(&inputs[0], &inputs[1])) {
        char a[96], b[96];
        return RP_FAIL(INVALID, "a is %s, b is %s; equal shapes are wanted",
                       rpi_op_shape_text(&inputs[0], a, sizeof a),
                       rpi_op_shape_text(&inputs[1], b, sizeof b));
    }
    outputs[0] = inputs[0];
    return RP_OK;
}

static void flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    (void)attributes, (void)inputs, (void)wanted;
    *out_forward = rpi_shape_count(&outputs[0]);
    *out_backward = 0;
}

static const rpi_op_example examples[] = {
    {.name = "image", .input_count = 2, .inputs = {{4, {2, 3, 4, 5}}, {4, {2, 3, 4, 5}}}},
    {.name = "wide", .input_count = 2, .inputs = {{4, {2, 32, 3, 3}}, {4, {2, 32, 3, 3}}}},
    {.name = "matrix", .input_count = 2, .inputs = {{2, {3, 7}}, {2, {3, 7}}}},
};

const rpi_op rpi_op_add = {
    .name = "add",
    .summary = "y = a + b",
    .input_count = 2,
    .output_count = 1,
    .inputs = {{.name = "a", .dtype = RP_F32, .has_gradient = true},
               {.name = "b", .dtype = RP_F32, .has_gradient = true}},
    .outputs = {{"sum", RP_F32}},
    .infer = infer,
    .flops = flops,
    .gradient_from = RPI_GRADIENT_OF_OUTPUT,
    .in_place_forward = true,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_add(rpi_graph *graph, const char *name, rpi_value_id a, rpi_value_id b) {
    return rpi_graph_add(graph, name, &rpi_op_add, NULL, 2, (rpi_value_id[]){a, b});
}
