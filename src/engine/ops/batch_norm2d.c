#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_batch_norm2d;

enum { FIRST_OF_CHANNELS = 1, INPUTS = 5 };

static const char *const channel_names[] = {"input", "scale", "shift", "running mean",
                                            "running variance"};

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    const rpi_batch_norm2d_attributes *norm = attributes;
    char text[96];
    if (!(norm->epsilon > 0 && norm->momentum >= 0 && norm->momentum <= 1))
        return RP_FAIL(INVALID, "epsilon %g, momentum %g; above 0, and 0 to 1, are wanted",
                       (double)norm->epsilon, (double)norm->momentum);
    if (inputs[0].dims != 4)
        return RP_FAIL(INVALID, "input is %s; N x C x H x W is wanted",
                       rpi_op_shape_text(&inputs[0], text, sizeof text));
    for (int i = FIRST_OF_CHANNELS; i < input_count; i++)
        if (inputs[i].dims != 1 || inputs[i].size[0] != inputs[0].size[1])
            return RP_FAIL(INVALID, "%s is %s; %lld, the input's channels, is wanted",
                           channel_names[i], rpi_op_shape_text(&inputs[i], text, sizeof text),
                           (long long)inputs[0].size[1]);
    outputs[0] = inputs[0];
    return RP_OK;
}

/* An element: two for the statistics, two to normalise; twice that backward. */
static void flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    (void)attributes, (void)inputs;
    *out_forward = 4 * rpi_shape_count(&outputs[0]);
    *out_backward = wanted ? 2 * *out_forward : 0;
}

/* The batch's mean and 1 / standard deviation of each channel, f32. */
static size_t saved_bytes(const void *attributes, const rpi_shape *inputs,
                          const rpi_shape *outputs) {
    (void)attributes, (void)outputs;
    return 2 * sizeof(float) * (size_t)inputs[0].size[1];
}

static const rpi_batch_norm2d_attributes usual = {.epsilon = 1e-5f, .momentum = 0.1f};
static const rpi_batch_norm2d_attributes slow = {.epsilon = 1e-3f, .momentum = 0.5f};

static const rpi_op_example examples[] = {
    {.name = "image",
     .attributes = &usual,
     .input_count = INPUTS,
     .inputs = {{4, {3, 2, 4, 3}}, {1, {2}}, {1, {2}}, {1, {2}}, {1, {2}}}},
    {.name = "wide",
     .attributes = &slow,
     .input_count = INPUTS,
     .inputs = {{4, {2, 32, 3, 3}}, {1, {32}}, {1, {32}}, {1, {32}}, {1, {32}}}},
    {.name = "one pixel",
     .attributes = &usual,
     .input_count = INPUTS,
     .inputs = {{4, {5, 16, 1, 1}}, {1, {16}}, {1, {16}}, {1, {16}}, {1, {16}}}},
};

const rpi_op rpi_op_batch_norm2d = {
    .name = "batch_norm2d",
    .summary = "y = scale[c] (x - mean[c]) / sqrt(variance[c] + epsilon) + shift[c]",
    .attribute_bytes = sizeof(rpi_batch_norm2d_attributes),
    .input_count = INPUTS,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true},
               {.name = "scale", .role = RPI_WEIGHT, .dtype = RP_F32, .has_gradient = true},
               {.name = "shift", .role = RPI_WEIGHT, .dtype = RP_F32, .has_gradient = true},
               {.name = "running mean", .dtype = RP_F32, .role = RPI_STATE},
               {.name = "running variance", .dtype = RP_F32, .role = RPI_STATE}},
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

rpi_value_id rpi_batch_norm2d(rpi_graph *graph, const char *name, rpi_value_id input,
                              rpi_value_id scale, rpi_value_id shift, rpi_value_id running_mean,
                              rpi_value_id running_variance,
                              rpi_batch_norm2d_attributes attributes) {
    if (attributes.epsilon == 0) attributes.epsilon = 1e-5f;
    if (attributes.momentum == 0) attributes.momentum = 0.1f;
    return rpi_graph_add(graph, name, &rpi_op_batch_norm2d, &attributes, INPUTS,
                         (rpi_value_id[]){input, scale, shift, running_mean, running_variance});
}
