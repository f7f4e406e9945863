#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_conv2d;

static rp_status check(const rpi_conv2d_attributes *attributes, int input_count,
                       const rpi_shape *inputs) {
    const rpi_shape *input = &inputs[0], *weight = &inputs[1];
    char text[96], other[96];
    if (attributes->stride < 1 || attributes->padding < 0)
        return RP_FAIL(INVALID, "stride %d, padding %d; at least 1 and 0 are wanted",
                       attributes->stride, attributes->padding);
    if (input->dims != 4)
        return RP_FAIL(INVALID, "input is %s; N x C x H x W is wanted",
                       rpi_op_shape_text(input, text, sizeof text));
    RP_TRY(rpi_op_check_numbers(input, 1, "input"));
    if (weight->dims != 4 || weight->size[1] != input->size[1])
        return RP_FAIL(INVALID, "weight is %s; K x %lld x R x S is wanted for input %s",
                       rpi_op_shape_text(weight, text, sizeof text), (long long)input->size[1],
                       rpi_op_shape_text(input, other, sizeof other));
    if (input_count > 2 && (inputs[2].dims != 1 || inputs[2].size[0] != weight->size[0]))
        return RP_FAIL(INVALID, "bias is %s; %lld is wanted",
                       rpi_op_shape_text(&inputs[2], text, sizeof text),
                       (long long)weight->size[0]);
    for (int i = 2; i < 4; i++)
        if (input->size[i] + 2 * attributes->padding < weight->size[i])
            return RP_FAIL(INVALID, "the %lld x %lld window is larger than the padded input %s",
                           (long long)weight->size[2], (long long)weight->size[3],
                           rpi_op_shape_text(input, text, sizeof text));
    return RP_OK;
}

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    const rpi_conv2d_attributes *conv = attributes;
    RP_TRY(check(conv, input_count, inputs));
    outputs[0] = inputs[0];
    outputs[0].size[1] = inputs[1].size[0];
    for (int i = 2; i < 4; i++)
        outputs[0].size[i] =
            (inputs[0].size[i] + 2 * conv->padding - inputs[1].size[i]) / conv->stride + 1;
    return RP_OK;
}

/* The same products are summed for the output and for either gradient. */
static void flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    (void)attributes;
    const rpi_shape *weight = &inputs[1];
    *out_forward =
        2 * rpi_shape_count(&outputs[0]) * weight->size[1] * weight->size[2] * weight->size[3];
    *out_backward = *out_forward * ((wanted & 1u) + (wanted >> 1 & 1u));
}

static const rpi_conv2d_attributes plain = {.stride = 1};
static const rpi_conv2d_attributes padded = {.stride = 1, .padding = 1};
static const rpi_conv2d_attributes strided = {.stride = 2, .padding = 1};
static const rpi_conv2d_attributes skipping = {.stride = 2};
static const rpi_conv2d_attributes patches = {.stride = 4};

static const rpi_op_example examples[] = {
    {.name = "3x3 with bias",
     .attributes = &padded,
     .input_count = 3,
     .inputs = {{4, {2, 3, 5, 4}}, {4, {4, 3, 3, 3}}, {1, {4}}}},
    {.name = "3x3 of longer rows",
     .attributes = &padded,
     .input_count = 3,
     .inputs = {{4, {2, 20, 6, 9}}, {4, {24, 20, 3, 3}}, {1, {24}}}},
    {.name = "3x3 of one channel",
     .attributes = &padded,
     .input_count = 2,
     .inputs = {{4, {2, 1, 6, 6}}, {4, {16, 1, 3, 3}}}},
    {.name = "3x3 wide",
     .attributes = &padded,
     .input_count = 2,
     .inputs = {{4, {2, 32, 6, 6}}, {4, {32, 32, 3, 3}}}},
    {.name = "3x3 stride 2",
     .attributes = &strided,
     .input_count = 2,
     .inputs = {{4, {2, 16, 7, 7}}, {4, {32, 16, 3, 3}}}},
    {.name = "1x1 stride 2",
     .attributes = &skipping,
     .input_count = 2,
     .inputs = {{4, {2, 16, 6, 6}}, {4, {32, 16, 1, 1}}}},
    {.name = "4x4 patches with bias",
     .attributes = &patches,
     .input_count = 3,
     .inputs = {{4, {2, 3, 8, 13}}, {4, {5, 3, 4, 4}}, {1, {5}}}},
    {.name = "5x2 without padding",
     .attributes = &plain,
     .input_count = 2,
     .inputs = {{4, {1, 2, 7, 6}}, {4, {3, 2, 5, 2}}}},
};

const rpi_op rpi_op_conv2d = {
    .name = "conv2d",
    .summary = "y[n,k,i,j] = bias[k] + sum over c,r,s of x[n,c,i+r,j+s] w[k,c,r,s]",
    .attribute_bytes = sizeof(rpi_conv2d_attributes),
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

rpi_value_id rpi_conv2d(rpi_graph *graph, const char *name, rpi_value_id input,
                        rpi_value_id weight, rpi_value_id bias,
                        rpi_conv2d_attributes attributes) {
    if (attributes.stride == 0) attributes.stride = 1;
    return rpi_graph_add(graph, name, &rpi_op_conv2d, &attributes, 3,
                         (rpi_value_id[]){input, weight, bias});
}
