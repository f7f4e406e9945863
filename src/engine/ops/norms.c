/* Norms of rows along the last axis: layer_norm, rms_norm. */
#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_layer_norm, rpi_op_rms_norm;

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

static void count_flops(int64_t each, const rpi_shape *outputs, uint32_t wanted,
                        int64_t *out_forward, int64_t *out_backward) {
    *out_forward = each * rpi_shape_count(&outputs[0]);
    *out_backward = wanted ? 2 * *out_forward : 0;
}

static size_t row_bytes(size_t statistics, const rpi_shape *input) {
    return statistics * sizeof(float) * (size_t)(rpi_shape_count(input) / rpi_op_width(input));
}

/* An element: four for the statistics, three to normalise; twice that backward. */
static void layer_flops(const void *attributes, const rpi_shape *inputs,
                        const rpi_shape *outputs, uint32_t wanted, int64_t *out_forward,
                        int64_t *out_backward) {
    (void)attributes, (void)inputs;
    count_flops(7, outputs, wanted, out_forward, out_backward);
}

/* An element: two for the statistic, two to normalise; twice that backward. */
static void rms_flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                      uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    (void)attributes, (void)inputs;
    count_flops(4, outputs, wanted, out_forward, out_backward);
}

/* The mean and 1 / standard deviation of each row, f32. */
static size_t layer_saved(const void *attributes, const rpi_shape *inputs,
                          const rpi_shape *outputs) {
    (void)attributes, (void)outputs;
    return row_bytes(2, &inputs[0]);
}

/* 1 / root mean square of each row, f32. */
static size_t rms_saved(const void *attributes, const rpi_shape *inputs,
                        const rpi_shape *outputs) {
    (void)attributes, (void)outputs;
    return row_bytes(1, &inputs[0]);
}

static const rpi_norm_attributes usual = {.epsilon = 1e-5f};
static const rpi_norm_attributes large = {.epsilon = 0.1f};

static const rpi_op_example layer_examples[] = {
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

static const rpi_op_example rms_examples[] = {
    {.name = "sequences",
     .attributes = &usual,
     .input_count = 2,
     .inputs = {{3, {2, 3, 12}}, {1, {12}}}},
    {.name = "wide",
     .attributes = &large,
     .input_count = 2,
     .inputs = {{2, {5, 70}}, {1, {70}}}},
    {.name = "one row",
     .attributes = &usual,
     .input_count = 2,
     .inputs = {{1, {33}}, {1, {33}}}},
};

#define NORM                                                                                   \
    .attribute_bytes = sizeof(rpi_norm_attributes), .output_count = 1,                         \
    .outputs = {{"output", RP_F32}}, .infer = infer, .needs_inputs = 3,                        \
    .gradient_from = RPI_GRADIENT_WRITTEN, .in_place_backward = true

#define INPUT                                                                                  \
    { .name = "input", .dtype = RP_F32, .has_gradient = true }
#define SCALE                                                                                  \
    { .name = "scale", .role = RPI_WEIGHT, .dtype = RP_F32, .has_gradient = true }

const rpi_op rpi_op_layer_norm = {
    .name = "layer_norm",
    .summary = "y = scale (x - mean) / sqrt(variance + epsilon) + shift along the last axis",
    .input_count = 3,
    .inputs = {INPUT,
               SCALE,
               {.name = "shift",
                .role = RPI_WEIGHT,
                .dtype = RP_F32,
                .has_gradient = true,
                .optional = true}},
    .flops = layer_flops,
    .saved_bytes = layer_saved,
    .examples = layer_examples,
    .example_count = sizeof layer_examples / sizeof layer_examples[0],
    NORM,
};

const rpi_op rpi_op_rms_norm = {
    .name = "rms_norm",
    .summary = "y = scale x / sqrt(mean(x^2) + epsilon) along the last axis",
    .input_count = 2,
    .inputs = {INPUT, SCALE},
    .flops = rms_flops,
    .saved_bytes = rms_saved,
    .examples = rms_examples,
    .example_count = sizeof rms_examples / sizeof rms_examples[0],
    NORM,
};

rpi_value_id rpi_layer_norm(rpi_graph *graph, const char *name, rpi_value_id input,
                            rpi_value_id scale, rpi_value_id shift,
                            rpi_norm_attributes attributes) {
    if (attributes.epsilon == 0) attributes.epsilon = 1e-5f;
    return rpi_graph_add(graph, name, &rpi_op_layer_norm, &attributes, 3,
                         (rpi_value_id[]){input, scale, shift});
}

rpi_value_id rpi_rms_norm(rpi_graph *graph, const char *name, rpi_value_id input,
                          rpi_value_id scale, rpi_norm_attributes attributes) {
    if (attributes.epsilon == 0) attributes.epsilon = 1e-5f;
    return rpi_graph_add(graph, name, &rpi_op_rms_norm, &attributes, 2,
                         (rpi_value_id[]){input, scale});
}
