#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_external;

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    (void)input_count;
    const rpi_external_attributes *external = attributes;
    if (!external->forward_start && !external->forward_finish)
        return RP_FAIL(INVALID, "neither forward_start nor forward_finish is given");
    outputs[0] = external->reshapes ? external->output_shape : inputs[0];
    bool has_backward = external->backward_start || external->backward_finish;
    if (!has_backward && !rpi_shape_equal(&inputs[0], &outputs[0])) {
        char text[96], other[96];
        return RP_FAIL(INVALID, "no backward is given, but input is %s and output is %s",
                       rpi_op_shape_text(&inputs[0], text, sizeof text),
                       rpi_op_shape_text(&outputs[0], other, sizeof other));
    }
    return RP_OK;
}

/* The compiler runs this op itself (emit_external.c), for every backend. */
const rpi_op rpi_op_external = {
    .name = "external",
    .summary = "y = what functions given from above make of x",
    .attribute_bytes = sizeof(rpi_external_attributes),
    .input_count = 1,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .gradient_from = RPI_GRADIENT_WRITTEN,
};

rpi_value_id rpi_external(rpi_graph *graph, const char *name, rpi_value_id input,
                          rpi_external_attributes attributes) {
    return rpi_graph_add(graph, name, &rpi_op_external, &attributes, 1, &input);
}
