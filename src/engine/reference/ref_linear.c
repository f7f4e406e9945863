#include "engine/reference/ref.h"

extern const rpi_op rpi_op_linear;
extern const rpi_ref_op rpi_ref_linear;

/* x: N x I, w: O x I, y: N x O, where N is all axes but the last */
typedef struct sizes {
    int64_t rows, in, out;
} sizes;

static sizes sizes_of(const rpi_unit *unit) {
    const int64_t *weight = unit->inputs[1].shape.size;
    return (sizes){rpi_shape_count(&unit->outputs[0].shape) / weight[0], weight[1], weight[0]};
}

static rp_status forward(const rpi_unit *unit, const rpi_kernel_io *io) {
    const float *x = io->inputs[0], *w = io->inputs[1], *bias = io->inputs[2];
    float *y = io->outputs[0];
    sizes s = sizes_of(unit);
    for (int64_t n = 0; n < s.rows; n++)
        for (int64_t o = 0; o < s.out; o++) {
            double sum = bias ? (double)bias[o] : 0;
            for (int64_t i = 0; i < s.in; i++)
                sum += (double)x[n * s.in + i] * (double)w[o * s.in + i];
            y[n * s.out + o] = (float)sum;
        }
    return RP_OK;
}

/* dx = dy w */
static void input_gradient(sizes s, const float *dy, const float *w, const rpi_kernel_io *io) {
    for (int64_t n = 0; n < s.rows; n++)
        for (int64_t i = 0; i < s.in; i++) {
            double sum = 0;
            for (int64_t o = 0; o < s.out; o++)
                sum += (double)dy[n * s.out + o] * (double)w[o * s.in + i];
            rpi_ref_store(io, 0, n * s.in + i, sum);
        }
}

/* dw = dy^T x */
static void weight_gradient(sizes s, const float *dy, const float *x, const rpi_kernel_io *io) {
    for (int64_t o = 0; o < s.out; o++)
        for (int64_t i = 0; i < s.in; i++) {
            double sum = 0;
            for (int64_t n = 0; n < s.rows; n++)
                sum += (double)dy[n * s.out + o] * (double)x[n * s.in + i];
            rpi_ref_store(io, 1, o * s.in + i, sum);
        }
}

static void bias_gradient(sizes s, const float *dy, const rpi_kernel_io *io) {
    for (int64_t o = 0; o < s.out; o++) {
        double sum = 0;
        for (int64_t n = 0; n < s.rows; n++) sum += (double)dy[n * s.out + o];
        rpi_ref_store(io, 2, o, sum);
    }
}

static rp_status backward(const rpi_unit *unit, const rpi_kernel_io *io) {
    const float *dy = io->grad_outputs[0];
    sizes s = sizes_of(unit);
    if (io->grad_inputs[0]) input_gradient(s, dy, io->inputs[1], io);
    if (io->grad_inputs[1]) weight_gradient(s, dy, io->inputs[0], io);
    if (io->grad_inputs[2]) bias_gradient(s, dy, io);
    return RP_OK;
}

const rpi_ref_op rpi_ref_linear = {.op = &rpi_op_linear,
                                   .forward = forward,
                                   .backward = backward,
                                   .accumulates = true,
                                   .is_product = true};
