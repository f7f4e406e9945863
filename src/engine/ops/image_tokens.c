#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_image_tokens;

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    (void)attributes;
    const int64_t *size = inputs[0].size;
    char text[96];
    if (inputs[0].dims != 4)
        return RP_FAIL(INVALID, "input is %s; N x C x H x W is wanted",
                       rpi_op_shape_text(&inputs[0], text, sizeof text));
    RP_TRY(rpi_op_check_numbers(&inputs[0], input_count > 1 ? 1 : 2, "input"));
    if (input_count > 1) {
        rpi_shape token = rpi_op_drop_ones(&inputs[1], 1);
        RP_TRY(rpi_op_check_vector(&token, size[1], "class token"));
    }
    outputs[0] = (rpi_shape){3, {size[0], size[2] * size[3] + (input_count > 1), size[1]}};
    return RP_OK;
}

static const rpi_op_example examples[] = {
    {.name = "with class token", .input_count = 2, .inputs = {{4, {2, 5, 3, 2}}, {1, {5}}}},
    {.name = "class token of torchvision's shape",
     .input_count = 2,
     .inputs = {{4, {2, 5, 3, 2}}, {3, {1, 1, 5}}}},
    {.name = "without", .input_count = 1, .inputs = {{4, {3, 4, 2, 3}}}},
    {.name = "wide", .input_count = 2, .inputs = {{4, {2, 37, 5, 7}}, {1, {37}}}},
};

const rpi_op rpi_op_image_tokens = {
    .name = "image_tokens",
    .summary = "a row for the class token, and one for each pixel of N x C x H x W",
    .input_count = 2,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true},
               {.name = "class token",
                .role = RPI_WEIGHT,
                .dtype = RP_F32,
                .has_gradient = true,
                .optional = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_image_tokens(rpi_graph *graph, const char *name, rpi_value_id input,
                              rpi_value_id class_token) {
    return rpi_graph_add(graph, name, &rpi_op_image_tokens, NULL, 2,
                         (rpi_value_id[]){input, class_token});
}
