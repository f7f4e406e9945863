/* Softmax cross-entropy over classes of which each of several ranks has a slice, as two ops:
 * statistics of the slice, which ranks hand each other, and the loss of all statistics. */
#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_logit_statistics, rpi_op_statistics_cross_entropy;

/* An index travels as a float. */
enum { MOST_CLASSES = 1 << 24 };

static rp_status check_classes(int64_t whole, int ignored) {
    if (whole < 1 || whole > MOST_CLASSES)
        return RP_FAIL(INVALID, "%lld classes; 1 to %d are allowed", (long long)whole,
                       (int)MOST_CLASSES);
    if (ignored >= 0)
        return RP_FAIL(INVALID, "the ignored label is %d; a negative one is wanted", ignored);
    return RP_OK;
}

/* `of` without its last axis. */
static rp_status check_labels(const rpi_shape *labels, const rpi_shape *of, int skipped) {
    char text[96], other[96];
    rpi_shape rows = {.dims = of->dims - 1 - skipped};
    for (int d = 0; d < rows.dims; d++) rows.size[d] = of->size[d + skipped];
    if (rpi_shape_equal(labels, &rows)) return RP_OK;
    return RP_FAIL(INVALID, "labels are %s; one a row, %s, is wanted",
                   rpi_op_shape_text(labels, text, sizeof text),
                   rpi_op_shape_text(&rows, other, sizeof other));
}

/* ---- statistics ---- */

static rp_status infer_statistics(const void *attributes, int input_count,
                                  const rpi_shape *inputs, rpi_shape *outputs) {
    (void)input_count;
    const rpi_logit_slice *slice = attributes;
    char text[96];
    RP_TRY(check_classes(slice->whole, slice->ignored));
    if (slice->first < 0 || slice->first > slice->whole)
        return RP_FAIL(INVALID, "classes from %lld on of %lld", (long long)slice->first,
                       (long long)slice->whole);
    if (inputs[0].dims < 2)
        return RP_FAIL(INVALID, "logits are %s; ... x C is wanted",
                       rpi_op_shape_text(&inputs[0], text, sizeof text));
    RP_TRY(check_labels(&inputs[1], &inputs[0], 0));
    outputs[0] = inputs[0];
    outputs[0].size[outputs[0].dims - 1] = RPI_LOGIT_STATISTICS;
    return RP_OK;
}

static const rpi_logit_slice all = {.whole = 7, .ignored = -1};
static const rpi_logit_slice middle = {.first = 3, .whole = 40, .ignored = -1};
static const rpi_logit_slice padded = {.first = 30, .whole = 40, .ignored = -1};

static const rpi_op_example slices[] = {
    {.name = "all",
     .attributes = &all,
     .input_count = 2,
     .inputs = {{2, {5, 7}}, {1, {5}}},
     .classes = 7},
    {.name = "middle",
     .attributes = &middle,
     .input_count = 2,
     .inputs = {{3, {2, 3, 19}}, {2, {2, 3}}},
     .classes = 40},
    {.name = "padded",
     .attributes = &padded,
     .input_count = 2,
     .inputs = {{2, {6, 17}}, {1, {6}}},
     .classes = 40},
};

const rpi_op rpi_op_logit_statistics = {
    .name = "logit_statistics",
    .summary = "log-sum-exp, label's logit, sum, largest and its index, of a slice of logits",
    .attribute_bytes = sizeof(rpi_logit_slice),
    .input_count = 2,
    .output_count = 1,
    .inputs = {{.name = "logits", .dtype = RP_F32, .has_gradient = true},
               {.name = "labels", .dtype = RP_I32}},
    .outputs = {{"statistics", RP_F32}},
    .infer = infer_statistics,
    .needs_inputs = 3,
    .needs_outputs = 1,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .examples = slices,
    .example_count = sizeof slices / sizeof slices[0],
};

rpi_value_id rpi_logit_statistics(rpi_graph *graph, const char *name, rpi_value_id logits,
                                  rpi_value_id labels, rpi_logit_slice slice) {
    if (slice.ignored == 0) slice.ignored = -100;
    return rpi_graph_add(graph, name, &rpi_op_logit_statistics, &slice, 2,
                         (rpi_value_id[]){logits, labels});
}

/* ---- the loss ---- */

static rp_status infer_loss(const void *attributes, int input_count, const rpi_shape *inputs,
                            rpi_shape *outputs) {
    (void)input_count;
    const rpi_statistics_loss *loss = attributes;
    char text[96];
    RP_TRY(check_classes(loss->whole, loss->ignored));
    if (!(loss->smoothing >= 0 && loss->smoothing <= 1))
        return RP_FAIL(INVALID, "smoothing is %g; 0 to 1 are allowed", (double)loss->smoothing);
    if (!(loss->z_loss >= 0))
        return RP_FAIL(INVALID, "z_loss is %g; 0 or more", (double)loss->z_loss);
    const rpi_shape *of = &inputs[0];
    if (of->dims < 3 || of->size[of->dims - 1] != RPI_LOGIT_STATISTICS)
        return RP_FAIL(INVALID, "statistics are %s; slices x ... x %d is wanted",
                       rpi_op_shape_text(of, text, sizeof text), (int)RPI_LOGIT_STATISTICS);
    RP_TRY(check_labels(&inputs[1], of, 1));
    if (inputs[2].dims != 0)
        return RP_FAIL(INVALID, "scale is %s; a scalar is wanted",
                       rpi_op_shape_text(&inputs[2], text, sizeof text));
    outputs[0] = outputs[1] = outputs[2] = (rpi_shape){.dims = 0};
    return RP_OK;
}

static const rpi_statistics_loss plain = {.whole = 10, .ignored = -1};
static const rpi_statistics_loss smoothed = {
    .whole = 40, .smoothing = 0.2f, .z_loss = 0.01f, .ignored = -1};

static const rpi_op_example losses[] = {
    {.name = "two slices",
     .attributes = &plain,
     .input_count = 3,
     .inputs = {{3, {2, 6, RPI_LOGIT_STATISTICS}}, {1, {6}}, {0}},
     .classes = 10},
    {.name = "smoothed",
     .attributes = &smoothed,
     .input_count = 3,
     .inputs = {{4, {3, 2, 3, RPI_LOGIT_STATISTICS}}, {2, {2, 3}}, {0}},
     .classes = 40},
};

const rpi_op rpi_op_statistics_cross_entropy = {
    .name = "statistics_cross_entropy",
    .summary = "softmax_cross_entropy of logits that are known by the statistics of slices",
    .attribute_bytes = sizeof(rpi_statistics_loss),
    .input_count = 3,
    .output_count = 3,
    .inputs = {{.name = "statistics", .dtype = RP_F32, .has_gradient = true},
               {.name = "labels", .dtype = RP_I32},
               {.name = "scale", .dtype = RP_F32}},
    .outputs = {{"loss", RP_F32}, {"correct", RP_I32}, {"valid", RP_I32}},
    .infer = infer_loss,
    .needs_inputs = 7,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .examples = losses,
    .example_count = sizeof losses / sizeof losses[0],
};

rpi_value_id rpi_statistics_cross_entropy(rpi_graph *graph, const char *name,
                                          rpi_value_id statistics, rpi_value_id labels,
                                          rpi_value_id scale, rpi_statistics_loss loss) {
    if (loss.ignored == 0) loss.ignored = -100;
    return rpi_graph_add(graph, name, &rpi_op_statistics_cross_entropy, &loss, 3,
                         (rpi_value_id[]){statistics, labels, scale});
}
