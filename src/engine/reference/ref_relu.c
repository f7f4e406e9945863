#include "engine/reference/ref.h"

extern const rpi_op rpi_op_relu;
extern const rpi_ref_op rpi_ref_relu;

static rp_status forward(const rpi_unit *unit, const rpi_kernel_io *io) {
    const float *x = io->inputs[0];
    float *y = io->outputs[0];
    int64_t count = rpi_shape_count(&unit->outputs[0].shape);
    for (int64_t i = 0; i < count; i++) y[i] = x[i] <= 0 ? 0 : x[i];
    return RP_OK;
}

static rp_status backward(const rpi_unit *unit, const rpi_kernel_io *io) {
    const float *y = io->outputs[0], *dy = io->grad_outputs[0];
    float *dx = io->grad_inputs[0];
    int64_t count = rpi_shape_count(&unit->outputs[0].shape);
    for (int64_t i = 0; i < count; i++) dx[i] = y[i] <= 0 ? 0 : dy[i];
    return RP_OK;
}

const rpi_ref_op rpi_ref_relu = {.op = &rpi_op_relu, .forward = forward, .backward = backward};
