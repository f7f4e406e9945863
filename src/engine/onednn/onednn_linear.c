/* linear, by oneDNN's matrix product over row-major matrices: nothing is packed or copied, and
 * gradients are added where they lie. With an activation behind it bias and function are one
 * pass over the product, which is saved: the first half of backward turns it into its gradient
 * in place, and the second reads that. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/cpu_activation.h"
#include "engine/onednn/onednn_op.h"
#include "engine/onednn/onednn_team.h"

extern const rpi_op rpi_op_linear;
extern const rpi_dnn_op rpi_dnn_op_linear;

enum { INPUT, WEIGHT, BIAS };

typedef struct linear_kernel {
    rpi_kernel_run run;
    int64_t rows, inputs, outputs; /* x: rows x inputs, weight: outputs x inputs */
    rpi_activation activation;
    bool has_bias, wants_input;
} linear_kernel;

static void destroy(void *self) {
    rpi_free(self);
}

static const float *bias_of(const linear_kernel *k, const rpi_kernel_io *io) {
    return k->has_bias ? io->inputs[BIAS] : NULL;
}

/* z = x w^T */
static rp_status multiply(const linear_kernel *k, const rpi_kernel_io *io, float *z) {
    rpi_dnn_team_enter(k->run.threads);
    return rpi_dnn_check(dnnl_sgemm('N', 'T', k->rows, k->outputs, k->inputs, 1.0f,
                                    io->inputs[INPUT], k->inputs, io->inputs[WEIGHT], k->inputs,
                                    0.0f, z, k->outputs),
                         "matrix product");
}

/* y = z + bias */
static rp_status forward(void *self, const rpi_kernel_io *io) {
    const linear_kernel *k = self;
    rpi_kernel_rows y = rpi_kernel_f32(io->outputs[0], k->outputs);
    RP_TRY(multiply(k, io, io->outputs[0]));
    if (k->has_bias)
        rpi_kernel_add_bias(
            &k->run,
            &(rpi_kernel_add){
                .rows = k->rows, .cols = k->outputs, .a = y, .bias = bias_of(k, io), .y = y});
    return RP_OK;
}

static rpi_kernel_activation activation_of(const linear_kernel *k, const rpi_kernel_io *io,
                                           float *z) {
    return (rpi_kernel_activation){.kind = k->activation,
                                   .rows = k->rows,
                                   .cols = k->outputs,
                                   .x = rpi_kernel_f32(z, k->outputs),
                                   .bias = bias_of(k, io)};
}

/* y = f(z + bias); without a backward pass z lies where y will. */
static rp_status forward_activated(void *self, const rpi_kernel_io *io) {
    const linear_kernel *k = self;
    float *z = io->saved ? io->saved : io->outputs[0];
    rpi_kernel_activation it = activation_of(k, io, z);
    RP_TRY(multiply(k, io, z));
    it.y = rpi_kernel_f32(io->outputs[0], k->outputs);
    rpi_kernel_activation_forward(&k->run, &it);
    return RP_OK;
}

static float keep(const rpi_kernel_io *io, int input) {
    return io->accumulate >> input & 1u ? 1.0f : 0.0f;
}

/* dx = dz w */
static rp_status input_gradient(const linear_kernel *k, const rpi_kernel_io *io,
                                const float *dz) {
    rpi_dnn_team_enter(k->run.threads);
    return rpi_dnn_check(dnnl_sgemm('N', 'N', k->rows, k->inputs, k->outputs, 1.0f, dz,
                                    k->outputs, io->inputs[WEIGHT], k->inputs, keep(io, INPUT),
                                    io->grad_inputs[INPUT], k->inputs),
                         "matrix product");
}

