/* Max pooling over whatever layout the input lies in. oneDNN's own starts from the most
 * negative number and takes a NaN for less than any: it loses NaN and makes numbers of minus
 * infinity. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/layers.h"
#include "engine/onednn/onednn_op.h"

#include <math.h>
#include <string.h>

extern const rpi_op rpi_op_max_pool2d;
extern const rpi_dnn_op rpi_dnn_op_max_pool2d;

enum { LONGEST_SIDE = 16, TAPS = LONGEST_SIDE * LONGEST_SIDE };

/* Planes of pixels of `block` channels each; row-major is blocks of one channel. */
typedef struct pool_kernel {
    int threads;
    int64_t planes, block;
    int64_t height, width, out_height, out_width;
    int side, stride, padding;
    int64_t offsets[TAPS]; /* of each tap from the window's first, in floats */
} pool_kernel;

/* The taps of a window that lie inside the plane: [first, end) in both directions. */
typedef struct window {
    int row, row_end, column, column_end;
    int64_t corner; /* of tap 0, in floats */
} window;

static void destroy(void *self) {
    rpi_free(self);
}

static int clip(int64_t value, int most) {
    return value < 0 ? 0 : value > most ? most : (int)value;
}

static window window_at(const pool_kernel *k, int64_t i, int64_t j) {
    int64_t top = i * k->stride - k->padding, left = j * k->stride - k->padding;
    return (window){.row = clip(-top, k->side),
                    .row_end = clip(k->height - top, k->side),
                    .column = clip(-left, k->side),
                    .column_end = clip(k->width - left, k->side),
                    .corner = (top * k->width + left) * k->block};
}

/* Four channels at once, as every processor that matters can. */
enum { LANES = 4 };
typedef float floats __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t masks __attribute__((vector_size(LANES * sizeof(int32_t))));

/* The first largest element of each channel in a window, and which tap it was. A NaN counts as
 * the largest. */
static inline void pool_lanes(const pool_kernel *k, const float *plane, int64_t corner,
                              const window *w, float *y, uint8_t *where) {
    int first = w->row * k->side + w->column;
    floats best;
    masks from = (masks){0} + first;
    memcpy(&best, &plane[corner + k->offsets[first]], sizeof best);
    for (int r = w->row; r < w->row_end; r++)
        for (int s = w->column; s < w->column_end; s++) {
            int tap = r * k->side + s;
            floats here;
            memcpy(&here, &plane[corner + k->offsets[tap]], sizeof here);
            masks larger = ~(here <= best) & (best <= INFINITY); /* no NaN yet */
            best = (floats)(((masks)here & larger) | ((masks)best & ~larger));
            from = (larger & tap) | (~larger & from);
        }
    memcpy(y, &best, sizeof best);
    for (int c = 0; where && c < LANES; c++) where[c] = (uint8_t)from[c];
}

static inline void pool_one(const pool_kernel *k, const float *plane, int64_t corner,
                            const window *w, float *y, uint8_t *where) {
    int from = w->row * k->side + w->column;
    float best = plane[corner + k->offsets[from]];
    for (int r = w->row; r < w->row_end; r++)
        for (int s = w->column; s < w->column_end; s++) {
            int tap = r * k->side + s;
            float here = plane[corner + k->offsets[tap]];
            if (here <= best || best != best) continue;
            best = here;
            from = tap;
        }
    *y = best;
    if (where) *where = (uint8_t)from;
}

static void pool_plane(const pool_kernel *k, const float *x, float *y, uint8_t *where) {
    for (int64_t i = 0; i < k->out_height; i++)
        for (int64_t j = 0; j < k->out_width; j++) {
            window w = window_at(k, i, j);
            if (k->block == 1) pool_one(k, x, w.corner, &w, y, where);
            for (int64_t c = 0; c + LANES <= k->block; c += LANES)
                pool_lanes(k, x, w.corner + c, &w, y + c, where ? where + c : NULL);
            y += k->block;
            if (where) where += k->block;
        }
}

