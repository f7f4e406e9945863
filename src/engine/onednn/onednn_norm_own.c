#include "engine/onednn/onednn_norm.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/kernels/kernel_batch_norm.h"
#include "engine/layers.h"
#include "engine/onednn/onednn_team.h"

extern const rpi_op rpi_op_conv2d, rpi_op_add, rpi_op_max_pool2d, rpi_op_relu;

enum {
    INPUT = RPI_DNN_NORM_INPUT,
    SCALE = RPI_DNN_NORM_SCALE,
    SHIFT = RPI_DNN_NORM_SHIFT,
    ADDEND = RPI_DNN_NORM_ADDEND
};

typedef struct norm_kernel {
    rpi_kernel_run run;
    bool relu, adds;
    /* The input, the addend, the output is of bf16; so are their gradients. */
    bool is_half, adds_half, makes_half;
    int64_t images, channels, pixels;
    float epsilon, momentum;
    size_t mean, variance;           /* in what is saved */
    size_t dx_aside, dscale, dshift; /* in backward's workspace */
} norm_kernel;

static void destroy(void *self) {
    rpi_free(self);
}

static rpi_kernel_rows rows_of(const norm_kernel *k, const void *data, bool is_half) {
    const int64_t row = k->pixels * RPI_BATCH_NORM_BLOCK;
    return is_half ? rpi_kernel_bf16(data, row) : rpi_kernel_f32(data, row);
}

static rpi_kernel_batch_norm call_of(const norm_kernel *k, const rpi_kernel_io *io) {
    return (rpi_kernel_batch_norm){.images = k->images,
                                   .blocks = k->channels / RPI_BATCH_NORM_BLOCK,
                                   .pixels = k->pixels,
                                   .relu = k->relu,
                                   .adds = k->adds,
                                   .epsilon = k->epsilon,
                                   .scale = io->inputs[SCALE],
                                   .shift = io->inputs[SHIFT],
                                   .mean = rpi_dnn_at(io->saved, k->mean),
                                   .variance = rpi_dnn_at(io->saved, k->variance),
                                   .x = rows_of(k, io->inputs[INPUT], k->is_half),
                                   .y = rows_of(k, io->outputs[0], k->makes_half)};
}

static rp_status forward(void *self, const rpi_kernel_io *io) {
    const norm_kernel *k = self;
    rpi_kernel_batch_norm it = call_of(k, io);
    if (k->adds) it.addend = rows_of(k, io->inputs[ADDEND], k->adds_half);
    rpi_dnn_team_enter(k->run.threads);
    rpi_kernel_batch_norm_forward(&k->run, &it);
    if (!io->repeats)
        rpi_dnn_norm_update_running(io, k->channels, k->images * k->pixels, k->momentum,
                                    it.mean, it.variance);
    return RP_OK;
}

static void deliver(const norm_kernel *k, const rpi_kernel_io *io, int input,
                    const float *aside) {
    if (io->grad_inputs[input])
        rpi_dnn_deliver(io->grad_inputs[input], aside, k->channels,
                        io->accumulate >> input & 1u);
}

static rp_status backward(void *self, const rpi_kernel_io *io) {
    const norm_kernel *k = self;
    rpi_kernel_batch_norm it = call_of(k, io);
    void *dx = io->grad_inputs[INPUT];
    if (!dx) dx = rpi_dnn_at(io->workspace, k->dx_aside);
    it.dy = rows_of(k, io->grad_outputs[0], k->makes_half);
    it.dx = rows_of(k, dx, k->is_half);
    if (k->adds) it.daddend = rows_of(k, io->grad_inputs[ADDEND], k->adds_half);
    it.dscale = rpi_dnn_at(io->workspace, k->dscale);
    it.dshift = rpi_dnn_at(io->workspace, k->dshift);
    rpi_dnn_team_enter(k->run.threads);
    rpi_kernel_batch_norm_backward(&k->run, &it);
    deliver(k, io, SCALE, it.dscale);
    deliver(k, io, SHIFT, it.dshift);
    return RP_OK;
}

/* ---- planning ---- */

bool rpi_dnn_norm_may_be_own(const rpi_unit *unit) {
    const rpi_shape *shape = &unit->inputs[INPUT].shape;
    return unit->training && unit->wanted && shape->dims == 4 &&
           shape->size[1] % RPI_BATCH_NORM_BLOCK == 0 &&
           rpi_dnn_channel_block() == RPI_BATCH_NORM_BLOCK;
}

static bool lies_in_blocks(const rpi_unit_value *value) {
    return value->kind == RPI_VALUE_ACTIVATION && value->layout.id != RPI_DNN_PLAIN;
}

