#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_adaptive_cross_entropy;

enum { INPUT, TABLE, BIAS, CLUSTER_WEIGHT, CLUSTER_BIAS, LABELS, SCALE };

static rp_status check_cutoffs(const rpi_adaptive_attributes *adaptive, int64_t vocabulary) {
    int64_t before = 0;
    if (adaptive->ignored >= 0)
        return RP_FAIL(INVALID, "the ignored label is %d; a negative one is wanted",
                       adaptive->ignored);
    if (adaptive->cutoff_count < 1 || adaptive->cutoff_count > RPI_CUTOFFS)
        return RP_FAIL(INVALID, "%d cutoffs; 1 to %d are allowed", adaptive->cutoff_count,
                       (int)RPI_CUTOFFS);
    for (int i = 0; i < adaptive->cutoff_count; i++) {
        int64_t cutoff = adaptive->cutoffs[i];
        if (cutoff <= before || cutoff >= vocabulary)
            return RP_FAIL(INVALID,
                           "cutoff %lld; each is above the one before and below the "
                           "%lld tokens that there are",
                           (long long)cutoff, (long long)vocabulary);
        before = cutoff;
    }
    return RP_OK;
}

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    const rpi_adaptive_attributes *adaptive = attributes;
    const rpi_shape *table = &inputs[TABLE];
    rpi_shape rows = inputs[INPUT];
    char text[96];
    (void)input_count;
    if (rows.dims < 2)
        return RP_FAIL(INVALID, "input is %s; ... x width is wanted",
                       rpi_op_shape_text(&rows, text, sizeof text));
    RP_TRY(rpi_op_check_numbers(&rows, rows.dims - 1, "input"));
    int64_t width = rpi_op_width(&rows), clusters = adaptive->cutoff_count;
    rows.size[--rows.dims] = 0;
    if (table->dims != 2 || table->size[1] != width)
        return RP_FAIL(INVALID, "table is %s; tokens x %lld is wanted",
                       rpi_op_shape_text(table, text, sizeof text), (long long)width);
    RP_TRY(rpi_op_check_numbers(table, 0, "table"));
    RP_TRY(check_cutoffs(adaptive, table->size[0]));
    RP_TRY(rpi_op_check_vector(&inputs[BIAS], table->size[0], "bias"));
    rpi_shape heads = {2, {clusters, width}};
    RP_TRY(rpi_op_check_shape(&inputs[CLUSTER_WEIGHT], &heads, "cluster weight"));
    RP_TRY(rpi_op_check_vector(&inputs[CLUSTER_BIAS], clusters, "cluster bias"));
    RP_TRY(rpi_op_check_shape(&inputs[LABELS], &rows, "labels"));
    RP_TRY(rpi_op_check_shape(&inputs[SCALE], &(rpi_shape){0}, "scale"));
    outputs[0] = outputs[1] = outputs[2] = (rpi_shape){0};
    return RP_OK;
}

/* Of the first softmax: how many rows go on to a second one, the labels say. */
static void flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    const rpi_adaptive_attributes *adaptive = attributes;
    (void)outputs;
    int64_t classes = adaptive->cutoffs[0] + adaptive->cutoff_count;
    *out_forward = 2 * rpi_shape_count(&inputs[INPUT]) * classes;
    *out_backward = wanted ? 2 * *out_forward : 0;
}

/* log of the sums of exponentials of each row, of both softmaxes, f32. */
static size_t saved_bytes(const void *attributes, const rpi_shape *inputs,
                          const rpi_shape *outputs) {
    (void)attributes, (void)outputs;
    return 2 * sizeof(float) * (size_t)rpi_shape_count(&inputs[LABELS]);
}

static const rpi_adaptive_attributes two = {
    .cutoff_count = 2, .cutoffs = {4, 7}, .ignored = -100};
static const rpi_adaptive_attributes three = {
    .cutoff_count = 3, .cutoffs = {3, 100, 380}, .ignored = -1};

static const rpi_op_example examples[] = {
    {.name = "two clusters",
     .attributes = &two,
     .input_count = 7,
     .inputs =
         {{3, {2, 5, 6}}, {2, {11, 6}}, {1, {11}}, {2, {2, 6}}, {1, {2}}, {2, {2, 5}}, {0}},
     .classes = 11},
    {.name = "three clusters",
     .attributes = &three,
     .input_count = 7,
     .inputs = {{2, {14, 9}}, {2, {400, 9}}, {1, {400}}, {2, {3, 9}}, {1, {3}}, {1, {14}}, {0}},
     .classes = 400},
};

const rpi_op rpi_op_adaptive_cross_entropy = {
    .name = "adaptive_cross_entropy",
    .summary = "cross-entropy of x table^T + bias by clusters: a softmax over frequent tokens "
               "and clusters of others, then one over a cluster",
    .attribute_bytes = sizeof(rpi_adaptive_attributes),
    .input_count = 7,
    .output_count = 3,
    .inputs =
        {{.name = "input", .dtype = RP_F32, .has_gradient = true},
         {.name = "table", .dtype = RP_F32, .role = RPI_WEIGHT, .has_gradient = true},
         {.name = "bias", .dtype = RP_F32, .role = RPI_WEIGHT, .has_gradient = true},
         {.name = "cluster weight", .dtype = RP_F32, .role = RPI_WEIGHT, .has_gradient = true},
         {.name = "cluster bias", .dtype = RP_F32, .role = RPI_WEIGHT, .has_gradient = true},
         {.name = "labels", .dtype = RP_I32},
         {.name = "scale", .dtype = RP_F32}},
    .outputs = {{"loss", RP_F32}, {"correct", RP_I32}, {"valid", RP_I32}},
    .infer = infer,
    .flops = flops,
    .needs_inputs = 127,
    .saved_bytes = saved_bytes,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_adaptive_cross_entropy(rpi_graph *graph, const char *name, rpi_value_id input,
                                        rpi_adaptive_weights weights, rpi_value_id labels,
                                        rpi_value_id scale,
                                        rpi_adaptive_attributes attributes) {
    if (attributes.ignored == 0) attributes.ignored = -100;
    return rpi_graph_add(graph, name, &rpi_op_adaptive_cross_entropy, &attributes, 7,
                         (rpi_value_id[]){input, weights.table, weights.bias,
                                          weights.cluster_weight, weights.cluster_bias, labels,
                                          scale});
}
