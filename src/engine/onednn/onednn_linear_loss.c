/* linear + softmax_cross_entropy: logits exist once. In training forward makes the loss's
 * gradient of them in their own place, which is saved; with 50,257 classes that spares a matrix
 * as large as all other activations together. Without a backward pass the logits of a few rows
 * at a time are in the workspace.
 *
 * Rows without a label have no part in anything. Where they are many, as of models that learn
 * hidden tokens or answers alone, the others are gathered before the product: the products have
 * as many rows as there are labels. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/cpu_cross_entropy.h"
#include "engine/layers.h"
#include "engine/onednn/onednn_linear.h"

#include <string.h>

extern const rpi_op rpi_op_softmax_cross_entropy;

enum { ROWS_AT_ONCE = 256 }; /* without a backward pass; matrix products need as many */

typedef struct loss_kernel {
    rpi_dnn_linear linear;
    rpi_cross_entropy_attributes loss;
    rpi_unit_value labels;
    int labels_input, scale_input;
    int64_t rows_at_once;
    size_t logits, totals; /* logits in the workspace, or saved; the loss's workspace */
    /* In f32: where the list of rows with labels lies (as the logits do), and in workspaces
     * their labels, their inputs, and in backward their inputs or these' gradients. */
    size_t list, some_labels, some_inputs, some_backward;
} loss_kernel;

/* Rows of the input that products are of; count 0: of all. */
typedef struct row_list {
    int64_t count;
    uint32_t rows[]; /* NOLINT(modernize-avoid-c-arrays) */
} row_list;

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
        RP_TRY(rpi_dnn_linear_multiply(&k->linear, io, first, it->rows,
                                       rpi_dnn_linear_bias(&k->linear, io), it->logits.data));
        rpi_cross_entropy_totals some = rpi_kernel_cross_entropy_run(&k->linear.run, it);
        all->loss += some.loss;
        all->valid += some.valid;
        all->correct += some.correct;
        if (some.bad_row >= 0 && all->bad_row < 0) all->bad_row = first + some.bad_row;
    }
    it->labels = labels;
    return RP_OK;
}

/* ---- rows with labels alone ---- */

/* Worth the copies where a quarter of the rows or more has none. */
static void list_rows(const loss_kernel *k, const int32_t *labels, row_list *list) {
    int64_t count = 0, most = k->linear.rows / 4 * 3;
    int32_t ignored = k->loss.ignored;
    list->count = 0;
    for (int64_t i = 0; i < k->linear.rows; i++) {
        if (labels[i] == ignored) continue;
        if (count == most) return;
        list->rows[count++] = (uint32_t)i;
    }
    list->count = count;
}

static void gather_inputs(const loss_kernel *k, const rpi_kernel_io *io, const row_list *list,
                          float *to) {
    const float *from = io->inputs[RPI_DNN_LINEAR_INPUT];
    size_t width = (size_t)k->linear.inputs;
    for (int64_t i = 0; i < list->count; i++)
        memcpy(to + (size_t)i * width, from + list->rows[i] * width, width * sizeof *to);
}

/* The kernel and its values as if the rows of the list were all. */
static loss_kernel narrow(const loss_kernel *k, const row_list *list) {
    loss_kernel some = *k;
    some.linear.rows = list->count;
    if (some.rows_at_once > list->count) some.rows_at_once = list->count;
    return some;
}

/* Rows of a list to their places; the others have none, or what is there already. */
static void scatter_gradient(const loss_kernel *k, const rpi_kernel_io *io,
                             const row_list *list, const float *from) {
    float *to = io->grad_inputs[RPI_DNN_LINEAR_INPUT];
    int64_t width = k->linear.inputs;
    bool adds = io->accumulate >> RPI_DNN_LINEAR_INPUT & 1u;
    if (!adds) memset(to, 0, (size_t)(k->linear.rows * width) * sizeof *to);
    for (int64_t i = 0; i < list->count; i++) {
        float *row = to + list->rows[i] * width;
        for (int64_t c = 0; c < width; c++) row[c] += from[i * width + c];
    }
}

