#include "engine/backends/cpu/cpu_op.h"
#include "engine/backends/cpu/kernels/kernel_dropout.h"
#include "engine/layers.h"

#include <string.h>

extern const rpi_op rpi_op_dropout;
extern const rpi_cpu_op rpi_cpu_dropout;

/* Each row is a run of a longer one. */
static void drop_rows(const rpi_cpu_kernel *kernel, const rpi_dropout_attributes *dropout,
                      rpi_kernel_dropout it) {
    int64_t width = rpi_op_width(&kernel->unit.inputs[0].shape);
    int64_t row = it.first / width, rows = it.count / width;
    float *x = it.x.data, *y = it.y.data;
    it.count = width;
    for (int64_t r = 0; r < rows; r++) {
        it.first = (row + r) * dropout->whole + dropout->first;
        it.x = rpi_kernel_f32(x + r * width, 0);
        it.y = rpi_kernel_f32(y + r * width, 0);
        rpi_kernel_dropout_apply(&kernel->run, &it);
    }
}

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
    rpi_kernel_dropout it = {.mask = rpi_cpu_mask(kernel, io, dropout->probability),
                             .first = each * rpi_cpu_first_sample(kernel, io, 0),
                             .count = count,
                             .x = rpi_kernel_f32(x, 0),
                             .y = rpi_kernel_f32(y, 0)};
    if (dropout->whole)
        drop_rows(kernel, dropout, it);
    else
        rpi_kernel_dropout_apply(&kernel->run, &it);
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
