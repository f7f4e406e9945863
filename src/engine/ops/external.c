#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_external;

static int count_outputs(const void *attributes) {
    const rpi_external_attributes *external = attributes;
    return external->output_count ? external->output_count : 1;
}

/* Without a forward, output i is input i; without a backward, its gradient is that of output i.
 */
static rp_status check_passing(const char *pass, const rpi_shape *inputs, int input_count,
                               const rpi_shape *outputs, int output_count) {
    char text[96], other[96];
    if (input_count != output_count)
        return RP_FAIL(INVALID, "no %s is given, but there are %d inputs and %d outputs", pass,
                       input_count, output_count);
    for (int i = 0; i < input_count; i++)
        if (!rpi_shape_equal(&inputs[i], &outputs[i]))
            return RP_FAIL(INVALID, "no %s is given, but input %d is %s and output %d is %s",
                           pass, i, rpi_op_shape_text(&inputs[i], text, sizeof text), i,
                           rpi_op_shape_text(&outputs[i], other, sizeof other));
    return RP_OK;
}

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    const rpi_external_attributes *external = attributes;
    bool forward = external->forward_start || external->forward_finish;
    bool backward = external->backward_start || external->backward_finish;
    if (!forward && !backward)
        return RP_FAIL(INVALID,
                       "no function is given: neither forward_start and forward_finish, nor "
                       "backward_start and backward_finish");
    if (external->output_count < 0 || external->output_count > RPI_NODE_OUTPUTS)
        return RP_FAIL(INVALID, "%d outputs; at most %d are allowed", external->output_count,
                       (int)RPI_NODE_OUTPUTS);
    outputs[0] = inputs[0];
    for (int i = 0; i < external->output_count; i++) outputs[i] = external->output_shapes[i];
    int output_count = count_outputs(attributes);
    if (!forward) RP_TRY(check_passing("forward", inputs, input_count, outputs, output_count));
    if (backward) return RP_OK;
    return check_passing("backward", inputs, input_count, outputs, output_count);
}

#define MORE(text)                                                                             \
    { .name = (text), .dtype = RP_F32, .has_gradient = true, .optional = true }

/* The compiler runs this op itself (emit_external.c), for every backend. */
const rpi_op rpi_op_external = {
    .name = "external",
    .summary = "y... = what functions given from above make of x...",
    .attribute_bytes = sizeof(rpi_external_attributes),
    .input_count = RPI_NODE_INPUTS,
    .output_count = RPI_NODE_OUTPUTS,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true},
               MORE("input 1"),
               MORE("input 2"),
               MORE("input 3"),
               MORE("input 4"),
               MORE("input 5"),
               MORE("input 6"),
               MORE("input 7")},
    .outputs = {{"output", RP_F32},
                {"output 1", RP_F32},
                {"output 2", RP_F32},
                {"output 3", RP_F32}},
    .count_outputs = count_outputs,
    .infer = infer,
    .gradient_from = RPI_GRADIENT_WRITTEN,
};

rpi_value_id rpi_external_node(rpi_graph *graph, const char *name, int input_count,
                               const rpi_value_id *inputs, rpi_external_attributes attributes) {
    return rpi_graph_add(graph, name, &rpi_op_external, &attributes, input_count, inputs);
}

rpi_value_id rpi_external(rpi_graph *graph, const char *name, rpi_value_id input,
                          rpi_external_attributes attributes) {
    return rpi_external_node(graph, name, 1, &input, attributes);
}
