#include "engine/layers.h"
#include "engine/reference/ref.h"

#include <string.h>

extern const rpi_op rpi_op_max_pool2d;
extern const rpi_ref_op rpi_ref_max_pool2d;

/* x: planes x H x W, y: planes x I x J, where planes = N * C. */
typedef struct window {
    int64_t height, width, kernel, stride, padding;
} window;

static window window_of(const rpi_unit *unit) {
    const rpi_max_pool2d_attributes *pool = unit->nodes[0]->attributes;
    const int64_t *size = unit->inputs[0].shape.size;
    return (window){size[2], size[3], pool->kernel, pool->stride, pool->padding};
}

/* The first largest element of a window in its plane. A NaN counts as the largest. */
static int32_t largest(const float *plane, window w, int64_t row, int64_t column) {
    int64_t best = -1;
    for (int64_t i = row; i < row + w.kernel; i++)
        for (int64_t j = column; j < column + w.kernel; j++) {
            if (i < 0 || j < 0 || i >= w.height || j >= w.width) continue;
            int64_t here = i * w.width + j;
            if (best < 0 || plane[here] > plane[best] ||
                (plane[here] != plane[here] && plane[best] == plane[best]))
                best = here;
        }
    return (int32_t)best;
}

static rp_status forward(const rpi_unit *unit, const rpi_kernel_io *io) {
    const float *x = io->inputs[0];
    float *y = io->outputs[0];
    int32_t *from = io->saved;
    const int64_t *size = unit->outputs[0].shape.size;
    window w = window_of(unit);
    int64_t out = 0;
    for (int64_t p = 0; p < size[0] * size[1]; p++)
        for (int64_t i = 0; i < size[2]; i++)
            for (int64_t j = 0; j < size[3]; j++, out++) {
                const float *plane = x + p * w.height * w.width;
                int32_t best =
                    largest(plane, w, i * w.stride - w.padding, j * w.stride - w.padding);
                y[out] = plane[best];
                if (from) from[out] = best;
            }
    return RP_OK;
}

static rp_status backward(const rpi_unit *unit, const rpi_kernel_io *io) {
    const float *dy = io->grad_outputs[0];
    const int32_t *from = io->saved;
    float *dx = io->grad_inputs[0];
    const int64_t *in = unit->inputs[0].shape.size, *out = unit->outputs[0].shape.size;
    int64_t plane = in[2] * in[3], window_count = out[2] * out[3];
    memset(dx, 0, (size_t)(in[0] * in[1] * plane) * sizeof *dx);
    for (int64_t i = 0; i < out[0] * out[1] * window_count; i++)
        dx[i / window_count * plane + from[i]] += dy[i];
    return RP_OK;
}

const rpi_ref_op rpi_ref_max_pool2d = {
    .op = &rpi_op_max_pool2d, .forward = forward, .backward = backward};
