/* linear, alone or with an activation. Then bias and function are one pass over the product,
 * which is saved: the first half of backward turns it into its gradient in place, and the
 * second reads that. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/cpu_activation.h"
#include "engine/onednn/onednn_linear.h"
#include "engine/onednn/onednn_op.h"

extern const rpi_op rpi_op_linear;
extern const rpi_dnn_op rpi_dnn_op_linear;

enum { INPUT = RPI_DNN_LINEAR_INPUT, WEIGHT = RPI_DNN_LINEAR_WEIGHT };

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
