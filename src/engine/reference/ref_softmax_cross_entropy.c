#include "base/status.h"
#include "engine/reference/ref.h"

#include <math.h>

extern const rpi_op rpi_op_softmax_cross_entropy;
extern const rpi_ref_op rpi_ref_softmax_cross_entropy;

static int64_t last_axis(const rpi_shape *shape) {
    return shape->size[shape->dims - 1];
}

static rp_status check_labels(const int32_t *labels, int64_t rows, int64_t classes) {
    for (int64_t n = 0; n < rows; n++)
        if (labels[n] < 0 || labels[n] >= classes)
            return RP_FAIL(INVALID, "label %d of row %lld; 0 to %lld are allowed",
                           (int)labels[n], (long long)n, (long long)classes - 1);
    return RP_OK;
}

/* The first largest; a NaN counts as the largest. */
static int64_t largest(const float *row, int64_t classes) {
    int64_t best = 0;
    for (int64_t c = 1; c < classes && row[best] == row[best]; c++)
        if (!(row[c] <= row[best])) best = c;
    return best;
}

/* A row with a NaN answers nothing. */
static bool is_right(const float *row, int64_t classes, int32_t label) {
    int64_t answer = largest(row, classes);
    return answer == label && row[answer] == row[answer];
}

/* log sum_c exp(row[c]), without overflow. */
static double log_sum(const float *row, int64_t classes) {
    double top = (double)row[largest(row, classes)], sum = 0;
    for (int64_t c = 0; c < classes; c++) sum += exp((double)row[c] - top);
    return top + log(sum);
}

static rp_status forward(const rpi_unit *unit, const rpi_kernel_io *io) {
    int64_t rows = rpi_shape_count(&unit->inputs[1].shape);
    int64_t classes = last_axis(&unit->inputs[0].shape);
    const float *logits = io->inputs[0], *scale = io->inputs[2];
    const int32_t *labels = io->inputs[1];
    float *loss = io->outputs[0];
    int32_t *correct = io->outputs[1];
    double sum = 0;
    RP_TRY(check_labels(labels, rows, classes));
    *correct = 0;
    for (int64_t n = 0; n < rows; n++) {
        const float *row = logits + n * classes;
        sum += log_sum(row, classes) - (double)row[labels[n]];
        *correct += is_right(row, classes, labels[n]);
    }
    *loss = (float)(sum * (double)*scale);
    return RP_OK;
}

/* dlogits = dloss * scale * (softmax - one hot) */
static rp_status backward(const rpi_unit *unit, const rpi_kernel_io *io) {
    int64_t rows = rpi_shape_count(&unit->inputs[1].shape);
    int64_t classes = last_axis(&unit->inputs[0].shape);
    const float *logits = io->inputs[0], *scale = io->inputs[2], *dloss = io->grad_outputs[0];
    const int32_t *labels = io->inputs[1];
    double factor = (double)*dloss * (double)*scale;
    for (int64_t n = 0; n < rows; n++) {
        const float *row = logits + n * classes;
        double total = log_sum(row, classes);
        for (int64_t c = 0; c < classes; c++) {
            double probability = exp((double)row[c] - total);
            rpi_ref_store(io, 0, n * classes + c, factor * (probability - (c == labels[n])));
        }
    }
    return RP_OK;
}

const rpi_ref_op rpi_ref_softmax_cross_entropy = {
    .op = &rpi_op_softmax_cross_entropy, .forward = forward, .backward = backward};
