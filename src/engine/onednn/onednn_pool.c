/* Max pooling over whatever layout the input lies in. oneDNN's own starts from the most
 * negative number and takes a NaN for less than any: it loses NaN and makes numbers of minus
 * infinity.
 *
 * Of what is handed on in bf16 the largest is one of bf16; its gradient, a sum where windows
 * overlap, is summed in f32 and rounded once. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/kernels/kernel_activation.h"
#include "engine/backends/cpu/kernels/kernel_pool.h"
#include "engine/layers.h"
#include "engine/onednn/onednn_op.h"
#include "engine/onednn/onednn_team.h"

#include <string.h>

extern const rpi_op rpi_op_max_pool2d, rpi_op_conv2d, rpi_op_add;
extern const rpi_dnn_op rpi_dnn_op_max_pool2d;

enum { TAPS = RPI_MAX_POOL_SIDE * RPI_MAX_POOL_SIDE };

typedef struct pool_kernel {
    rpi_kernel_run run;
    bool is_half, makes_half;  /* the input, the output is of bf16; so are gradients */
    rpi_kernel_max_pool shape; /* a call without its pointers */
    int64_t offsets[TAPS];     /* of each tap from the window's first, in elements */
} pool_kernel;

static void destroy(void *self) {
    rpi_free(self);
}

static int64_t size_of(bool is_half) {
    return is_half ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
}

static int64_t read_elements(const pool_kernel *k) { /* of a plane */
    return k->shape.height * k->shape.width * k->shape.block;
}

static int64_t made_elements(const pool_kernel *k) {
    return k->shape.out_height * k->shape.out_width * k->shape.block;
}

static rpi_kernel_rows rows_of(const void *data, int64_t elements, bool is_half) {
    return is_half ? rpi_kernel_bf16(data, elements) : rpi_kernel_f32(data, elements);
}

static rp_status forward(void *self, const rpi_kernel_io *io) {
    const pool_kernel *k = self;
    rpi_kernel_max_pool it = k->shape;
    it.x = rows_of(io->inputs[0], read_elements(k), k->is_half);
    it.y = rows_of(io->outputs[0], made_elements(k), k->makes_half);
    it.where = io->saved;
    rpi_dnn_team_enter(k->run.threads);
    rpi_kernel_max_pool_forward(&k->run, &it);
    return RP_OK;
}

static float gradient_at(const pool_kernel *k, const void *grad, int64_t i) {
    return k->makes_half ? rpi_bf16_to_f32(((const uint16_t *)grad)[i])
                         : ((const float *)grad)[i];
}

static void spread_plane(const pool_kernel *k, const void *grad, const uint8_t *where,
                         float *dx) {
    const rpi_kernel_max_pool *of = &k->shape;
    int64_t at = 0;
    memset(dx, 0, (size_t)read_elements(k) * sizeof *dx);
    for (int64_t i = 0; i < of->out_height; i++)
        for (int64_t j = 0; j < of->out_width; j++, at += of->block) {
            const int64_t top = i * of->stride - of->padding;
            const int64_t left = j * of->stride - of->padding;
            const int64_t corner = (top * of->width + left) * of->block;
            for (int64_t c = 0; c < of->block; c++)
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
    const int64_t in = read_elements(k), out = made_elements(k);
    const int64_t planes = k->shape.planes, threads = k->run.threads;
#pragma omp parallel for num_threads(k->run.threads) schedule(static)
    for (int64_t part = 0; part < threads; part++) {
        float *sums = k->is_half ? (float *)io->workspace + part * in : NULL;
        for (int64_t p = planes * part / threads; p < planes * (part + 1) / threads; p++) {
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
    *kernel = (pool_kernel){
        .run = rpi_dnn_kernel_run(session),
        .is_half = id == RPI_DNN_HALF,
        .shape = {.planes = in[0] * ((in[1] + block - 1) / block),
                  .block = block,
                  .height = in[2],
                  .width = in[3],
                  .out_height = out[2],
                  .out_width = out[3],
                  .side = attributes->kernel,
                  .stride = attributes->stride,
                  .padding = attributes->padding},
    };
    const int side = attributes->kernel;
    for (int r = 0; r < side; r++)
        for (int s = 0; s < side; s++) kernel->offsets[r * side + s] = (r * in[3] + s) * block;
}

static rp_status plan(rpi_dnn_session *session, const rpi_unit *unit, rpi_kernel *out) {
    static const rpi_op *const readers[] = {&rpi_op_conv2d, &rpi_op_add, NULL};
    const rpi_max_pool2d_attributes *attributes = unit->nodes[0]->attributes;
    const rpi_unit_value *input = &unit->inputs[0];
    const bool is_half = input->layout.id == RPI_DNN_HALF;
    const int id = is_half ? RPI_DNN_HALF : rpi_dnn_layout_for(input, input->layout.id);
    pool_kernel *kernel = NULL;
    if (attributes->kernel > RPI_MAX_POOL_SIDE) return RP_UNSUPPORTED;
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
    out->saved_bytes =
        unit->wanted ? (size_t)(kernel->shape.planes * made_elements(kernel)) : 0;
    if (is_half && unit->wanted)
        out->backward_workspace =
            (size_t)(session->threads * read_elements(kernel)) * sizeof(float);
    return RP_OK;
}

const rpi_dnn_op rpi_dnn_op_max_pool2d = {.op = &rpi_op_max_pool2d, .plan = plan};
