#include "engine/backends/cpu/cpu_op.h"
#include "engine/backends/cpu/kernels/kernel_dropout.h"
#include "engine/layers.h"

#include <string.h>

extern const rpi_op rpi_op_dropout;
extern const rpi_cpu_op rpi_cpu_dropout;

/* Each row is a run of a longer one. it.first: the row of the first, in the whole. */
static void drop_rows(const rpi_cpu_kernel *kernel, const rpi_dropout_attributes *dropout,
                      rpi_kernel_dropout it) {
    int64_t width = rpi_op_width(&kernel->unit.inputs[0].shape);
    int64_t row = it.first, rows = it.count / width;
    float *x = it.x.data, *y = it.y.data;
    it.count = width;
    for (int64_t r = 0; r < rows; r++) {
        it.first = (row + r) * dropout->whole + dropout->first;
        it.x = rpi_kernel_f32(x + r * width, 0);
        it.y = rpi_kernel_f32(y + r * width, 0);
        rpi_kernel_dropout_apply(&kernel->run, &it);
    }
}

/* Tokens that follow each other, of which the first is row `row` of the whole. */
static void drop_run(const rpi_cpu_kernel *kernel, const rpi_dropout_attributes *dropout,
                     rpi_kernel_dropout it, int64_t row) {
    it.first = row;
    if (dropout->whole) {
        drop_rows(kernel, dropout, it);
        return;
    }
    it.first *= rpi_op_width(&kernel->unit.inputs[0].shape);
    rpi_kernel_dropout_apply(&kernel->run, &it);
}

/* Batch x tokens x width, of which the tokens are pieces of longer sequences. */
static void drop_pieces(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io,
                        const rpi_dropout_attributes *dropout, rpi_kernel_dropout it) {
    const int64_t *size = kernel->unit.inputs[0].shape.size;
    int64_t length = size[1], width = size[2], sample = rpi_cpu_first_sample(kernel, io, 0);
    int64_t whole = rpi_token_whole(&dropout->pieces, length);
    float *x = it.x.data, *y = it.y.data;
    if (rpi_token_is_padded(&dropout->pieces, length) && x != y)
        memcpy(y, x, (size_t)it.count * sizeof *y);
    for (int64_t b = 0; b < size[0]; b++)
        for (int i = 0; i < rpi_token_runs(&dropout->pieces); i++) {
            rpi_token_run run = rpi_token_run_at(&dropout->pieces, length, i);
            int64_t at = (b * length + run.first) * width;
            if (!run.count) continue;
            it.count = run.count * width;
            it.x = rpi_kernel_f32(x + at, 0);
            it.y = rpi_kernel_f32(y + at, 0);
            drop_run(kernel, dropout, it, (sample + b) * whole + run.place);
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
    if (rpi_token_is_cut(&dropout->pieces)) {
        drop_pieces(kernel, io, dropout, it);
    } else if (dropout->whole) {
        it.first /= rpi_op_width(shape);
        drop_rows(kernel, dropout, it);
    } else {
        rpi_kernel_dropout_apply(&kernel->run, &it);
    }
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
