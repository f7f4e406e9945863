#include "engine/backends/cpu/cpu_cross_entropy.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/backends/cpu/cpu_op.h"
#include "engine/layers.h"

extern const rpi_op rpi_op_softmax_cross_entropy;
extern const rpi_cpu_op rpi_cpu_softmax_cross_entropy;

enum { LOGITS, LABELS, SCALE };
enum { LOSS, CORRECT, VALID };

static size_t losses_bytes(int64_t rows) {
    return rpi_align_up((size_t)rows * sizeof(float));
}

size_t rpi_cpu_cross_entropy_bytes(int64_t rows) {
    return losses_bytes(rows) + (size_t)rows;
}

void rpi_cpu_cross_entropy_place(rpi_kernel_cross_entropy *it, int64_t rows, void *workspace) {
    it->losses = workspace;
    it->correct = (uint8_t *)workspace + losses_bytes(rows);
}

rp_status rpi_cpu_cross_entropy_report(const rpi_kernel_cross_entropy *it,
                                       const rpi_cross_entropy_totals *totals,
                                       const rpi_unit_value *labels, float scale,
                                       const rpi_kernel_io *io) {
    char text[128];
    if (totals->bad_row >= 0)
        return RP_FAIL(INVALID, "label %d at %s; 0 to %lld are allowed, and %d for none",
                       (int)it->labels[totals->bad_row],
                       rpi_cpu_element_text(labels, totals->bad_row, text, sizeof text),
                       (long long)it->classes - 1, (int)it->ignored);
    *(float *)io->outputs[LOSS] = (float)(totals->loss * (double)scale);
    *(int32_t *)io->outputs[CORRECT] = (int32_t)totals->correct;
    *(int32_t *)io->outputs[VALID] = (int32_t)totals->valid;
    return RP_OK;
}

static rpi_kernel_cross_entropy describe_call(const rpi_unit *unit, const rpi_kernel_io *io) {
    const rpi_cross_entropy_attributes *loss = unit->nodes[0]->attributes;
    int64_t classes = rpi_op_width(&unit->inputs[LOGITS].shape);
    rpi_kernel_cross_entropy it = {
        .rows = rpi_shape_count(&unit->inputs[LABELS].shape),
        .classes = classes,
        .logits = rpi_kernel_f32(io->inputs[LOGITS], classes),
        .labels = io->inputs[LABELS],
        .ignored = loss->ignored,
        .smoothing = loss->smoothing,
    };
    rpi_cpu_cross_entropy_place(&it, it.rows, io->workspace);
    return it;
}

static rp_status forward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    rpi_kernel_cross_entropy it = describe_call(&kernel->unit, io);
    rpi_cross_entropy_totals totals = rpi_kernel_cross_entropy_run(&kernel->run, &it);
    return rpi_cpu_cross_entropy_report(&it, &totals, &kernel->unit.inputs[LABELS],
                                        *(const float *)io->inputs[SCALE], io);
}

static rp_status backward(const rpi_cpu_kernel *kernel, const rpi_kernel_io *io) {
    rpi_kernel_cross_entropy it = describe_call(&kernel->unit, io);
    it.scale = *(float *)io->inputs[SCALE] * *(const float *)io->grad_outputs[LOSS];
    it.dlogits = rpi_kernel_f32(io->grad_inputs[LOGITS], it.classes);
    (void)rpi_kernel_cross_entropy_run(&kernel->run, &it);
    return RP_OK;
}

static void describe(const rpi_unit *unit, rpi_kernel *kernel) {
    kernel->forward_workspace = kernel->backward_workspace =
        rpi_cpu_cross_entropy_bytes(rpi_shape_count(&unit->inputs[LABELS].shape));
}

const rpi_cpu_op rpi_cpu_softmax_cross_entropy = {.op = &rpi_op_softmax_cross_entropy,
                                                  .forward = forward,
                                                  .backward = backward,
                                                  .describe = describe};
