/* linear, by matrix products over row-major matrices: in f32 nothing is copied, and gradients
 * are added where they lie. With an activation behind it bias and
 * function are one pass over the product, which is saved: the first half of backward turns it
 * into its gradient in place, and the second reads that. */
#include "engine/onednn/onednn_linear.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/cpu_activation.h"
#include "engine/onednn/onednn_op.h"
#include "engine/onednn/onednn_sgemm.h"

extern const rpi_op rpi_op_linear;
extern const rpi_dnn_op rpi_dnn_op_linear;

enum {
    INPUT = RPI_DNN_LINEAR_INPUT,
    WEIGHT = RPI_DNN_LINEAR_WEIGHT,
    BIAS = RPI_DNN_LINEAR_BIAS
};

/* ---- the products ---- */

static rpi_dnn_linear linear_of(const rpi_dnn_session *session, const rpi_unit *unit) {
    const int64_t *weight = unit->inputs[WEIGHT].shape.size;
    return (rpi_dnn_linear){.run = rpi_dnn_kernel_run(session),
                            .rows = rpi_shape_count(&unit->inputs[INPUT].shape) / weight[1],
                            .inputs = weight[1],
                            .outputs = weight[0],
                            .has_bias = unit->nodes[0]->input_count > BIAS,
                            .wants_input = unit->wanted >> INPUT & 1u,
                            .wants_weight = unit->wanted >> WEIGHT & 1u};
}

rp_status rpi_dnn_linear_open(rpi_dnn_session *session, const rpi_unit *unit,
                              int64_t rows_at_once, rpi_kernel *out,
                              rpi_dnn_linear *out_linear) {
    rpi_dnn_linear linear = linear_of(session, unit);
    out->needs_inputs = 1u << WEIGHT;
    if (unit->compute == RP_BF16) {
        RP_TRY(
            rpi_dnn_linear_bf16_open(session, unit, &linear, rows_at_once, out, &linear.bf16));
    } else {
        const size_t bytes = rpi_dnn_sgemm_workspace(&linear.run);
        out->needs_inputs |= 1u << INPUT;
        linear.forward_scratch = rpi_dnn_reserve(&out->forward_workspace, bytes);
        linear.backward_scratch = rpi_dnn_reserve(&out->backward_workspace, bytes);
    }
    *out_linear = linear;
    return RP_OK;
}

void rpi_dnn_linear_close(rpi_dnn_linear *it) {
    rpi_dnn_linear_bf16_close(it->bf16);
}

rp_status rpi_dnn_linear_begin(const rpi_dnn_linear *it, const rpi_kernel_io *io) {
    return it->bf16 ? rpi_dnn_linear_bf16_begin(it->bf16, io) : RP_OK;
}

const float *rpi_dnn_linear_bias(const rpi_dnn_linear *it, const rpi_kernel_io *io) {
    return it->has_bias ? io->inputs[BIAS] : NULL;
}

rp_status rpi_dnn_linear_multiply(const rpi_dnn_linear *it, const rpi_kernel_io *io,
                                  int64_t first, int64_t count, const float *bias, float *z) {
    const float *x = (const float *)io->inputs[INPUT] + first * it->inputs;
    if (!it->bf16)
        return rpi_dnn_sgemm(
            &it->run,
            &(rpi_kernel_sgemm){.m = count,
                                .n = it->outputs,
                                .k = it->inputs,
                                .a = rpi_kernel_f32(x, it->inputs),
                                .b = rpi_kernel_f32(io->inputs[WEIGHT], it->inputs),
                                .b_transposed = true,
                                .c = rpi_kernel_f32(z, it->outputs),
                                .bias = bias,
                                .workspace = rpi_dnn_at(io->workspace, it->forward_scratch)});
    return rpi_dnn_linear_bf16_multiply(it->bf16, io, first, count, bias, z);
}

static bool adds(const rpi_kernel_io *io, int input) {
    return io->accumulate >> input & 1u;
}