static row_list *list_of(const loss_kernel *k, const rpi_kernel_io *io) {
    if (k->linear.bf16) return NULL;
    return rpi_dnn_at(io->saved ? io->saved : io->workspace, k->list);
}

static rp_status sum_some_losses(const loss_kernel *k, const rpi_kernel_io *io,
                                 const row_list *list, rpi_kernel_cross_entropy *it,
                                 rpi_cross_entropy_totals *all) {
    const int32_t *labels = io->inputs[k->labels_input];
    int32_t *some_labels = rpi_dnn_at(io->workspace, k->some_labels);
    float *inputs = rpi_dnn_at(io->workspace, k->some_inputs);
    for (int64_t i = 0; i < list->count; i++) some_labels[i] = labels[list->rows[i]];
    gather_inputs(k, io, list, inputs);
    loss_kernel some = narrow(k, list);
    rpi_kernel_io some_io = *io;
    some_io.inputs[RPI_DNN_LINEAR_INPUT] = inputs;
    some_io.inputs[k->labels_input] = some_labels;
    RP_TRY(sum_losses(&some, &some_io, it, all));
    it->labels = labels;
    if (all->bad_row >= 0) all->bad_row = list->rows[all->bad_row];
    return RP_OK;
}

/* ---- the kernel ---- */

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
    row_list *list = list_of(k, io);
    if (list) list_rows(k, io->inputs[k->labels_input], list);
    RP_TRY(rpi_dnn_linear_begin(&k->linear, io));
    RP_TRY(list && list->count ? sum_some_losses(k, io, list, &it, &all)
                               : sum_losses(k, io, &it, &all));
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
    const row_list *list = list_of(k, io);
    if (!list || !list->count)
        return rpi_dnn_linear_input_gradient(&k->linear, io, logits_gradient(k, io, true));
    loss_kernel some = narrow(k, list);
    rpi_kernel_io some_io = *io;
    float *gradient = rpi_dnn_at(io->workspace, k->some_backward);
    some_io.grad_inputs[RPI_DNN_LINEAR_INPUT] = gradient;
    some_io.accumulate &= ~(1u << RPI_DNN_LINEAR_INPUT);
    RP_TRY(rpi_dnn_linear_input_gradient(&some.linear, &some_io,
                                         logits_gradient(&some, io, true)));
    scatter_gradient(k, io, list, gradient);
    return RP_OK;
}

static rp_status backward_weights(void *self, const rpi_kernel_io *io) {
    const loss_kernel *k = self;
    const row_list *list = list_of(k, io);
    bool is_first = !k->linear.wants_input;
    if (!list || !list->count)
        return rpi_dnn_linear_weight_gradients(&k->linear, io,
                                               logits_gradient(k, io, is_first));
    loss_kernel some = narrow(k, list);
    rpi_kernel_io some_io = *io;
    float *inputs = rpi_dnn_at(io->workspace, k->some_backward);
    gather_inputs(k, io, list, inputs);
    some_io.inputs[RPI_DNN_LINEAR_INPUT] = inputs;
    return rpi_dnn_linear_weight_gradients(&some.linear, &some_io,
                                           logits_gradient(&some, io, is_first));
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
    if (kernel->linear.bf16) return; /* its inputs are rounded and packed as they lie */
    size_t rows = (size_t)kernel->linear.rows;
    size_t inputs = sizeof(float) * (rows / 4 * 3) * (size_t)kernel->linear.inputs;
    kernel->list = rpi_dnn_reserve(unit->wanted ? &out->saved_bytes : &out->forward_workspace,
                                   sizeof(row_list) + rows * sizeof(uint32_t));
    kernel->some_labels = rpi_dnn_reserve(&out->forward_workspace, rows * sizeof(int32_t));
    kernel->some_inputs = rpi_dnn_reserve(&out->forward_workspace, inputs);
    kernel->some_backward = rpi_dnn_reserve(&out->backward_workspace, inputs);
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
