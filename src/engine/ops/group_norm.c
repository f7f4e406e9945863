/* Wu, He, "Group normalization", ECCV 2018. */
#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_group_norm;

enum { INPUT, SCALE, SHIFT, INPUTS };

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    const rpi_group_norm_attributes *norm = attributes;
    char text[96];
    (void)input_count;
    if (!(norm->epsilon > 0))
        return RP_FAIL(INVALID, "epsilon is %g; above 0 is wanted", (double)norm->epsilon);
    if (inputs[INPUT].dims != 4)
        return RP_FAIL(INVALID, "input is %s; N x C x H x W is wanted",
                       rpi_op_shape_text(&inputs[INPUT], text, sizeof text));
    RP_TRY(rpi_op_check_numbers(&inputs[INPUT], 1, "input"));
    const int64_t channels = inputs[INPUT].size[1];
    if (norm->groups < 1 || channels % norm->groups != 0)
        return RP_FAIL(INVALID, "%d groups do not divide %lld channels", norm->groups,
                       (long long)channels);
    RP_TRY(rpi_op_check_vector(&inputs[SCALE], channels, "scale"));
    RP_TRY(rpi_op_check_vector(&inputs[SHIFT], channels, "shift"));
    outputs[0] = inputs[INPUT];
    return RP_OK;
}

/* An element: four for the statistics, three to normalise; twice that backward. */
static void flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    (void)attributes, (void)inputs;
    *out_forward = 7 * rpi_shape_count(&outputs[0]);
    *out_backward = wanted ? 2 * *out_forward : 0;
}

/* The mean and 1 / deviation of each group of each image, f32. */
static size_t saved_bytes(const void *attributes, const rpi_shape *inputs,
                          const rpi_shape *outputs) {
    const rpi_group_norm_attributes *norm = attributes;
    (void)outputs;
    return 2 * sizeof(float) * (size_t)(inputs[INPUT].size[0] * norm->groups);
}

static const rpi_group_norm_attributes one = {.groups = 1, .epsilon = 1e-5f};
static const rpi_group_norm_attributes two = {.groups = 2, .epsilon = 1e-3f};
static const rpi_group_norm_attributes four = {.groups = 4, .epsilon = 1e-5f};
static const rpi_group_norm_attributes six = {.groups = 6, .epsilon = 1e-5f};

static const rpi_op_example examples[] = {
    {.name = "image",
     .attributes = &two,
     .input_count = INPUTS,
     .inputs = {{4, {3, 4, 4, 3}}, {1, {4}}, {1, {4}}}},
    {.name = "one group",
     .attributes = &one,
     .input_count = INPUTS,
     .inputs = {{4, {2, 6, 3, 3}}, {1, {6}}, {1, {6}}}},
    {.name = "wide",
     .attributes = &two,
     .input_count = INPUTS,
     .inputs = {{4, {2, 32, 3, 3}}, {1, {32}}, {1, {32}}}},
    {.name = "within blocks",
     .attributes = &four,
     .input_count = INPUTS,
     .inputs = {{4, {2, 16, 2, 3}}, {1, {16}}, {1, {16}}}},
    {.name = "across blocks",
     .attributes = &six,
     .input_count = INPUTS,
     .inputs = {{4, {2, 36, 2, 2}}, {1, {36}}, {1, {36}}}},
    {.name = "one pixel",
     .attributes = &four,
     .input_count = INPUTS,
     .inputs = {{4, {5, 16, 1, 1}}, {1, {16}}, {1, {16}}}},
};

const rpi_op rpi_op_group_norm = {
    .name = "group_norm",
    .summary = "y = scale[c] (x - mean) / sqrt(variance + epsilon) + shift[c], of the group of "
               "channels in each image",
    .attribute_bytes = sizeof(rpi_group_norm_attributes),
    .input_count = INPUTS,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true},
               {.name = "scale", .role = RPI_WEIGHT, .dtype = RP_F32, .has_gradient = true},
               {.name = "shift", .role = RPI_WEIGHT, .dtype = RP_F32, .has_gradient = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .flops = flops,
    .needs_inputs = 1u << INPUT | 1u << SCALE,
    .saved_bytes = saved_bytes,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .in_place_backward = true,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_group_norm(rpi_graph *graph, const char *name, rpi_value_id input,
                            rpi_value_id scale, rpi_value_id shift,
                            rpi_group_norm_attributes attributes) {
    if (attributes.epsilon == 0) attributes.epsilon = 1e-5f;
    return rpi_graph_add(graph, name, &rpi_op_group_norm, &attributes, INPUTS,
                         (rpi_value_id[]){input, scale, shift});
}