rp_status rpi_dnn_linear_input_gradient(const rpi_dnn_linear *it, const rpi_kernel_io *io,
                                        const float *dz) {
    if (it->bf16) return rpi_dnn_linear_bf16_input_gradient(it->bf16, io, dz);
    return rpi_dnn_sgemm(
        &it->run,
        &(rpi_kernel_sgemm){.m = it->rows,
                            .n = it->inputs,
                            .k = it->outputs,
                            .a = rpi_kernel_f32(dz, it->outputs),
                            .b = rpi_kernel_f32(io->inputs[WEIGHT], it->inputs),
                            .c = rpi_kernel_f32(io->grad_inputs[INPUT], it->inputs),
                            .accumulate = adds(io, INPUT),
                            .workspace = rpi_dnn_at(io->workspace, it->backward_scratch)});
}

static rp_status weight_gradient(const rpi_dnn_linear *it, const rpi_kernel_io *io,
                                 const float *dz) {
    if (it->bf16) return rpi_dnn_linear_bf16_weight_gradient(it->bf16, io, dz);
    return rpi_dnn_sgemm(
        &it->run,
        &(rpi_kernel_sgemm){.m = it->outputs,
                            .n = it->inputs,
                            .k = it->rows,
                            .a = rpi_kernel_f32(dz, it->outputs),
                            .a_transposed = true,
                            .b = rpi_kernel_f32(io->inputs[INPUT], it->inputs),
                            .c = rpi_kernel_f32(io->grad_inputs[WEIGHT], it->inputs),
                            .accumulate = adds(io, WEIGHT),
                            .workspace = rpi_dnn_at(io->workspace, it->backward_scratch)});
}

rp_status rpi_dnn_linear_weight_gradients(const rpi_dnn_linear *it, const rpi_kernel_io *io,
                                          const float *dz) {
    if (io->grad_inputs[WEIGHT]) RP_TRY(weight_gradient(it, io, dz));
    if (it->has_bias && io->grad_inputs[BIAS])
        rpi_kernel_column_sums(&it->run,
                               &(rpi_kernel_sums){.rows = it->rows,
                                                  .cols = it->outputs,
                                                  .x = rpi_kernel_f32(dz, it->outputs),
                                                  .sums = io->grad_inputs[BIAS],
                                                  .accumulate = adds(io, BIAS)});
    return RP_OK;
}

/* ---- alone, or with an activation ---- */

typedef struct linear_kernel {
    rpi_dnn_linear linear;
    rpi_activation activation;
    size_t product; /* x w^T before the activation, in what is saved */
} linear_kernel;

static void destroy(void *self) {
    linear_kernel *kernel = self;
    rpi_dnn_linear_close(&kernel->linear);
    rpi_free(kernel);
}

/* y = x w^T + bias */
static rp_status forward(void *self, const rpi_kernel_io *io) {
    const rpi_dnn_linear *it = &((const linear_kernel *)self)->linear;
    RP_TRY(rpi_dnn_linear_begin(it, io));
    return rpi_dnn_linear_multiply(it, io, 0, it->rows, rpi_dnn_linear_bias(it, io),
                                   io->outputs[0]);
}

static rp_status backward_inputs(void *self, const rpi_kernel_io *io) {
    const linear_kernel *k = self;
    return rpi_dnn_linear_input_gradient(&k->linear, io, io->grad_outputs[0]);
}

static rp_status backward_weights(void *self, const rpi_kernel_io *io) {
    const linear_kernel *k = self;
    return rpi_dnn_linear_weight_gradients(&k->linear, io, io->grad_outputs[0]);
}

static rpi_kernel_activation activation_of(const linear_kernel *k, const rpi_kernel_io *io,
                                           float *z) {
    return (rpi_kernel_activation){.kind = k->activation,
                                   .rows = k->linear.rows,
                                   .cols = k->linear.outputs,
                                   .x = rpi_kernel_f32(z, k->linear.outputs),
                                   .bias = rpi_dnn_linear_bias(&k->linear, io)};
}

