#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_layer_norm;

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    const rpi_norm_attributes *norm = attributes;
    char text[96];
    int dims = inputs[0].dims;
    if (!(norm->epsilon > 0))
        return RP_FAIL(INVALID, "epsilon is %g; above 0 is wanted", (double)norm->epsilon);
    if (dims < 1)
        return RP_FAIL(INVALID, "input is %s; ... x width is wanted",
                       rpi_op_shape_text(&inputs[0], text, sizeof text));
    RP_TRY(rpi_op_check_numbers(&inputs[0], dims - 1, "input"));
    RP_TRY(rpi_op_check_vector(&inputs[1], rpi_op_width(&inputs[0]), "scale"));
    if (input_count > 2)
        RP_TRY(rpi_op_check_vector(&inputs[2], rpi_op_width(&inputs[0]), "shift"));
    outputs[0] = inputs[0];
    return RP_OK;
}

/* An element: four for the statistics, three to normalise; twice that backward. */
static void flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    (void)attributes, (void)inputs;
    *out_forward = 7 * rpi_shape_count(&outputs[0]);
    *out_backward = wanted ? 2 * *out_forward : 0;
}

/* The mean and 1 / standard deviation of each row, f32. */
static size_t saved_bytes(const void *attributes, const rpi_shape *inputs,
                          const rpi_shape *outputs) {
    (void)attributes, (void)outputs;
    return 2 * sizeof(float) * (size_t)(rpi_shape_count(&inputs[0]) / rpi_op_width(&inputs[0]));
}

static const rpi_norm_attributes usual = {.epsilon = 1e-5f};
static const rpi_norm_attributes large = {.epsilon = 0.1f};

static const rpi_op_example examples[] = {
    {.name = "sequences",
     .attributes = &usual,
     .input_count = 3,
     .inputs = {{3, {2, 3, 12}}, {1, {12}}, {1, {12}}}},
    {.name = "wide",
     .attributes = &large,
     .input_count = 3,
     .inputs = {{2, {5, 70}}, {1, {70}}, {1, {70}}}},
    {.name = "without shift",
     .attributes = &usual,
     .input_count = 2,
     .inputs = {{2, {4, 16}}, {1, {16}}}},
    {.name = "one row",
     .attributes = &usual,
     .input_count = 3,
     .inputs = {{1, {33}}, {1, {33}}, {1, {33}}}},
};

const rpi_op rpi_op_layer_norm = {
    .name = "layer_norm",
    .summary = "y = scale (x - mean) / sqrt(variance + epsilon) + shift along the last axis",
    .attribute_bytes = sizeof(rpi_norm_attributes),
    .input_count = 3,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true},
               {.name = "scale", .role = RPI_WEIGHT, .dtype = RP_F32, .has_gradient = true},
               {.name = "shift",
                .role = RPI_WEIGHT,
                .dtype = RP_F32,
                .has_gradient = true,
                .optional = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .flops = flops,
    .needs_inputs = 3,
    .saved_bytes = saved_bytes,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .in_place_backward = true,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_layer_norm(rpi_graph *graph, const char *name, rpi_value_id input,
                            rpi_value_id scale, rpi_value_id shift,
                            rpi_norm_attributes attributes) {
    if (attributes.epsilon == 0) attributes.epsilon = 1e-5f;
    return rpi_graph_add(graph, name, &rpi_op_layer_norm, &attributes, 3,
                         (rpi_value_id[]){input, scale, shift});
}
