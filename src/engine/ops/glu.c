#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_glu;

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    (void)input_count;
    const rpi_glu_attributes *glu = attributes;
    char a[96], b[96];
    if (glu->gate < RPI_GATE_SILU || glu->gate > RPI_GATE_GELU_TANH)
        return RP_FAIL(INVALID, "gate %d; RPI_GATE_SILU, _GELU_ERF and _GELU_TANH are there",
                       (int)glu->gate);
    if (!rpi_shape_equal(&inputs[0], &inputs[1]))
        return RP_FAIL(INVALID, "gate is %s, up is %s; equal shapes are wanted",
                       rpi_op_shape_text(&inputs[0], a, sizeof a),
                       rpi_op_shape_text(&inputs[1], b, sizeof b));
    outputs[0] = inputs[0];
    return RP_OK;
}

/* An element: that of the activation (activations.c), and a product; backward two. */
static void flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    (void)attributes, (void)inputs;
    *out_forward = 13 * rpi_shape_count(&outputs[0]);
    *out_backward = wanted ? 15 * rpi_shape_count(&outputs[0]) : 0;
}

static const rpi_glu_attributes silu = {.gate = RPI_GATE_SILU};
static const rpi_glu_attributes gelu_erf = {.gate = RPI_GATE_GELU_ERF};
static const rpi_glu_attributes gelu_tanh = {.gate = RPI_GATE_GELU_TANH};

#define TWICE(...) .input_count = 2, .inputs = {__VA_ARGS__, __VA_ARGS__}

static const rpi_op_example examples[] = {
    {.name = "swiglu", .attributes = &silu, TWICE({3, {2, 3, 23}})},
    {.name = "geglu", .attributes = &gelu_erf, TWICE({2, {5, 16}})},
    {.name = "geglu by tanh", .attributes = &gelu_tanh, TWICE({2, {4, 9}})},
};

const rpi_op rpi_op_glu = {
    .name = "glu",
    .summary = "y = f(gate) up, f being silu (SwiGLU) or gelu (GEGLU)",
    .attribute_bytes = sizeof(rpi_glu_attributes),
    .input_count = 2,
    .output_count = 1,
    .inputs = {{.name = "gate", .dtype = RP_F32, .has_gradient = true},
               {.name = "up", .dtype = RP_F32, .has_gradient = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .flops = flops,
    .needs_inputs = 3,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .in_place_forward = true,
    .in_place_backward = true,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_glu(rpi_graph *graph, const char *name, rpi_value_id gate, rpi_value_id up,
                     rpi_glu_gate function) {
    rpi_glu_attributes attributes = {.gate = function};
    return rpi_graph_add(graph, name, &rpi_op_glu, &attributes, 2, (rpi_value_id[]){gate, up});
}

rpi_value_id rpi_swiglu(rpi_graph *graph, const char *name, rpi_value_id gate,
                        rpi_value_id up) {
    return rpi_glu(graph, name, gate, up, RPI_GATE_SILU);
}