/* dw = dz^T x, dbias = sum of dz's rows */
static rp_status weight_gradients(const linear_kernel *k, const rpi_kernel_io *io,
                                  const float *dz) {
    rpi_dnn_team_enter(k->run.threads);
    if (io->grad_inputs[WEIGHT])
        RP_TRY(rpi_dnn_check(dnnl_sgemm('T', 'N', k->outputs, k->inputs, k->rows, 1.0f, dz,
                                        k->outputs, io->inputs[INPUT], k->inputs,
                                        keep(io, WEIGHT), io->grad_inputs[WEIGHT], k->inputs),
                             "matrix product"));
    if (k->has_bias && io->grad_inputs[BIAS])
        rpi_kernel_column_sums(&k->run, &(rpi_kernel_sums){.rows = k->rows,
                                                           .cols = k->outputs,
                                                           .x = rpi_kernel_f32(dz, k->outputs),
                                                           .sums = io->grad_inputs[BIAS],
                                                           .accumulate = keep(io, BIAS) > 0});
    return RP_OK;
}

static rp_status backward_inputs(void *self, const rpi_kernel_io *io) {
    return input_gradient(self, io, io->grad_outputs[0]);
}

static rp_status backward_weights(void *self, const rpi_kernel_io *io) {
    return weight_gradients(self, io, io->grad_outputs[0]);
}

/* dz = dy f'(z + bias), over z */
static void differentiate(const linear_kernel *k, const rpi_kernel_io *io) {
    rpi_kernel_activation it = activation_of(k, io, io->saved);
    it.dy = rpi_kernel_f32(io->grad_outputs[0], k->outputs);
    it.dx = it.x;
    rpi_kernel_activation_backward(&k->run, &it);
}

static rp_status backward_activated_inputs(void *self, const rpi_kernel_io *io) {
    differentiate(self, io);
    return input_gradient(self, io, io->saved);
}

static rp_status backward_activated_weights(void *self, const rpi_kernel_io *io) {
    const linear_kernel *k = self;
    if (!k->wants_input) differentiate(k, io); /* else the first half has done so */
    return weight_gradients(k, io, io->saved);
}

static void describe(const linear_kernel *kernel, rpi_kernel *out) {
    out->forward = forward;
    out->backward_inputs = backward_inputs;
    out->backward_weights = backward_weights;
    if (kernel->activation == RPI_ACTIVATION_NONE) return;
    out->forward = forward_activated;
    out->backward_inputs = backward_activated_inputs;
    out->backward_weights = backward_activated_weights;
    out->needs_inputs = 1u << INPUT | 1u << WEIGHT;
    out->saved_bytes = sizeof(float) * (size_t)(kernel->rows * kernel->outputs);
}

static rp_status plan(rpi_dnn_session *session, const rpi_unit *unit, rpi_kernel *out) {
    const int64_t *weight = unit->inputs[WEIGHT].shape.size;
    linear_kernel *kernel = NULL;
    RP_TRY(rpi_alloc(sizeof *kernel, "linear kernel", &kernel));
    *kernel = (linear_kernel){.run = rpi_dnn_kernel_run(session),
                              .rows = rpi_shape_count(&unit->outputs[0].shape) / weight[0],
                              .inputs = weight[1],
                              .outputs = weight[0],
                              .has_bias = unit->nodes[0]->input_count > BIAS,
                              .wants_input = unit->wanted >> INPUT & 1u};
    if (unit->node_count > 1) kernel->activation = rpi_cpu_activation_of(unit->nodes[1]);
    out->self = kernel;
    out->accumulates = 1u << INPUT;
    out->destroy = destroy;
    out->inputs[INPUT] = out->grad_inputs[INPUT] =
        rpi_dnn_layout(session, &unit->inputs[INPUT].shape, RPI_DNN_PLAIN);
    describe(kernel, out);
    return RP_OK;
}

static bool fuse(const rpi_unit *unit, const rpi_node *next) {
    return unit->node_count == 1 && rpi_cpu_activation_of(next) != RPI_ACTIVATION_NONE;
}

const rpi_dnn_op rpi_dnn_op_linear = {.op = &rpi_op_linear, .fuse = fuse, .plan = plan};
