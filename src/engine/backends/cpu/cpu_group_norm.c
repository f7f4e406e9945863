#include "engine/backends/cpu/cpu_op.h"
#include "engine/backends/cpu/kernels/kernel_group_norm.h"
#include "engine/layers.h"

extern const rpi_op rpi_op_group_norm;
extern const rpi_cpu_op rpi_cpu_group_norm;

enum { INPUT, SCALE, SHIFT };

/* A workspace holds the room, and in evaluation, which saves nothing, the statistics. */
static int64_t room_of(const rpi_unit *unit) {
    const rpi_group_norm_attributes *norm = unit->nodes[0]->attributes;
    const int64_t *size = unit->inputs[INPUT].shape.size;
    return rpi_group_norm_room(size[0], size[1], norm->groups);
}

static rpi_kernel_group_norm describe_call(const rpi_unit *unit, const rpi_kernel_io *io) {
    const rpi_group_norm_attributes *norm = unit->nodes[0]->attributes;
    const int64_t *size = unit->inputs[INPUT].shape.size;
    float *room = io->workspace, *mean = io->saved ? io->saved : room + room_of(unit);
    return (rpi_kernel_group_norm){.images = size[0],
                                   .channels = size[1],
                                   .pixels = size[2] * size[3],
                                   .groups = norm->groups,
                                   .block = 1,
                                   .epsilon = norm->epsilon,
                                   .scale = io->inputs[SCALE],
                                   .shift = io->inputs[SHIFT],
                                   .mean = mean,
                                   .inverse = mean + size[0] * norm->groups,
                                   .room = room,
                                   .x = rpi_kernel_f32(io->inputs[INPUT], size[2] * size[3])};
}

static rp_status forward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    rpi_kernel_group_norm it = describe_call(&kernel->unit, io);
    it.y = rpi_kernel_f32(io->outputs[0], it.pixels);
    rpi_kernel_group_norm_forward(&kernel->run, &it);
    return RP_OK;
}

static rp_status backward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    rpi_kernel_group_norm it = describe_call(&kernel->unit, io);
    it.dy = rpi_kernel_f32(io->grad_outputs[0], it.pixels);
    it.dx = rpi_kernel_f32(io->grad_inputs[INPUT], it.pixels);
    it.dscale = io->grad_inputs[SCALE];
    it.dshift = io->grad_inputs[SHIFT];
    it.sums_to_dscale = rpi_cpu_accumulates(io, SCALE);
    it.sums_to_dshift = rpi_cpu_accumulates(io, SHIFT);
    rpi_kernel_group_norm_backward(&kernel->run, &it);
    return RP_OK;
}

/* One call makes all gradients: its sums serve them. */
static void describe(const rpi_unit *unit, rpi_kernel *kernel) {
    const rpi_group_norm_attributes *norm = unit->nodes[0]->attributes;
    const int64_t statistics = 2 * unit->inputs[INPUT].shape.size[0] * norm->groups;
    kernel->backward_weights = NULL;
    kernel->backward_workspace = (size_t)room_of(unit) * sizeof(float);
    kernel->forward_workspace = (size_t)(room_of(unit) + statistics) * sizeof(float);
}

const rpi_cpu_op rpi_cpu_group_norm = {
    .op = &rpi_op_group_norm, .forward = forward, .backward = backward, .describe = describe};
