/* Max pooling over whatever layout the input lies in. oneDNN's own starts from the most
 * negative number and takes a NaN for less than any: it loses NaN and makes numbers of minus
 * infinity.
 *
 * Of what is handed on in bf16 the largest is one of bf16; its gradient, a sum where windows
 * overlap, is summed in f32 and rounded once. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/kernels/kernel_activation.h"
#include "engine/layers.h"
#include "engine/onednn/onednn_op.h"

#include <math.h>
#include <string.h>

extern const rpi_op rpi_op_max_pool2d, rpi_op_conv2d, rpi_op_add;
extern const rpi_dnn_op rpi_dnn_op_max_pool2d;

enum { LONGEST_SIDE = 16, TAPS = LONGEST_SIDE * LONGEST_SIDE };

/* Planes of pixels of `block` channels each; row-major is blocks of one channel. */
typedef struct pool_kernel {
    rpi_kernel_run run;
    bool is_half, makes_half; /* the input, the output is of bf16; so are gradients */
    int64_t planes, block;
    int64_t height, width, out_height, out_width;
    int side, stride, padding;
    int64_t offsets[TAPS]; /* of each tap from the window's first, in elements */
} pool_kernel;

/* The taps of a window that lie inside the plane: [first, end) in both directions. */
typedef struct window {
    int row, row_end, column, column_end;
    int64_t corner; /* of tap 0, in elements */
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
typedef uint32_t words __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef uint16_t halves __attribute__((vector_size(LANES * sizeof(uint16_t))));

static inline floats load(const void *data, int64_t i, bool is_half) {
    floats found;
    halves rounded;
    if (!is_half) {
        memcpy(&found, (const float *)data + i, sizeof found);
        return found;
    }
    memcpy(&rounded, (const uint16_t *)data + i, sizeof rounded);
    return (floats)(__builtin_convertvector(rounded, words) << 16);
}

/* What goes to bf16 came from there. */
static inline void store(void *data, int64_t i, bool is_half, floats x) {
    if (!is_half) {
        memcpy((float *)data + i, &x, sizeof x);
        return;
    }
    const halves rounded = __builtin_convertvector((words)x >> 16, halves);
    memcpy((uint16_t *)data + i, &rounded, sizeof rounded);
}

/* The first largest element of each channel in a window, and which tap it was. A NaN counts as
 * the largest. */
static inline floats pool_lanes(const pool_kernel *k, const void *plane, int64_t corner,
                                const window *w, bool is_half, uint8_t *where) {
    int first = w->row * k->side + w->column;
    floats best = load(plane, corner + k->offsets[first], is_half);
    masks from = (masks){0} + first;
    for (int r = w->row; r < w->row_end; r++)
        for (int s = w->column; s < w->column_end; s++) {
            int tap = r * k->side + s;
            floats here = load(plane, corner + k->offsets[tap], is_half);
            masks larger = ~(here <= best) & (best <= INFINITY); /* no NaN yet */
            best = (floats)(((masks)here & larger) | ((masks)best & ~larger));
            from = (larger & tap) | (~larger & from);
        }
    for (int c = 0; where && c < LANES; c++) where[c] = (uint8_t)from[c];
    return best;
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

static inline __attribute__((always_inline)) void pool_plane(const pool_kernel *k,
                                                             const void *x, void *y,
                                                             uint8_t *where, bool is_half,
                                                             bool makes_half) {
    int64_t at = 0;
    for (int64_t i = 0; i < k->out_height; i++)
        for (int64_t j = 0; j < k->out_width; j++, at += k->block) {
            window w = window_at(k, i, j);
            uint8_t *from = where ? where + at : NULL;
            if (k->block == 1) pool_one(k, x, w.corner, &w, (float *)y + at, from);
            for (int64_t c = 0; c + LANES <= k->block; c += LANES)
                store(y, at + c, makes_half,
                      pool_lanes(k, x, w.corner + c, &w, is_half, from ? from + c : NULL));
        }
}

static int64_t size_of(bool is_half) {
    return is_half ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
}

static int64_t read_elements(const pool_kernel *k) { /* of a plane */
    return k->height * k->width * k->block;
}

static int64_t made_elements(const pool_kernel *k) {
    return k->out_height * k->out_width * k->block;
}

static rp_status forward(void *self, const rpi_kernel_io *io) {
    const pool_kernel *k = self;
    const char *all_x = io->inputs[0];
    char *all_y = io->outputs[0];
    uint8_t *all_where = io->saved;
#pragma omp parallel for num_threads(k->run.threads) schedule(static)
    for (int64_t p = 0; p < k->planes; p++) {
        const char *x = all_x + p * read_elements(k) * size_of(k->is_half);
        char *y = all_y + p * made_elements(k) * size_of(k->makes_half);
        uint8_t *where = all_where ? all_where + p * made_elements(k) : NULL;
        if (!k->is_half)
            pool_plane(k, x, y, where, false, false);
        else if (k->makes_half)
            pool_plane(k, x, y, where, true, true);
        else
            pool_plane(k, x, y, where, true, false);
    }
    return RP_OK;
}

static float gradient_at(const pool_kernel *k, const void *grad, int64_t i) {
    return k->makes_half ? rpi_bf16_to_f32(((const uint16_t *)grad)[i])
                         : ((const float *)grad)[i];
}

static void spread_plane(const pool_kernel *k, const void *grad, const uint8_t *where,
                         float *dx) {
    int64_t at = 0;
    memset(dx, 0, (size_t)read_elements(k) * sizeof *dx);
    for (int64_t i = 0; i < k->out_height; i++)
        for (int64_t j = 0; j < k->out_width; j++, at += k->block) {
            int64_t corner = window_at(k, i, j).corner;
            for (int64_t c = 0; c < k->block; c++)
                dx[corner + k->offsets[where[at + c]] + c] += gradient_at(k, grad, at + c);
        }
}

static void round_plane(const pool_kernel *k, const float *sums, uint16_t *dx) {
    const rpi_kernel_run alone = {.threads = 1, .isa = k->run.isa};
    const int64_t count = read_elements(k);
    rpi_kernel_add_bias(&alone, &(rpi_kernel_add){.rows = 1,
                                                  .cols = count,
                                                  .a = rpi_kernel_f32(sums, count),
                                                  .y = rpi_kernel_bf16(dx, count)});
}

static rp_status backward(void *self, const rpi_kernel_io *io) {
    const pool_kernel *k = self;
    const char *grad = io->grad_outputs[0];
    const uint8_t *where = io->saved;
    const int64_t in = read_elements(k), out = made_elements(k), threads = k->run.threads;
#pragma omp parallel for num_threads(k->run.threads) schedule(static)
    for (int64_t part = 0; part < threads; part++) {
        float *sums = k->is_half ? (float *)io->workspace + part * in : NULL;
        for (int64_t p = k->planes * part / threads; p < k->planes * (part + 1) / threads;
             p++) {
            float *dx = k->is_half ? sums : (float *)io->grad_inputs[0] + p * in;
            spread_plane(k, grad + p * out * size_of(k->makes_half), where + p * out, dx);
            if (k->is_half) round_plane(k, sums, (uint16_t *)io->grad_inputs[0] + p * in);
        }
    }
    return RP_OK;
}

/* ---- planning ---- */

static bool is_blocked(int id) {
    return id == RPI_DNN_BLOCKED || id == RPI_DNN_HALF;
}

static void fill(pool_kernel *kernel, const rpi_dnn_session *session, const rpi_unit *unit,
                 int id) {
    const rpi_max_pool2d_attributes *attributes = unit->nodes[0]->attributes;
    const int64_t *in = unit->inputs[0].shape.size, *out = unit->outputs[0].shape.size;
    int64_t block = is_blocked(id) ? session->block : 1;
    *kernel = (pool_kernel){.run = rpi_dnn_kernel_run(session),
                            .is_half = id == RPI_DNN_HALF,
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
    static const rpi_op *const readers[] = {&rpi_op_conv2d, &rpi_op_add, NULL};
    const rpi_max_pool2d_attributes *attributes = unit->nodes[0]->attributes;
    const rpi_unit_value *input = &unit->inputs[0];
    const bool is_half = input->layout.id == RPI_DNN_HALF;
    const int id = is_half ? RPI_DNN_HALF : rpi_dnn_layout_for(input, input->layout.id);
    pool_kernel *kernel = NULL;
    if (attributes->kernel > LONGEST_SIDE) return RP_UNSUPPORTED;
    RP_TRY(rpi_alloc(sizeof *kernel, "max_pool2d kernel", &kernel));
    fill(kernel, session, unit, id);
    kernel->makes_half = is_half && rpi_dnn_makes_half(session, unit, readers);
    out->self = kernel;
    out->forward = forward;
    out->backward_inputs = unit->wanted ? backward : NULL;
    out->destroy = destroy;
    out->inputs[0] = out->grad_inputs[0] = rpi_dnn_layout(session, &input->shape, id);
    out->outputs[0] = out->grad_outputs[0] =
        rpi_dnn_layout(session, &unit->outputs[0].shape,
                       is_half && !kernel->makes_half ? RPI_DNN_BLOCKED : id);
    out->needs_inputs = out->needs_outputs = 0;
    out->in_place_forward = out->in_place_backward = -1;
    out->saved_bytes = unit->wanted ? (size_t)(kernel->planes * made_elements(kernel)) : 0;
    if (is_half && unit->wanted)
        out->backward_workspace =
            (size_t)(session->threads * read_elements(kernel)) * sizeof(float);
    return RP_OK;
}

const rpi_dnn_op rpi_dnn_op_max_pool2d = {.op = &rpi_op_max_pool2d, .plan = plan};
