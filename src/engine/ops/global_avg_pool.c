#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_global_avg_pool;

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    (void)attributes, (void)input_count;
    char text[96];
    if (inputs[0].dims != 4)
        return RP_FAIL(INVALID, "input is %s; N x C x H x W is wanted",
                       rpi_op_shape_text(&inputs[0], text, sizeof text));
    outputs[0] = inputs[0];
    outputs[0].dims = 2;
    return RP_OK;
}

static void flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    (void)attributes, (void)outputs;
    *out_forward = rpi_shape_count(&inputs[0]);
    *out_backward = wanted ? *out_forward : 0;
}

static const rpi_op_example examples[] = {
    {.name = "image", .input_count = 1, .inputs = {{4, {2, 3, 4, 5}}}},
    {.name = "wide", .input_count = 1, .inputs = {{4, {3, 32, 4, 4}}}},
};

const rpi_op rpi_op_global_avg_pool = {
    .name = "global_avg_pool",
    .summary = "y[n,c] = mean over i,j of x[n,c,i,j]",
    .input_count = 1,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .flops = flops,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_global_avg_pool(rpi_graph *graph, const char *name, rpi_value_id input) {
    return rpi_graph_add(graph, name, &rpi_op_global_avg_pool, NULL, 1, &input);
}
