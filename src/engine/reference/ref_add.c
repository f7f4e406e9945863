#include "engine/reference/ref.h"

extern const rpi_op rpi_op_add;
extern const rpi_ref_op rpi_ref_add;

static rp_status forward(const rpi_unit *unit, const rpi_kernel_io *io) {
    const float *a = io->inputs[0], *b = io->inputs[1];
    float *y = io->outputs[0];
    int64_t count = rpi_shape_count(&unit->outputs[0].shape);
    for (int64_t i = 0; i < count; i++) y[i] = a[i] + b[i];
    return RP_OK;
}

const rpi_ref_op rpi_ref_add = {.op = &rpi_op_add, .forward = forward};
