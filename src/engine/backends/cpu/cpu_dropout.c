#include "engine/backends/cpu/cpu_op.h"
#include "engine/backends/cpu/kernels/kernel_dropout.h"
#include "engine/layers.h"

#include <string.h>

extern const rpi_op rpi_op_dropout;
extern const rpi_cpu_op rpi_cpu_dropout;

/* The gradient is dropped as the elements were: the mask is drawn again. */
static void drop(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io, const void *x,
                 void *y) {
    const rpi_dropout_attributes *dropout = kernel->unit.nodes[0]->attributes;
    const rpi_shape *shape = &kernel->unit.inputs[0].shape;
    int64_t count = rpi_shape_count(shape), each = shape->dims ? count / shape->size[0] : 1;
    if (!kernel->unit.training || dropout->probability == 0) {
        if (x != y) memcpy(y, x, (size_t)count * sizeof(float));
        return;
    }
    rpi_kernel_dropout_apply(
        &kernel->run,
        &(rpi_kernel_dropout){.mask = rpi_cpu_mask(kernel, io, dropout->probability),
                              .first = each * rpi_cpu_first_sample(kernel, io, 0),
                              .count = count,
                              .x = rpi_kernel_f32(x, 0),
                              .y = rpi_kernel_f32(y, 0)});
}

static rp_status forward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    drop(kernel, io, io->inputs[0], io->outputs[0]);
    return RP_OK;
}

static rp_status backward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    drop(kernel, io, io->grad_outputs[0], io->grad_inputs[0]);
    return RP_OK;
}

const rpi_cpu_op rpi_cpu_dropout = {
    .op = &rpi_op_dropout, .forward = forward, .backward = backward};