static bool lies_half(const rpi_unit_value *value, const rpi_unit *unit) {
    return unit->compute == RP_BF16 && value->layout.id == RPI_DNN_HALF;
}

bool rpi_dnn_norm_is_own(const rpi_dnn_session *session, const rpi_unit *unit) {
    return session->block == RPI_BATCH_NORM_BLOCK && rpi_dnn_norm_may_be_own(unit) &&
           lies_in_blocks(&unit->inputs[INPUT]);
}

/* With relu the gradient of the addend is made, in place where it can; without, it is that of
 * the output. */
static void describe_addend(const norm_kernel *k, const rpi_dnn_session *session,
                            const rpi_unit *unit, rpi_kernel *out) {
    const rpi_shape *shape = &unit->inputs[ADDEND].shape;
    const bool is_wanted = unit->wanted >> ADDEND & 1u;
    out->inputs[ADDEND] = out->grad_inputs[ADDEND] =
        rpi_dnn_layout(session, shape, k->adds_half ? RPI_DNN_HALF : RPI_DNN_BLOCKED);
    out->in_place_forward = ADDEND;
    if (k->relu) out->needs_outputs = 1;
    if (is_wanted && !k->relu && k->adds_half == k->makes_half)
        out->gradient_from[ADDEND] = RPI_GRADIENT_OF_OUTPUT;
    else if (is_wanted)
        out->in_place_backward = ADDEND;
}

static void describe(norm_kernel *k, const rpi_dnn_session *session, const rpi_unit *unit,
                     rpi_kernel *out) {
    const rpi_shape *shape = &unit->inputs[INPUT].shape;
    out->self = k;
    out->forward = forward;
    out->backward_inputs = backward; /* its sums serve all gradients */
    out->destroy = destroy;
    out->inputs[INPUT] = out->grad_inputs[INPUT] =
        rpi_dnn_layout(session, shape, k->is_half ? RPI_DNN_HALF : RPI_DNN_BLOCKED);
    out->outputs[0] = out->grad_outputs[0] =
        rpi_dnn_layout(session, shape, k->makes_half ? RPI_DNN_HALF : RPI_DNN_BLOCKED);
    out->needs_inputs = 1u << INPUT | 1u << SCALE | 1u << SHIFT;
    out->needs_outputs = 0;
    out->in_place_forward = -1;
    out->in_place_backward = INPUT;
    out->saved_bytes = 0;
    if (k->adds) describe_addend(k, session, unit, out);
}

static void reserve(norm_kernel *k, const rpi_unit *unit, rpi_kernel *out) {
    const size_t bytes = (size_t)k->channels * sizeof(float);
    size_t *back = &out->backward_workspace;
    k->mean = rpi_dnn_reserve(&out->saved_bytes, bytes);
    k->variance = rpi_dnn_reserve(&out->saved_bytes, bytes);
    k->dscale = rpi_dnn_reserve(back, bytes);
    k->dshift = rpi_dnn_reserve(back, bytes);
    if (!(unit->wanted >> INPUT & 1u))
        k->dx_aside = rpi_dnn_reserve(back, out->grad_inputs[INPUT].bytes);
}

rp_status rpi_dnn_norm_own_plan(rpi_dnn_session *session, const rpi_unit *unit,
                                rpi_kernel *out) {
    static const rpi_op *const readers[] = {&rpi_op_conv2d, &rpi_op_add, &rpi_op_max_pool2d,
                                            NULL};
    const rpi_batch_norm2d_attributes *attributes = unit->nodes[0]->attributes;
    const int64_t *size = unit->inputs[INPUT].shape.size;
    const bool adds = unit->input_count > ADDEND;
    norm_kernel *k = NULL;
    if (adds && unit->inputs[ADDEND].kind != RPI_VALUE_ACTIVATION) return RP_UNSUPPORTED;
    RP_TRY(rpi_alloc(sizeof *k, "batch_norm2d kernel", &k));
    *k = (norm_kernel){.run = rpi_dnn_kernel_run(session),
                       .relu = unit->nodes[unit->node_count - 1]->op == &rpi_op_relu,
                       .adds = adds,
                       .adds_half = adds && lies_half(&unit->inputs[ADDEND], unit),
                       .is_half = lies_half(&unit->inputs[INPUT], unit),
                       .makes_half = rpi_dnn_makes_half(session, unit, readers),
                       .images = size[0],
                       .channels = size[1],
                       .pixels = size[2] * size[3],
                       .epsilon = attributes->epsilon,
                       .momentum = attributes->momentum};
    describe(k, session, unit, out);
    reserve(k, unit, out);
    return RP_OK;
}
