/* linear + softmax_cross_entropy: logits exist once. In training forward makes the loss's
 * gradient of them in their own place, which is saved; with 50,257 classes that spares a matrix
 * as large as all other activations together. Without a backward pass the logits of a few rows
 * at a time are in the workspace. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/cpu_cross_entropy.h"
#include "engine/layers.h"
#include "engine/onednn/onednn_linear.h"

extern const rpi_op rpi_op_softmax_cross_entropy;

enum { ROWS_AT_ONCE = 256 }; /* without a backward pass; matrix products need as many */

typedef struct loss_kernel {
    rpi_dnn_linear linear;
    rpi_cross_entropy_attributes loss;
    rpi_unit_value labels;
    int labels_input, scale_input;
    int64_t rows_at_once;
    size_t logits, totals; /* logits in the workspace, or saved; the loss's workspace */
} loss_kernel;

bool rpi_dnn_linear_fuses_loss(const rpi_node *next) {
    return next->op == &rpi_op_softmax_cross_entropy;
}

static rp_status sum_losses(const loss_kernel *k, const rpi_kernel_io *io,
                            rpi_kernel_cross_entropy *it, rpi_cross_entropy_totals *all) {
    const int32_t *labels = io->inputs[k->labels_input];
    for (int64_t first = 0; first < k->linear.rows; first += k->rows_at_once) {
        int64_t left = k->linear.rows - first;
        it->rows = left < k->rows_at_once ? left : k->rows_at_once;
        it->labels = labels + first;
        RP_TRY(rpi_dnn_linear_multiply(&k->linear, io, first, it->rows, it->logits.data));
        rpi_dnn_linear_add_bias(&k->linear, io, it->rows, it->logits.data);
        rpi_cross_entropy_totals some = rpi_kernel_cross_entropy_run(&k->linear.run, it);
        all->loss += some.loss;
        all->valid += some.valid;
        all->correct += some.correct;
        if (some.bad_row >= 0 && all->bad_row < 0) all->bad_row = first + some.bad_row;
    }
    it->labels = labels;
    return RP_OK;
}

static rp_status forward(void *self, const rpi_kernel_io *io) {
    const loss_kernel *k = self;
    int64_t classes = k->linear.outputs;
    float scale = *(const float *)io->inputs[k->scale_input];
    float *logits = rpi_dnn_at(io->saved ? io->saved : io->workspace, k->logits);
    rpi_cross_entropy_totals all = {.bad_row = -1};
    rpi_kernel_cross_entropy it = {
        .classes = classes,
        .logits = rpi_kernel_f32(logits, classes),
        .ignored = k->loss.ignored,
        .smoothing = k->loss.smoothing,
        .scale = scale,
    };
    rpi_cpu_cross_entropy_place(&it, k->rows_at_once, rpi_dnn_at(io->workspace, k->totals));
    if (io->saved) it.dlogits = it.logits;
    RP_TRY(rpi_dnn_linear_begin(&k->linear, io));
    RP_TRY(sum_losses(k, io, &it, &all));
    return rpi_cpu_cross_entropy_report(&it, &all, &k->labels, scale, io);
}

/* The saved gradient of the logits. That of the loss is 1 unless the loss is a part of
 * something else, and is multiplied in the first half of backward that is called. */
static const float *logits_gradient(const loss_kernel *k, const rpi_kernel_io *io,
                                    bool is_first) {
    float factor = *(const float *)io->grad_outputs[0];
    float *dlogits = rpi_dnn_at(io->saved, k->logits);
    if (factor == 1 || !is_first) return dlogits;
    for (int64_t i = 0; i < k->linear.rows * k->linear.outputs; i++) dlogits[i] *= factor;
    return dlogits;
}

static rp_status backward_inputs(void *self, const rpi_kernel_io *io) {
    const loss_kernel *k = self;
    return rpi_dnn_linear_input_gradient(&k->linear, io, logits_gradient(k, io, true));
}

static rp_status backward_weights(void *self, const rpi_kernel_io *io) {
    const loss_kernel *k = self;
    const float *dlogits = logits_gradient(k, io, !k->linear.wants_input);
    return rpi_dnn_linear_weight_gradients(&k->linear, io, dlogits);
}

static void destroy(void *self) {
    loss_kernel *kernel = self;
    rpi_dnn_linear_close(&kernel->linear);
    rpi_free(kernel);
}

static int64_t rows_at_once(const rpi_unit *unit, int64_t rows) {
    return unit->wanted || rows < ROWS_AT_ONCE ? rows : ROWS_AT_ONCE;
}

/* Logits are saved for backward; without one the workspace has those of some rows. */
static void reserve(loss_kernel *kernel, const rpi_unit *unit, rpi_kernel *out) {
    size_t logits = sizeof(float) * (size_t)(kernel->rows_at_once * kernel->linear.outputs);
    kernel->logits =
        rpi_dnn_reserve(unit->wanted ? &out->saved_bytes : &out->forward_workspace, logits);
    kernel->totals = rpi_dnn_reserve(&out->forward_workspace,
                                     rpi_cpu_cross_entropy_bytes(kernel->rows_at_once));
}

rp_status rpi_dnn_linear_loss_plan(rpi_dnn_session *session, const rpi_unit *unit,
                                   rpi_kernel *out) {
    loss_kernel *kernel = NULL;
    RP_TRY(rpi_alloc(sizeof *kernel, "linear kernel", &kernel));
    int first = unit->nodes[0]->input_count;
    const rpi_shape *labels = &unit->inputs[first].shape;
    *kernel =
        (loss_kernel){.loss = *(const rpi_cross_entropy_attributes *)unit->nodes[1]->attributes,
                      .labels = unit->inputs[first],
                      .labels_input = first,
                      .scale_input = first + 1,
                      .rows_at_once = rows_at_once(unit, rpi_shape_count(labels))};
    rp_status status =
        rpi_dnn_linear_open(session, unit, kernel->rows_at_once, out, &kernel->linear);
    if (status != RP_OK) {
        rpi_free(kernel);
        return status;
    }
    reserve(kernel, unit, out);
    out->self = kernel;
    out->forward = forward;
    out->backward_inputs = backward_inputs;
    out->backward_weights = backward_weights;
    out->destroy = destroy;
    return RP_OK;
}
