#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_reshape;

static rp_status count(const rpi_shape *shape, const char *what, int64_t *out_count) {
    char text[96];
    *out_count = 1;
    for (int i = 0; i < shape->dims; i++)
        if (shape->size[i] == 0 ||
            !rpi_dimension_multiply(*out_count, shape->size[i], out_count))
            return RP_FAIL(INVALID, "%s, %s, is empty or too large", what,
                           rpi_op_shape_text(shape, text, sizeof text));
    return RP_OK;
}

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    (void)input_count;
    const rpi_reshape_attributes *reshape = attributes;
    const rpi_shape *shape = &reshape->shape;
    int64_t before = 0, after = 0;
    char text[96], other[96];
    if (shape->dims < 0 || shape->dims > RPI_MAX_DIMS)
        return RP_FAIL(INVALID, "the shape has %d dimensions; at most %d are allowed",
                       shape->dims, RPI_MAX_DIMS);
    outputs[0] = *shape;
    RP_TRY(count(&inputs[0], "the input", &before));
    RP_TRY(count(shape, "the shape", &after));
    if (before != after)
        return RP_FAIL(INVALID, "input is %s; as many elements as %s has are wanted",
                       rpi_op_shape_text(&inputs[0], text, sizeof text),
                       rpi_op_shape_text(shape, other, sizeof other));
    return RP_OK;
}

static const rpi_reshape_attributes matrix = {.shape = {2, {6, 4}}};
static const rpi_reshape_attributes image = {.shape = {4, {1, 2, 3, 2}}};

static const rpi_op_example examples[] = {
    {.name = "rows", .attributes = &matrix, .input_count = 1, .inputs = {{3, {2, 3, 4}}}},
    {.name = "image", .attributes = &image, .input_count = 1, .inputs = {{1, {12}}}},
};

const rpi_op rpi_op_reshape = {
    .name = "reshape",
    .summary = "the elements of x under another shape",
    .attribute_bytes = sizeof(rpi_reshape_attributes),
    .input_count = 1,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .gradient_from = RPI_GRADIENT_OF_OUTPUT,
    .is_view = true,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_reshape(rpi_graph *graph, const char *name, rpi_value_id input,
                         rpi_shape shape) {
    rpi_reshape_attributes attributes = {.shape = shape};
    return rpi_graph_add(graph, name, &rpi_op_reshape, &attributes, 1, &input);
}