/* y = f(z + bias); without a backward pass z lies where y will. */
static rp_status forward_activated(void *self, const rpi_kernel_io *io) {
    const linear_kernel *k = self;
    float *z = io->saved ? rpi_dnn_at(io->saved, k->product) : io->outputs[0];
    rpi_kernel_activation it = activation_of(k, io, z);
    RP_TRY(rpi_dnn_linear_begin(&k->linear, io));
    RP_TRY(rpi_dnn_linear_multiply(&k->linear, io, 0, k->linear.rows, NULL, z));
    it.y = rpi_kernel_f32(io->outputs[0], k->linear.outputs);
    rpi_kernel_activation_forward(&k->linear.run, &it);
    return RP_OK;
}

/* dz = dy f'(z + bias), over z; in the first half of backward that is called. */
static const float *differentiate(const linear_kernel *k, const rpi_kernel_io *io,
                                  bool is_first) {
    float *z = rpi_dnn_at(io->saved, k->product);
    if (!is_first) return z;
    rpi_kernel_activation it = activation_of(k, io, z);
    it.dy = rpi_kernel_f32(io->grad_outputs[0], k->linear.outputs);
    it.dx = it.x;
    rpi_kernel_activation_backward(&k->linear.run, &it);
    return z;
}

static rp_status backward_activated_inputs(void *self, const rpi_kernel_io *io) {
    const linear_kernel *k = self;
    return rpi_dnn_linear_input_gradient(&k->linear, io, differentiate(k, io, true));
}

static rp_status backward_activated_weights(void *self, const rpi_kernel_io *io) {
    const linear_kernel *k = self;
    const float *dz = differentiate(k, io, !k->linear.wants_input);
    return rpi_dnn_linear_weight_gradients(&k->linear, io, dz);
}

static void describe(linear_kernel *kernel, rpi_kernel *out) {
    out->forward = forward;
    out->backward_inputs = backward_inputs;
    out->backward_weights = backward_weights;
    if (kernel->activation == RPI_ACTIVATION_NONE) return;
    out->forward = forward_activated;
    out->backward_inputs = backward_activated_inputs;
    out->backward_weights = backward_activated_weights;
    kernel->product =
        rpi_dnn_reserve(&out->saved_bytes,
                        sizeof(float) * (size_t)(kernel->linear.rows * kernel->linear.outputs));
}

static rp_status plan(rpi_dnn_session *session, const rpi_unit *unit, rpi_kernel *out) {
    linear_kernel *kernel = NULL;
    bool is_fused = unit->node_count > 1;
    out->accumulates = 1u << INPUT;
    out->inputs[INPUT] = out->grad_inputs[INPUT] =
        rpi_dnn_layout(session, &unit->inputs[INPUT].shape, RPI_DNN_PLAIN);
    if (is_fused && rpi_dnn_linear_fuses_loss(unit->nodes[1]))
        return rpi_dnn_linear_loss_plan(session, unit, out);
    RP_TRY(rpi_alloc(sizeof *kernel, "linear kernel", &kernel));
    int64_t rows =
        rpi_shape_count(&unit->inputs[INPUT].shape) / unit->inputs[WEIGHT].shape.size[1];
    rp_status status = rpi_dnn_linear_open(session, unit, rows, out, &kernel->linear);
    if (status != RP_OK) {
        rpi_free(kernel);
        return status;
    }
    if (is_fused) kernel->activation = rpi_cpu_activation_of(unit->nodes[1]);
    out->self = kernel;
    out->destroy = destroy;
    describe(kernel, out);
    return RP_OK;
}

static bool fuse(const rpi_unit *unit, const rpi_node *next) {
    return unit->node_count == 1 && (rpi_cpu_activation_of(next) != RPI_ACTIVATION_NONE ||
                                     rpi_dnn_linear_fuses_loss(next));
}

const rpi_dnn_op rpi_dnn_op_linear = {.op = &rpi_op_linear, .fuse = fuse, .plan = plan};
