#include "engine/reference/ref.h"

extern const rpi_op rpi_op_global_avg_pool;
extern const rpi_ref_op rpi_ref_global_avg_pool;

/* x: planes x pixels, y: planes, where planes = N * C and pixels = H * W. */
static rp_status forward(const rpi_unit *unit, const rpi_kernel_io *io) {
    const float *x = io->inputs[0];
    float *y = io->outputs[0];
    int64_t planes = rpi_shape_count(&unit->outputs[0].shape);
    int64_t pixels = rpi_shape_count(&unit->inputs[0].shape) / planes;
    for (int64_t p = 0; p < planes; p++) {
        double sum = 0;
        for (int64_t i = 0; i < pixels; i++) sum += (double)x[p * pixels + i];
        y[p] = (float)(sum / (double)pixels);
    }
    return RP_OK;
}

static rp_status backward(const rpi_unit *unit, const rpi_kernel_io *io) {
    const float *dy = io->grad_outputs[0];
    int64_t planes = rpi_shape_count(&unit->outputs[0].shape);
    int64_t pixels = rpi_shape_count(&unit->inputs[0].shape) / planes;
    for (int64_t p = 0; p < planes; p++)
        for (int64_t i = 0; i < pixels; i++)
            rpi_ref_store(io, 0, p * pixels + i, (double)dy[p] / (double)pixels);
    return RP_OK;
}

const rpi_ref_op rpi_ref_global_avg_pool = {.op = &rpi_op_global_avg_pool,
                                            .forward = forward,
                                            .backward = backward,
                                            .accumulates = true};
