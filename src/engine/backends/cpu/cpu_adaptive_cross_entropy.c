/* A softmax over the frequent tokens and the clusters for all rows, then one over its cluster
 * for the rows of each, which are gathered. */
#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/cpu_op.h"
#include "engine/backends/cpu/kernels/kernel_table_softmax.h"
#include "engine/layers.h"

#include <string.h>

extern const rpi_op rpi_op_adaptive_cross_entropy;
extern const rpi_cpu_op rpi_cpu_adaptive_cross_entropy;

enum { INPUT, TABLE, BIAS, CLUSTER_WEIGHT, CLUSTER_BIAS, LABELS, SCALE };
enum { LOSS, CORRECT, VALID };

typedef struct call {
    const rpi_cpu_kernel *kernel;
    const rpi_kernel_io *io;
    const rpi_adaptive_attributes *adaptive;
    int64_t rows, width, vocabulary;
    const float *x;
    float *lse, *tail_lse; /* [rows]: of all, and of those in clusters where they stand */
    /* In the workspace, each [rows], or [rows, width]; those below of one cluster's rows. */
    int32_t *head_labels, *labels, *places;
    uint8_t *head_correct, *correct;
    float *head_losses, *losses, *gathered_lse, *gathered, *gathered_dx;
    void *scratch;
} call;

/* The workspace's parts; without one, their bytes. */
static size_t place_workspace(call *c, char *workspace) {
    size_t rows = (size_t)c->rows, used = 0;
    const struct {
        void *pointer; /* of a pointer */
        size_t bytes;
    } parts[] = {
        {&c->head_labels, rows * sizeof(int32_t)},
        {&c->labels, rows * sizeof(int32_t)},
        {&c->places, rows * sizeof(int32_t)},
        {&c->head_correct, rows},
        {&c->correct, rows},
        {&c->head_losses, rows * sizeof(float)},
        {&c->losses, rows * sizeof(float)},
        {&c->gathered_lse, rows * sizeof(float)},
        {&c->gathered, rows * (size_t)c->width * sizeof(float)},
        {&c->gathered_dx, rows * (size_t)c->width * sizeof(float)},
        {&c->lse, rows * sizeof(float)}, /* where nothing is saved */
        {&c->tail_lse, rows * sizeof(float)},
        {&c->scratch, (size_t)rpi_kernel_table_softmax_scratch(c->rows, c->width)},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char *at = workspace ? workspace + used : NULL;
        memcpy(parts[i].pointer, &at, sizeof at);
        used += rpi_align_up(parts[i].bytes);
    }
    return used;
}

static void describe_sizes(const rpi_unit *unit, call *c) {
    *c = (call){.adaptive = unit->nodes[0]->attributes,
                .rows = rpi_shape_count(&unit->inputs[LABELS].shape),
                .width = rpi_op_width(&unit->inputs[INPUT].shape),
                .vocabulary = unit->inputs[TABLE].shape.size[0]};
}

static void describe_call(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io, call *c) {
    describe_sizes(&kernel->unit, c);
    c->kernel = kernel;
    c->io = io;
    c->x = io->inputs[INPUT];
    (void)place_workspace(c, io->workspace);
    if (!io->saved) return;
    c->lse = io->saved;
    c->tail_lse = c->lse + c->rows;
}

/* ---- labels ---- */

static int64_t first_of(const call *c, int cluster) {
    return c->adaptive->cutoffs[cluster];
}

static int64_t end_of(const call *c, int cluster) {
    return cluster + 1 < c->adaptive->cutoff_count ? c->adaptive->cutoffs[cluster + 1]
                                                   : c->vocabulary;
}

static int cluster_of(const call *c, int64_t label) {
    int cluster = -1;
    while (cluster + 1 < c->adaptive->cutoff_count && label >= first_of(c, cluster + 1))
        cluster++;
    return cluster;
}

/* Its class in the first softmax: clusters come behind the frequent tokens, the last one first,
 * as in the published code. */
static int32_t head_label(const call *c, int32_t label) {
    int cluster = label == c->adaptive->ignored ? -1 : cluster_of(c, label);
    if (label == c->adaptive->ignored) return -1;
    if (cluster < 0) return label;
    return (int32_t)(c->adaptive->cutoffs[0] + c->adaptive->cutoff_count - 1 - cluster);
}

static rp_status find_head_labels(call *c) {
    const int32_t *labels = c->io->inputs[LABELS];
    char text[128];
    for (int64_t i = 0; i < c->rows; i++) {
        bool bad = labels[i] < 0 || labels[i] >= c->vocabulary;
        if (bad && labels[i] != c->adaptive->ignored)
            return RP_FAIL(
                INVALID, "label %d at %s; 0 to %lld are allowed, and %d for none",
                (int)labels[i],
                rpi_cpu_element_text(&c->kernel->unit.inputs[LABELS], i, text, sizeof text),
                (long long)c->vocabulary - 1, c->adaptive->ignored);
        c->head_labels[i] = head_label(c, labels[i]);
    }
    return RP_OK;
}

/* The rows whose label is in a cluster, with their labels in it; how many. */
static int64_t gather(call *c, int cluster) {
    const int32_t *labels = c->io->inputs[LABELS];
    int64_t count = 0;
    for (int64_t i = 0; i < c->rows; i++) {
        if (labels[i] < first_of(c, cluster) || labels[i] >= end_of(c, cluster)) continue;
        memcpy(c->gathered + count * c->width, c->x + i * c->width,
               (size_t)c->width * sizeof(float));
        c->labels[count] = (int32_t)(labels[i] - first_of(c, cluster));
        c->gathered_lse[count] = c->tail_lse[i];
        c->places[count++] = (int32_t)i;
    }
    return count;
}

