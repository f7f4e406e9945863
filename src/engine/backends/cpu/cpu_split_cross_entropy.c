/* Cross-entropy over classes of which each of several ranks has a slice: what is made of the
 * slice, and what of everybody's. */
#include "base/status.h"
#include "engine/backends/cpu/cpu_op.h"
#include "engine/backends/cpu/kernels/kernel_cross_entropy.h"
#include "engine/layers.h"

#include <math.h>
#include <string.h>

extern const rpi_op rpi_op_logit_statistics, rpi_op_statistics_cross_entropy;
extern const rpi_cpu_op rpi_cpu_logit_statistics, rpi_cpu_statistics_cross_entropy;

/* ---- of a slice ---- */

enum { LOGITS, LABELS, SCALE };

static rpi_kernel_statistics describe_slice(const rpi_unit *unit, const rpi_kernel_io *io) {
    const rpi_logit_slice *slice = unit->nodes[0]->attributes;
    int64_t classes = rpi_op_width(&unit->inputs[LOGITS].shape);
    return (rpi_kernel_statistics){.rows = rpi_shape_count(&unit->inputs[LABELS].shape),
                                   .classes = classes,
                                   .first = slice->first,
                                   .whole = slice->whole,
                                   .logits = rpi_kernel_f32(io->inputs[LOGITS], classes),
                                   .labels = io->inputs[LABELS],
                                   .ignored = slice->ignored,
                                   .statistics = io->outputs[0]};
}

static rp_status make_statistics(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    rpi_kernel_statistics it = describe_slice(&kernel->unit, io);
    rpi_kernel_statistics_run(&kernel->run, &it);
    return RP_OK;
}

static rp_status statistics_gradient(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    rpi_kernel_statistics it = describe_slice(&kernel->unit, io);
    it.gradients = io->grad_outputs[0];
    it.dlogits = rpi_kernel_f32(io->grad_inputs[LOGITS], it.classes);
    rpi_kernel_statistics_run(&kernel->run, &it);
    return RP_OK;
}

const rpi_cpu_op rpi_cpu_logit_statistics = {.op = &rpi_op_logit_statistics,
                                             .forward = make_statistics,
                                             .backward = statistics_gradient};

/* ---- of all slices ---- */

/* One call: statistics [slices, rows, RPI_STATISTICS]. */
typedef struct call {
    const rpi_statistics_loss *loss;
    int64_t slices, rows;
    const float *statistics;
    const int32_t *labels;
} call;

static call describe_call(const rpi_unit *unit, const rpi_kernel_io *io) {
    int64_t rows = rpi_shape_count(&unit->inputs[1].shape);
    return (call){.loss = unit->nodes[0]->attributes,
                  .slices = unit->inputs[0].shape.size[0],
                  .rows = rows,
                  .statistics = io->inputs[0],
                  .labels = io->inputs[1]};
}

static const float *statistics_at(const call *c, int64_t slice, int64_t row) {
    return c->statistics + (slice * c->rows + row) * RPI_STATISTICS;
}

static double lse_of(const call *c, int64_t row) {
    double most = -INFINITY, sum = 0;
    for (int64_t s = 0; s < c->slices; s++) {
        double lse = (double)statistics_at(c, s, row)[RPI_STATISTICS_LSE];
        if (lse != lse) return NAN;
        if (lse > most) most = lse;
    }
    for (int64_t s = 0; s < c->slices; s++)
        sum += exp((double)statistics_at(c, s, row)[RPI_STATISTICS_LSE] - most);
    return most + log(sum);
}

static double sum_of(const call *c, int64_t row, int which) {
    double sum = 0;
    for (int64_t s = 0; s < c->slices; s++) sum += (double)statistics_at(c, s, row)[which];
    return sum;
}

/* Slices lie in the order of their classes, so that the first of equal ones is the lowest. */
static bool is_right(const call *c, int64_t row) {
    const float *best = statistics_at(c, 0, row);
    for (int64_t s = 1; s < c->slices; s++) {
        const float *other = statistics_at(c, s, row);
        if (other[RPI_STATISTICS_LARGEST] > best[RPI_STATISTICS_LARGEST]) best = other;
    }
    return best[RPI_STATISTICS_INDEX] == (float)c->labels[row];
}

static double row_loss(const call *c, int64_t row) {
    double smooth = (double)c->loss->smoothing, lse = lse_of(c, row);
    double loss = (1 - smooth) * (lse - sum_of(c, row, RPI_STATISTICS_LABEL));
    if (smooth > 0)
        loss += smooth * (lse - sum_of(c, row, RPI_STATISTICS_SUM) / (double)c->loss->whole);
    if (c->loss->z_loss > 0) loss += (double)c->loss->z_loss * lse * lse;
    return loss;
}

static rp_status make_loss(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    call c = describe_call(&kernel->unit, io);
    double loss = 0;
    int32_t correct = 0, valid = 0;
    char text[128];
    for (int64_t row = 0; row < c.rows; row++) {
        if (c.labels[row] == c.loss->ignored) continue;
        if (c.labels[row] < 0 || c.labels[row] >= c.loss->whole)
            return RP_FAIL(
                INVALID, "label %d at %s; 0 to %lld are allowed, and %d for none",
                (int)c.labels[row],
                rpi_cpu_element_text(&kernel->unit.inputs[1], row, text, sizeof text),
                (long long)c.loss->whole - 1, (int)c.loss->ignored);
        double one = row_loss(&c, row);
        loss += one;
        valid++;
        correct += one == one && is_right(&c, row);
    }
    *(float *)io->outputs[0] = (float)(loss * (double)*(const float *)io->inputs[SCALE]);
    *(int32_t *)io->outputs[1] = correct;
    *(int32_t *)io->outputs[2] = valid;
    return RP_OK;
}

static rp_status loss_gradient(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    call c = describe_call(&kernel->unit, io);
    double scale =
        (double)*(const float *)io->inputs[SCALE] * (double)*(const float *)io->grad_outputs[0];
    double smooth = (double)c.loss->smoothing;
    float *gradients = io->grad_inputs[0];
    memset(gradients, 0, sizeof(float) * (size_t)(c.slices * c.rows * RPI_STATISTICS));
    for (int64_t row = 0; row < c.rows; row++) {
        if (c.labels[row] == c.loss->ignored) continue;
        double lse = lse_of(&c, row);
        double by_lse = scale * (1 + 2 * (double)c.loss->z_loss * lse);
        for (int64_t s = 0; s < c.slices; s++) {
            float *g = gradients + (s * c.rows + row) * RPI_STATISTICS;
            double own = (double)statistics_at(&c, s, row)[RPI_STATISTICS_LSE];
            g[RPI_STATISTICS_LSE] = (float)(by_lse * exp(own - lse));
            g[RPI_STATISTICS_LABEL] = (float)(-scale * (1 - smooth));
            g[RPI_STATISTICS_SUM] = (float)(-scale * smooth / (double)c.loss->whole);
        }
    }
    return RP_OK;
}

const rpi_cpu_op rpi_cpu_statistics_cross_entropy = {
    .op = &rpi_op_statistics_cross_entropy, .forward = make_loss, .backward = loss_gradient};
