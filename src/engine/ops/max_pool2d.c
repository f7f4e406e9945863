#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_max_pool2d;

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    (void)input_count;
    const rpi_max_pool2d_attributes *pool = attributes;
    char text[96];
    if (pool->kernel < 1 || pool->stride < 1 || pool->padding < 0 ||
        2 * pool->padding > pool->kernel)
        return RP_FAIL(INVALID,
                       "kernel %d, stride %d, padding %d; kernel and stride are at least "
                       "1, padding at most half the kernel",
                       pool->kernel, pool->stride, pool->padding);
    if (inputs[0].dims != 4)
        return RP_FAIL(INVALID, "input is %s; N x C x H x W is wanted",
                       rpi_op_shape_text(&inputs[0], text, sizeof text));
    RP_TRY(rpi_op_check_numbers(&inputs[0], 1, "input"));
    outputs[0] = inputs[0];
    for (int i = 2; i < 4; i++) {
        int64_t room = inputs[0].size[i] + 2 * pool->padding - pool->kernel;
        if (room < 0)
            return RP_FAIL(INVALID, "kernel %d is larger than the padded input %s",
                           pool->kernel, rpi_op_shape_text(&inputs[0], text, sizeof text));
        outputs[0].size[i] = room / pool->stride + 1;
    }
    return RP_OK;
}

static void flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    (void)inputs;
    const rpi_max_pool2d_attributes *pool = attributes;
    int64_t count = rpi_shape_count(&outputs[0]);
    *out_forward = count * pool->kernel * pool->kernel;
    *out_backward = wanted ? count : 0;
}

/* Of each output element, where in its channel's plane the maximum was: i32. */
static size_t saved_bytes(const void *attributes, const rpi_shape *inputs,
                          const rpi_shape *outputs) {
    (void)attributes, (void)inputs;
    return sizeof(int32_t) * (size_t)rpi_shape_count(&outputs[0]);
}

static const rpi_max_pool2d_attributes halving = {.kernel = 2, .stride = 2};
static const rpi_max_pool2d_attributes overlapping = {.kernel = 3, .stride = 2, .padding = 1};

static const rpi_op_example examples[] = {
    {.name = "2x2", .attributes = &halving, .input_count = 1, .inputs = {{4, {2, 3, 4, 6}}}},
    {.name = "3x3 overlapping",
     .attributes = &overlapping,
     .input_count = 1,
     .inputs = {{4, {2, 3, 5, 6}}}},
    {.name = "wide",
     .attributes = &overlapping,
     .input_count = 1,
     .inputs = {{4, {1, 32, 6, 6}}}},
};

const rpi_op rpi_op_max_pool2d = {
    .name = "max_pool2d",
    .summary = "y[n,c,i,j] = max over r,s of x[n,c,i*stride-padding+r,j*stride-padding+s]",
    .attribute_bytes = sizeof(rpi_max_pool2d_attributes),
    .input_count = 1,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .flops = flops,
    .saved_bytes = saved_bytes,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_max_pool2d(rpi_graph *graph, const char *name, rpi_value_id input,
                            rpi_max_pool2d_attributes attributes) {
    if (attributes.stride == 0) attributes.stride = attributes.kernel;
    return rpi_graph_add(graph, name, &rpi_op_max_pool2d, &attributes, 1, &input);
}
