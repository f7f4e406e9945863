#include "engine/backends/cpu/cpu_activation.h"

#include "engine/backends/cpu/cpu_op.h"
#include "engine/layers.h"

extern const rpi_op rpi_op_gelu, rpi_op_glu, rpi_op_silu, rpi_op_tanh;
extern const rpi_cpu_op rpi_cpu_gelu, rpi_cpu_glu, rpi_cpu_silu, rpi_cpu_tanh;

/* ---- one input: element by element, as one long row ---- */

rpi_activation rpi_cpu_activation_of(const rpi_node *node) {
    const rpi_gelu_attributes *gelu = node->attributes;
    if (node->op == &rpi_op_silu) return RPI_ACTIVATION_SILU;
    if (node->op == &rpi_op_tanh) return RPI_ACTIVATION_TANH;
    if (node->op != &rpi_op_gelu) return RPI_ACTIVATION_NONE;
    return gelu->form == RPI_GELU_TANH ? RPI_ACTIVATION_GELU_TANH : RPI_ACTIVATION_GELU_ERF;
}

static rpi_kernel_activation describe_call(const rpi_unit *unit, const rpi_kernel_io *io) {
    return (rpi_kernel_activation){.kind = rpi_cpu_activation_of(unit->nodes[0]),
                                   .rows = 1,
                                   .cols = rpi_shape_count(&unit->inputs[0].shape),
                                   .x = rpi_kernel_f32(io->inputs[0], 0)};
}

static rp_status activate(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    rpi_kernel_activation it = describe_call(&kernel->unit, io);
    it.y = rpi_kernel_f32(io->outputs[0], 0);
    rpi_kernel_activation_forward(&kernel->run, &it);
    return RP_OK;
}

static rp_status activate_backward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    rpi_kernel_activation it = describe_call(&kernel->unit, io);
    it.dy = rpi_kernel_f32(io->grad_outputs[0], 0);
    it.dx = rpi_kernel_f32(io->grad_inputs[0], 0);
    rpi_kernel_activation_backward(&kernel->run, &it);
    return RP_OK;
}

const rpi_cpu_op rpi_cpu_gelu = {
    .op = &rpi_op_gelu, .forward = activate, .backward = activate_backward};
const rpi_cpu_op rpi_cpu_silu = {
    .op = &rpi_op_silu, .forward = activate, .backward = activate_backward};
const rpi_cpu_op rpi_cpu_tanh = {
    .op = &rpi_op_tanh, .forward = activate, .backward = activate_backward};

/* ---- gated ---- */

enum { GATE, UP };

static rpi_kernel_gated describe_gated(const rpi_unit *unit, const rpi_kernel_io *io) {
    static const rpi_activation gates[] = {[RPI_GATE_SILU] = RPI_ACTIVATION_SILU,
                                           [RPI_GATE_GELU_ERF] = RPI_ACTIVATION_GELU_ERF,
                                           [RPI_GATE_GELU_TANH] = RPI_ACTIVATION_GELU_TANH};
    const rpi_glu_attributes *glu = unit->nodes[0]->attributes;
    return (rpi_kernel_gated){.kind = gates[glu->gate],
                              .rows = 1,
                              .cols = rpi_shape_count(&unit->inputs[GATE].shape),
                              .gate = rpi_kernel_f32(io->inputs[GATE], 0),
                              .up = rpi_kernel_f32(io->inputs[UP], 0)};
}

static rp_status gate(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    rpi_kernel_gated it = describe_gated(&kernel->unit, io);
    it.y = rpi_kernel_f32(io->outputs[0], 0);
    rpi_kernel_gated_forward(&kernel->run, &it);
    return RP_OK;
}

/* The kernel makes both gradients; one that is not wanted goes to the workspace. */
static rp_status gate_backward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    rpi_kernel_gated it = describe_gated(&kernel->unit, io);
    float *dgate = io->grad_inputs[GATE], *dup = io->grad_inputs[UP];
    it.dy = rpi_kernel_f32(io->grad_outputs[0], 0);
    it.dgate = rpi_kernel_f32(dgate ? dgate : io->workspace, 0);
    it.dup = rpi_kernel_f32(dup ? dup : io->workspace, 0);
    rpi_kernel_gated_backward(&kernel->run, &it);
    return RP_OK;
}

static void describe_gate(const rpi_unit *unit, rpi_kernel *kernel) {
    const uint32_t both = 1u << GATE | 1u << UP;
    if ((unit->wanted & both) != both)
        kernel->backward_workspace =
            sizeof(float) * (size_t)rpi_shape_count(&unit->outputs[0].shape);
}

const rpi_cpu_op rpi_cpu_glu = {
    .op = &rpi_op_glu, .forward = gate, .backward = gate_backward, .describe = describe_gate};