static rp_status forward(void *self, const rpi_kernel_io *io) {
    const pool_kernel *k = self;
    const float *x = io->inputs[0];
    float *y = io->outputs[0];
    uint8_t *where = io->saved;
    int64_t in = k->height * k->width * k->block;
    int64_t out = k->out_height * k->out_width * k->block;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t p = 0; p < k->planes; p++)
        pool_plane(k, x + p * in, y + p * out, where ? where + p * out : NULL);
    return RP_OK;
}

static void spread_plane(const pool_kernel *k, const float *grad, const uint8_t *where,
                         float *dx) {
    memset(dx, 0, (size_t)(k->height * k->width * k->block) * sizeof *dx);
    for (int64_t i = 0; i < k->out_height; i++)
        for (int64_t j = 0; j < k->out_width; j++) {
            int64_t corner = window_at(k, i, j).corner;
            for (int64_t c = 0; c < k->block; c++)
                dx[corner + k->offsets[where[c]] + c] += grad[c];
            grad += k->block;
            where += k->block;
        }
}

static rp_status backward(void *self, const rpi_kernel_io *io) {
    const pool_kernel *k = self;
    const float *grad = io->grad_outputs[0];
    const uint8_t *where = io->saved;
    float *dx = io->grad_inputs[0];
    int64_t in = k->height * k->width * k->block;
    int64_t out = k->out_height * k->out_width * k->block;
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t p = 0; p < k->planes; p++)
        spread_plane(k, grad + p * out, where + p * out, dx + p * in);
    return RP_OK;
}

static void fill(pool_kernel *kernel, const rpi_dnn_session *session, const rpi_unit *unit,
                 int id) {
    const rpi_max_pool2d_attributes *attributes = unit->nodes[0]->attributes;
    const int64_t *in = unit->inputs[0].shape.size, *out = unit->outputs[0].shape.size;
    int64_t block = id == RPI_DNN_BLOCKED ? session->block : 1;
    *kernel = (pool_kernel){.threads = session->threads,
                            .planes = in[0] * ((in[1] + block - 1) / block),
                            .block = block,
                            .height = in[2],
                            .width = in[3],
                            .out_height = out[2],
                            .out_width = out[3],
                            .side = attributes->kernel,
                            .stride = attributes->stride,
                            .padding = attributes->padding};
    for (int r = 0; r < kernel->side; r++)
        for (int s = 0; s < kernel->side; s++)
            kernel->offsets[r * kernel->side + s] = (r * in[3] + s) * block;
}

static rp_status plan(rpi_dnn_session *session, const rpi_unit *unit, rpi_kernel *out) {
    const rpi_max_pool2d_attributes *attributes = unit->nodes[0]->attributes;
    const rpi_unit_value *input = &unit->inputs[0];
    int id = rpi_dnn_layout_for(input, input->layout.id);
    pool_kernel *kernel = NULL;
    if (attributes->kernel > LONGEST_SIDE) return RP_UNSUPPORTED;
    RP_TRY(rpi_alloc(sizeof *kernel, "max_pool2d kernel", &kernel));
    fill(kernel, session, unit, id);
    out->self = kernel;
    out->forward = forward;
    out->backward_inputs = unit->wanted ? backward : NULL;
    out->destroy = destroy;
    out->inputs[0] = out->grad_inputs[0] = rpi_dnn_layout(session, &input->shape, id);
    out->outputs[0] = out->grad_outputs[0] =
        rpi_dnn_layout(session, &unit->outputs[0].shape, id);
    out->needs_inputs = out->needs_outputs = 0;
    out->in_place_forward = out->in_place_backward = -1;
    out->saved_bytes = unit->wanted ? out->outputs[0].bytes / sizeof(float) : 0;
    return RP_OK;
}

const rpi_dnn_op rpi_dnn_op_max_pool2d = {.op = &rpi_op_max_pool2d, .plan = plan};
