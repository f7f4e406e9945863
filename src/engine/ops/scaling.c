#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

#include <math.h>

extern const rpi_op rpi_op_scale;

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    const rpi_scale_attributes *scale = attributes;
    (void)input_count;
    if (!isfinite(scale->factor))
        return RP_FAIL(INVALID, "factor is %g; a finite one is wanted", (double)scale->factor);
    outputs[0] = inputs[0];
    return RP_OK;
}

static const rpi_scale_attributes twenty = {.factor = 20.25f}, minus = {.factor = -0.5f};

static const rpi_op_example examples[] = {
    {.name = "up", .attributes = &twenty, .input_count = 1, .inputs = {{3, {2, 3, 5}}}},
    {.name = "down", .attributes = &minus, .input_count = 1, .inputs = {{2, {3, 37}}}},
};

const rpi_op rpi_op_scale = {
    .name = "scale",
    .summary = "y = factor x",
    .attribute_bytes = sizeof(rpi_scale_attributes),
    .input_count = 1,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .in_place_forward = true,
    .in_place_backward = true,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_scale(rpi_graph *graph, const char *name, rpi_value_id input, float factor) {
    rpi_scale_attributes attributes = {.factor = factor};
    return rpi_graph_add(graph, name, &rpi_op_scale, &attributes, 1, &input);
}
