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
    size_t logits_bytes; /* in the workspace; 0: they are saved */
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
    unsigned char *workspace = io->workspace;
    rpi_cross_entropy_totals all = {.bad_row = -1};
    rpi_kernel_cross_entropy it = {
        .classes = classes,
        .logits = rpi_kernel_f32(io->saved ? io->saved : io->workspace, classes),
        .ignored = k->loss.ignored,
        .smoothing = k->loss.smoothing,
        .scale = scale,
    };
    rpi_cpu_cross_entropy_place(&it, k->rows_at_once, workspace + k->logits_bytes);
    if (io->saved) it.dlogits = it.logits;
    RP_TRY(sum_losses(k, io, &it, &all));
    return rpi_cpu_cross_entropy_report(&it, &all, &k->labels, scale, io);
}

/* The gradient of the loss is 1 unless the loss is a part of something else. */
static void scale_gradient(const loss_kernel *k, const rpi_kernel_io *io) {
    float factor = *(const float *)io->grad_outputs[0], *dlogits = io->saved;
    if (factor == 1) return;
    for (int64_t i = 0; i < k->linear.rows * k->linear.outputs; i++) dlogits[i] *= factor;
}

static rp_status backward_inputs(void *self, const rpi_kernel_io *io) {
    const loss_kernel *k = self;
    scale_gradient(k, io);
    return rpi_dnn_linear_input_gradient(&k->linear, io, io->saved);
}

static rp_status backward_weights(void *self, const rpi_kernel_io *io) {
    const loss_kernel *k = self;
    if (!k->linear.wants_input) scale_gradient(k, io); /* else the first half has done so */
    return rpi_dnn_linear_weight_gradients(&k->linear, io, io->saved);
}

static void destroy(void *self) {
    rpi_free(self);
}

rp_status rpi_dnn_linear_loss_plan(rpi_dnn_session *session, const rpi_unit *unit,
                                   rpi_kernel *out) {
    loss_kernel *kernel = NULL;
    RP_TRY(rpi_alloc(sizeof *kernel, "linear kernel", &kernel));
    int first = unit->nodes[0]->input_count;
    *kernel =
        (loss_kernel){.linear = rpi_dnn_linear_of(session, unit),
                      .loss = *(const rpi_cross_entropy_attributes *)unit->nodes[1]->attributes,
                      .labels = unit->inputs[first],
                      .labels_input = first,
                      .scale_input = first + 1};
    int64_t rows = kernel->linear.rows;
    kernel->rows_at_once = unit->wanted || rows < ROWS_AT_ONCE ? rows : ROWS_AT_ONCE;
    size_t logits = sizeof(float) * (size_t)(kernel->rows_at_once * kernel->linear.outputs);
    if (unit->wanted)
        out->saved_bytes = logits;
    else
        kernel->logits_bytes = rpi_align_up(logits);
    out->forward_workspace =
        kernel->logits_bytes + rpi_cpu_cross_entropy_bytes(kernel->rows_at_once);
    out->needs_inputs = 1u << RPI_DNN_LINEAR_INPUT | 1u << RPI_DNN_LINEAR_WEIGHT;
    out->self = kernel;
    out->forward = forward;
    out->backward_inputs = backward_inputs;
    out->backward_weights = backward_weights;
    out->destroy = destroy;
    return RP_OK;
}
