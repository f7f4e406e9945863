#include "engine/layers.h"
#include "engine/reference/ref.h"

#include <string.h>

extern const rpi_op rpi_op_conv2d;
extern const rpi_ref_op rpi_ref_conv2d;

/* x: N x C x H x W, w: K x C x R x S, y: N x K x I x J */
typedef struct sizes {
    int64_t n, c, h, w, k, r, s, i, j, stride, padding;
} sizes;

static sizes sizes_of(const rpi_unit *unit) {
    const rpi_conv2d_attributes *conv = unit->nodes[0]->attributes;
    const int64_t *x = unit->inputs[0].shape.size, *w = unit->inputs[1].shape.size;
    const int64_t *y = unit->outputs[0].shape.size;
    return (sizes){x[0], x[1], x[2], x[3],         w[0],         w[2],
                   w[3], y[2], y[3], conv->stride, conv->padding};
}

/* Output positions [*from, *to) whose input position o * stride - padding + tap is inside. */
static void inside(int64_t outputs, int64_t inputs, int64_t tap, const sizes *z, int64_t *from,
                   int64_t *to) {
    int64_t shift = z->padding - tap;
    *from = shift > 0 ? (shift + z->stride - 1) / z->stride : 0;
    *to = inputs - 1 + shift < 0 ? 0 : (inputs - 1 + shift) / z->stride + 1;
    if (*to > outputs) *to = outputs;
}

/* Sum over all positions of y[i, j] * x[i * stride - padding + r, j * stride - padding + s]. */
static double correlate(const float *x, const float *y, const sizes *z, int64_t r, int64_t s) {
    int64_t i0, i1, j0, j1;
    double sum = 0;
    inside(z->i, z->h, r, z, &i0, &i1);
    inside(z->j, z->w, s, z, &j0, &j1);
    for (int64_t i = i0; i < i1; i++) {
        const float *row = x + (i * z->stride - z->padding + r) * z->w - z->padding + s;
        for (int64_t j = j0; j < j1; j++)
            sum += (double)y[i * z->j + j] * (double)row[j * z->stride];
    }
    return sum;
}

/* plane[i, j] += tap * x[...], or x's plane += tap * y, over the positions inside. */
static void spread(const float *x, double tap, double *plane, const sizes *z, int64_t r,
                   int64_t s, bool to_input) {
    int64_t i0, i1, j0, j1;
    inside(z->i, z->h, r, z, &i0, &i1);
    inside(z->j, z->w, s, z, &j0, &j1);
    for (int64_t i = i0; i < i1; i++)
        for (int64_t j = j0; j < j1; j++) {
            int64_t in =
                (i * z->stride - z->padding + r) * z->w + j * z->stride - z->padding + s;
            int64_t out = i * z->j + j;
            if (to_input)
                plane[in] += tap * (double)x[out];
            else
                plane[out] += tap * (double)x[in];
        }
}

static void forward_plane(const sizes *z, const float *image, const float *weight, double bias,
                          double *plane, float *y) {
    for (int64_t p = 0; p < z->i * z->j; p++) plane[p] = bias;
    for (int64_t c = 0; c < z->c; c++)
        for (int64_t r = 0; r < z->r; r++)
            for (int64_t s = 0; s < z->s; s++)
                spread(image + c * z->h * z->w, (double)weight[(c * z->r + r) * z->s + s],
                       plane, z, r, s, false);
    for (int64_t p = 0; p < z->i * z->j; p++) y[p] = (float)plane[p];
}

static rp_status forward(const rpi_unit *unit, const rpi_kernel_io *io) {
    const float *x = io->inputs[0], *w = io->inputs[1], *bias = io->inputs[2];
    float *y = io->outputs[0];
    sizes z = sizes_of(unit);
    for (int64_t n = 0; n < z.n; n++)
        for (int64_t k = 0; k < z.k; k++)
            forward_plane(&z, x + n * z.c * z.h * z.w, w + k * z.c * z.r * z.s,
                          bias ? (double)bias[k] : 0, io->workspace,
                          y + (n * z.k + k) * z.i * z.j);
    return RP_OK;
}

/* dx[n, c] = sum over k, r, s of w[k, c, r, s] * dy[n, k], spread back. */
static void input_gradient(const sizes *z, const float *w, const float *dy, double *plane,
                           const rpi_kernel_io *io) {
    for (int64_t n = 0; n < z->n; n++)
        for (int64_t c = 0; c < z->c; c++) {
            int64_t pixels = z->h * z->w;
            memset(plane, 0, (size_t)pixels * sizeof *plane);
            for (int64_t k = 0; k < z->k; k++)
                for (int64_t r = 0; r < z->r; r++)
                    for (int64_t s = 0; s < z->s; s++)
                        spread(dy + (n * z->k + k) * z->i * z->j,
                               (double)w[((k * z->c + c) * z->r + r) * z->s + s], plane, z, r,
                               s, true);
            for (int64_t p = 0; p < pixels; p++)
                rpi_ref_store(io, 0, (n * z->c + c) * pixels + p, plane[p]);
        }
}

static void weight_gradient(const sizes *z, const float *x, const float *dy,
                            const rpi_kernel_io *io) {
    int64_t index = 0;
    for (int64_t k = 0; k < z->k; k++)
        for (int64_t c = 0; c < z->c; c++)
            for (int64_t r = 0; r < z->r; r++)
                for (int64_t s = 0; s < z->s; s++, index++) {
                    double sum = 0;
                    for (int64_t n = 0; n < z->n; n++)
                        sum += correlate(x + (n * z->c + c) * z->h * z->w,
                                         dy + (n * z->k + k) * z->i * z->j, z, r, s);
                    rpi_ref_store(io, 1, index, sum);
                }
}

static void bias_gradient(const sizes *z, const float *dy, const rpi_kernel_io *io) {
    for (int64_t k = 0; k < z->k; k++) {
        double sum = 0;
        for (int64_t n = 0; n < z->n; n++)
            for (int64_t p = 0; p < z->i * z->j; p++)
                sum += (double)dy[(n * z->k + k) * z->i * z->j + p];
        rpi_ref_store(io, 2, k, sum);
    }
}

static rp_status backward(const rpi_unit *unit, const rpi_kernel_io *io) {
    const float *dy = io->grad_outputs[0];
    sizes z = sizes_of(unit);
    if (io->grad_inputs[0]) input_gradient(&z, io->inputs[1], dy, io->workspace, io);
    if (io->grad_inputs[1]) weight_gradient(&z, io->inputs[0], dy, io);
    if (io->grad_inputs[2]) bias_gradient(&z, dy, io);
    return RP_OK;
}

/* One plane of double, of the input or of the output. */
static size_t workspace_bytes(const rpi_unit *unit) {
    sizes z = sizes_of(unit);
    int64_t in = z.h * z.w, out = z.i * z.j;
    return sizeof(double) * (size_t)(in > out ? in : out);
}

const rpi_ref_op rpi_ref_conv2d = {.op = &rpi_op_conv2d,
                                   .forward = forward,
                                   .backward = backward,
                                   .accumulates = true,
                                   .is_product = true,
                                   .workspace_bytes = workspace_bytes};
