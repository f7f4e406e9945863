#include "engine/backends/cpu/cpu_op.h"
#include "engine/backends/cpu/kernels/kernel_norm.h"
#include "engine/layers.h"

extern const rpi_op rpi_op_layer_norm, rpi_op_rms_norm;
extern const rpi_cpu_op rpi_cpu_layer_norm, rpi_cpu_rms_norm;

enum { INPUT, SCALE, SHIFT };

/* saved: 1 / deviation of each row, then its mean. */
static rpi_kernel_norm describe_call(const rpi_unit *unit, const rpi_kernel_io *io) {
    const rpi_norm_attributes *norm = unit->nodes[0]->attributes;
    const rpi_shape *shape = &unit->inputs[INPUT].shape;
    float *saved = io->saved;
    int64_t rows = rpi_cpu_row_count(shape);
    bool rms = unit->nodes[0]->op == &rpi_op_rms_norm;
    return (rpi_kernel_norm){.rms = rms,
                             .rows = rows,
                             .cols = rpi_op_width(shape),
                             .epsilon = norm->epsilon,
                             .gamma = io->inputs[SCALE],
                             .beta = io->inputs[SHIFT],
                             .inverse = saved,
                             .mean = saved && !rms ? saved + rows : NULL};
}

static rp_status forward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    rpi_kernel_norm it = describe_call(&kernel->unit, io);
    it.x = rpi_kernel_f32(io->inputs[INPUT], it.cols);
    it.y = rpi_kernel_f32(io->outputs[0], it.cols);
    rpi_kernel_norm_forward(&kernel->run, &it);
    return RP_OK;
}

static void input_gradient(const rpi_kernel_run *run, rpi_kernel_norm *it,
                           const rpi_kernel_io *io) {
    it->dx = rpi_kernel_f32(io->grad_inputs[INPUT], it->cols);
    if (rpi_cpu_accumulates(io, INPUT)) it->dsum = it->dx;
    rpi_kernel_norm_backward_inputs(run, it);
}

/* The kernel adds to both or to none. */
static void weight_gradients(const rpi_kernel_run *run, rpi_kernel_norm *it,
                             const rpi_kernel_io *io) {
    bool apart = rpi_cpu_accumulates(io, SCALE) != rpi_cpu_accumulates(io, SHIFT);
    for (int i = SCALE; i <= SHIFT; i++) {
        it->dgamma = apart && i == SHIFT ? NULL : io->grad_inputs[SCALE];
        it->dbeta = apart && i == SCALE ? NULL : io->grad_inputs[SHIFT];
        it->accumulate = rpi_cpu_accumulates(io, it->dgamma ? SCALE : SHIFT);
        if (it->dgamma || it->dbeta) rpi_kernel_norm_backward_weights(run, it);
        if (!apart) return;
    }
}

static rp_status backward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    rpi_kernel_norm it = describe_call(&kernel->unit, io);
    it.h = rpi_kernel_f32(io->inputs[INPUT], it.cols);
    it.dy = rpi_kernel_f32(io->grad_outputs[0], it.cols);
    weight_gradients(&kernel->run, &it, io); /* first: dx may take the place of dy */
    if (io->grad_inputs[INPUT]) input_gradient(&kernel->run, &it, io);
    return RP_OK;
}

static void describe(const rpi_unit *unit, rpi_kernel *kernel) {
    (void)unit;
    kernel->accumulates = 1u << INPUT;
}

const rpi_cpu_op rpi_cpu_layer_norm = {
    .op = &rpi_op_layer_norm, .forward = forward, .backward = backward, .describe = describe};
const rpi_cpu_op rpi_cpu_rms_norm = {
    .op = &rpi_op_rms_norm, .forward = forward, .backward = backward, .describe = describe};
