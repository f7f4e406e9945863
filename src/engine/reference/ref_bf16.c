/* A product in bf16, as it is defined: the op's own loops over inputs, and gradients of
 * outputs, that were rounded before. The bias and its gradient, a plain sum, are not. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/kernels/kernel.h"
#include "engine/reference/ref.h"

enum { INPUT, WEIGHT, BIAS };

typedef struct bf16_kernel {
    const rpi_ref_op *op;
    rpi_unit unit;
    size_t inputs[2], grad_output; /* the rounded ones, in the workspace */
} bf16_kernel;

static void *round_to(const rpi_kernel_io *io, size_t offset, const void *from,
                      const rpi_shape *shape) {
    const float *x = from;
    float *rounded = (float *)((unsigned char *)io->workspace + offset);
    if (!x) return NULL;
    for (int64_t i = 0; i < rpi_shape_count(shape); i++)
        rounded[i] = rpi_bf16_to_f32(rpi_f32_to_bf16(x[i]));
    return rounded;
}

static rpi_kernel_io with_rounded_inputs(const bf16_kernel *kernel, const rpi_kernel_io *io) {
    rpi_kernel_io rounded = *io;
    for (int i = INPUT; i <= WEIGHT; i++)
        rounded.inputs[i] =
            round_to(io, kernel->inputs[i], io->inputs[i], &kernel->unit.inputs[i].shape);
    return rounded;
}

static rp_status forward(void *self, const rpi_kernel_io *io) {
    const bf16_kernel *kernel = self;
    rpi_kernel_io rounded = with_rounded_inputs(kernel, io);
    return kernel->op->forward(&kernel->unit, &rounded);
}

static rp_status backward(void *self, const rpi_kernel_io *io) {
    const bf16_kernel *kernel = self;
    rpi_kernel_io rounded = with_rounded_inputs(kernel, io), bias = *io;
    rounded.grad_outputs[0] =
        round_to(io, kernel->grad_output, io->grad_outputs[0], &kernel->unit.outputs[0].shape);
    rounded.grad_inputs[BIAS] = NULL;
    RP_TRY(kernel->op->backward(&kernel->unit, &rounded));
    bias.grad_inputs[INPUT] = bias.grad_inputs[WEIGHT] = NULL;
    return kernel->op->backward(&kernel->unit, &bias);
}

static size_t reserve(size_t *total, const rpi_shape *shape) {
    size_t offset = *total;
    *total += rpi_align_up((size_t)rpi_shape_count(shape) * sizeof(float));
    return offset;
}

rp_status rpi_ref_bf16_plan(const rpi_ref_op *op, const rpi_unit *unit, rpi_kernel *kernel) {
    bf16_kernel *self = NULL;
    RP_TRY(rpi_alloc(sizeof *self, "a kernel", &self));
    size_t bytes = op->workspace_bytes ? rpi_align_up(op->workspace_bytes(unit)) : 0;
    self->op = op;
    self->unit = *unit;
    for (int i = INPUT; i <= WEIGHT; i++)
        self->inputs[i] = reserve(&bytes, &unit->inputs[i].shape);
    self->grad_output = reserve(&bytes, &unit->outputs[0].shape);
    kernel->self = self;
    kernel->forward = forward;
    kernel->backward_inputs = kernel->backward_weights = backward;
    kernel->accumulates = op->accumulates ? ~0u : 0;
    kernel->destroy = rpi_free;
    kernel->forward_workspace = kernel->backward_workspace = bytes;
    return RP_OK;
}