/* ---- softmaxes ---- */

static float *gradient_at(const call *c, int input, int64_t row, int64_t width) {
    float *gradient = c->io->grad_inputs[input];
    return gradient ? gradient + row * width : NULL;
}

static rpi_kernel_table table_of(const call *c, int weight, int bias, int64_t first,
                                 int64_t end) {
    return (rpi_kernel_table){.classes = end - first,
                              .weight = (const float *)c->io->inputs[weight] + first * c->width,
                              .bias = (const float *)c->io->inputs[bias] + first,
                              .dweight = gradient_at(c, weight, first, c->width),
                              .dbias = gradient_at(c, bias, first, 1)};
}

static rpi_kernel_table_softmax head_of(const call *c) {
    return (rpi_kernel_table_softmax){
        .rows = c->rows,
        .width = c->width,
        .x = c->x,
        .tables = {table_of(c, TABLE, BIAS, 0, c->adaptive->cutoffs[0]),
                   table_of(c, CLUSTER_WEIGHT, CLUSTER_BIAS, 0, c->adaptive->cutoff_count)},
        .labels = c->head_labels,
        .losses = c->head_losses,
        .correct = c->head_correct,
        .lse = c->lse,
        .dx = c->io->grad_inputs[INPUT],
        .scratch = c->scratch};
}

static rpi_kernel_table_softmax tail_of(const call *c, int cluster, int64_t count) {
    return (rpi_kernel_table_softmax){
        .rows = count,
        .width = c->width,
        .x = c->gathered,
        .tables = {table_of(c, TABLE, BIAS, first_of(c, cluster), end_of(c, cluster))},
        .labels = c->labels,
        .losses = c->losses,
        .correct = c->correct,
        .lse = c->gathered_lse,
        .dx = c->io->grad_inputs[INPUT] ? c->gathered_dx : NULL,
        .scratch = c->scratch};
}

/* ---- forward ---- */

static void forward_tail(call *c, int cluster) {
    int64_t count = gather(c, cluster);
    rpi_kernel_table_softmax it = tail_of(c, cluster, count);
    if (count) rpi_kernel_table_softmax_forward(&c->kernel->run, &it);
    for (int64_t k = 0; k < count; k++) {
        c->head_losses[c->places[k]] += c->losses[k];
        c->head_correct[c->places[k]] &= c->correct[k];
        c->tail_lse[c->places[k]] = c->gathered_lse[k];
    }
}

static void report(const call *c) {
    double loss = 0;
    int32_t correct = 0, valid = 0;
    for (int64_t i = 0; i < c->rows; i++) {
        loss += (double)c->head_losses[i];
        correct += c->head_correct[i];
        valid += c->head_labels[i] >= 0;
    }
    *(float *)c->io->outputs[LOSS] = (float)(loss * (double)*(float *)c->io->inputs[SCALE]);
    *(int32_t *)c->io->outputs[CORRECT] = correct;
    *(int32_t *)c->io->outputs[VALID] = valid;
}

static rp_status forward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    call c;
    describe_call(kernel, io, &c);
    RP_TRY(find_head_labels(&c));
    memset(c.tail_lse, 0, (size_t)c.rows * sizeof *c.tail_lse);
    rpi_kernel_table_softmax head = head_of(&c);
    rpi_kernel_table_softmax_forward(&kernel->run, &head);
    for (int i = 0; i < c.adaptive->cutoff_count; i++) forward_tail(&c, i);
    report(&c);
    return RP_OK;
}

/* ---- backward ---- */

static void backward_tail(call *c, int cluster, float factor) {
    int64_t count = gather(c, cluster);
    float *dx = c->io->grad_inputs[INPUT];
    rpi_kernel_table_softmax it = tail_of(c, cluster, count);
    it.factor = factor;
    memset(c->gathered_dx, 0, (size_t)(count * c->width) * sizeof(float));
    if (count) rpi_kernel_table_softmax_backward(&c->kernel->run, &it);
    for (int64_t k = 0; dx && k < count; k++)
        for (int64_t e = 0; e < c->width; e++)
            dx[c->places[k] * c->width + e] += c->gathered_dx[k * c->width + e];
}

/* The kernels add; clusters that no label is in have gradients of 0. */
static void clear_gradients(const call *c) {
    for (int i = INPUT; i <= CLUSTER_BIAS; i++) {
        float *gradient = c->io->grad_inputs[i];
        size_t count = (size_t)rpi_shape_count(&c->kernel->unit.inputs[i].shape);
        if (gradient && !rpi_cpu_accumulates(c->io, i))
            memset(gradient, 0, count * sizeof *gradient);
    }
}

static rp_status backward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    call c;
    float factor = *(float *)io->inputs[SCALE] * *(const float *)io->grad_outputs[LOSS];
    describe_call(kernel, io, &c);
    RP_TRY(find_head_labels(&c));
    clear_gradients(&c);
    rpi_kernel_table_softmax head = head_of(&c);
    head.factor = factor;
    rpi_kernel_table_softmax_backward(&kernel->run, &head);
    for (int i = 0; i < c.adaptive->cutoff_count; i++) backward_tail(&c, i, factor);
    return RP_OK;
}

static void describe(const rpi_unit *unit, rpi_kernel *kernel) {
    call c;
    describe_sizes(unit, &c);
    kernel->backward_weights = NULL; /* the same logits serve both */
    kernel->forward_workspace = kernel->backward_workspace = place_workspace(&c, NULL);
}

const rpi_cpu_op rpi_cpu_adaptive_cross_entropy = {.op = &rpi_op_adaptive_cross_entropy,
                                                   .forward = forward,
                                                   .backward = backward,
                                                   .describe = describe};
