/* linear, by oneDNN's matrix product over row-major matrices: nothing is packed or copied, and
 * gradients are added where they lie. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/onednn/onednn_op.h"
#include "engine/onednn/onednn_team.h"

#include <string.h>

extern const rpi_op rpi_op_linear;
extern const rpi_dnn_op rpi_dnn_op_linear;

enum { INPUT, WEIGHT, BIAS };

typedef struct linear_kernel {
    int threads;
    int64_t rows, inputs, outputs; /* x: rows x inputs, weight: outputs x inputs */
} linear_kernel;

static void destroy(void *self) {
    rpi_free(self);
}

/* y = x w^T + bias */
static rp_status forward(void *self, const rpi_kernel_io *io) {
    const linear_kernel *k = self;
    float *y = io->outputs[0];
    rpi_dnn_team_enter(k->threads);
    const float *bias = io->inputs[BIAS];
    for (int64_t row = 0; bias && row < k->rows; row++)
        memcpy(y + row * k->outputs, bias, (size_t)k->outputs * sizeof *y);
    return rpi_dnn_check(dnnl_sgemm('N', 'T', k->rows, k->outputs, k->inputs, 1.0f,
                                    io->inputs[INPUT], k->inputs, io->inputs[WEIGHT], k->inputs,
                                    bias ? 1.0f : 0.0f, y, k->outputs),
                         "matrix product");
}

static float keep(const rpi_kernel_io *io, int input) {
    return io->accumulate >> input & 1u ? 1.0f : 0.0f;
}

static void sum_rows(const linear_kernel *k, const float *grad, float *target,
                     bool accumulate) {
    if (!accumulate) memset(target, 0, (size_t)k->outputs * sizeof *target);
    for (int64_t row = 0; row < k->rows; row++)
        for (int64_t o = 0; o < k->outputs; o++) target[o] += grad[row * k->outputs + o];
}

/* dx = dy w */
static rp_status backward_inputs(void *self, const rpi_kernel_io *io) {
    const linear_kernel *k = self;
    rpi_dnn_team_enter(k->threads);
    return rpi_dnn_check(dnnl_sgemm('N', 'N', k->rows, k->inputs, k->outputs, 1.0f,
                                    io->grad_outputs[0], k->outputs, io->inputs[WEIGHT],
                                    k->inputs, keep(io, INPUT), io->grad_inputs[INPUT],
                                    k->inputs),
                         "matrix product");
}

/* dw = dy^T x, dbias = sum of dy's rows */
static rp_status backward_weights(void *self, const rpi_kernel_io *io) {
    const linear_kernel *k = self;
    const float *grad = io->grad_outputs[0];
    rpi_dnn_team_enter(k->threads);
    if (io->grad_inputs[WEIGHT])
        RP_TRY(rpi_dnn_check(dnnl_sgemm('T', 'N', k->outputs, k->inputs, k->rows, 1.0f, grad,
                                        k->outputs, io->inputs[INPUT], k->inputs,
                                        keep(io, WEIGHT), io->grad_inputs[WEIGHT], k->inputs),
                             "matrix product"));
    if (io->grad_inputs[BIAS])
        sum_rows(k, grad, io->grad_inputs[BIAS], io->accumulate >> BIAS & 1u);
    return RP_OK;
}

static rp_status plan(rpi_dnn_session *session, const rpi_unit *unit, rpi_kernel *out) {
    const int64_t *weight = unit->inputs[WEIGHT].shape.size;
    linear_kernel *kernel = NULL;
    RP_TRY(rpi_alloc(sizeof *kernel, "linear kernel", &kernel));
    *kernel = (linear_kernel){.threads = session->threads,
                              .rows = rpi_shape_count(&unit->outputs[0].shape) / weight[0],
                              .inputs = weight[1],
                              .outputs = weight[0]};
    out->self = kernel;
    out->forward = forward;
    out->backward_inputs = backward_inputs;
    out->backward_weights = backward_weights;
    out->accumulates = 1u << INPUT;
    out->destroy = destroy;
    out->inputs[INPUT] = out->grad_inputs[INPUT] =
        rpi_dnn_layout(session, &unit->inputs[INPUT].shape, RPI_DNN_PLAIN);
    return RP_OK;
}

const rpi_dnn_op rpi_dnn_op_linear = {.op = &rpi_op_linear, .plan = plan};
