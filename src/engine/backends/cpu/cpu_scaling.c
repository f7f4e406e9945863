/* One product an element: the same on every instruction set. */
#include "engine/backends/cpu/cpu_op.h"
#include "engine/layers.h"

extern const rpi_op rpi_op_scale;
extern const rpi_cpu_op rpi_cpu_scale;

typedef struct product {
    const float *x;
    float *y;
    float factor;
} product;

static void multiply(const void *args, int64_t begin, int64_t end) {
    const product *it = args;
    for (int64_t i = begin; i < end; i++) it->y[i] = it->factor * it->x[i];
}

static rp_status run(const rpi_cpu_kernel *kernel, const void *x, void *y) {
    static const rpi_kernel_body bodies[] = {multiply, multiply, multiply};
    const rpi_scale_attributes *scale = kernel->unit.nodes[0]->attributes;
    product it = {.x = x, .y = y, .factor = scale->factor};
    rpi_kernel_parallel(&kernel->run, rpi_shape_count(&kernel->unit.inputs[0].shape),
                        RPI_KERNEL_PIECE, bodies, &it);
    return RP_OK;
}

static rp_status forward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    return run(kernel, io->inputs[0], io->outputs[0]);
}

static rp_status backward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    return run(kernel, io->grad_outputs[0], io->grad_inputs[0]);
}

const rpi_cpu_op rpi_cpu_scale = {
    .op = &rpi_op_scale, .forward = forward, .backward = backward};
