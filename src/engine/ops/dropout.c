#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_dropout;

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    (void)input_count;
    const rpi_dropout_attributes *dropout = attributes;
    RP_TRY(rpi_op_check_probability(dropout->probability, "probability"));
    int64_t width = inputs[0].dims ? inputs[0].size[inputs[0].dims - 1] : 1;
    if (dropout->first < 0 ||
        (dropout->whole ? dropout->first + width > dropout->whole : dropout->first > 0))
        return RP_FAIL(INVALID, "elements from %lld on of an axis of %lld",
                       (long long)dropout->first, (long long)dropout->whole);
    outputs[0] = inputs[0];
    if (!rpi_token_is_cut(&dropout->pieces)) return RP_OK;
    if (inputs[0].dims == 3) return rpi_op_check_pieces(&dropout->pieces, inputs[0].size[1]);
    char text[96];
    return RP_FAIL(INVALID, "input is %s; pieces are of batch x tokens x width",
                   rpi_op_shape_text(&inputs[0], text, sizeof text));
}

static const rpi_dropout_attributes some = {.probability = 0.3f};
static const rpi_dropout_attributes none = {.probability = 0};
static const rpi_dropout_attributes all = {.probability = 1};
static const rpi_dropout_attributes part = {.probability = 0.3f, .first = 9, .whole = 40};

static const rpi_dropout_attributes of_pieces = {.probability = 0.3f, .pieces = {4, {0, 3}}};
static const rpi_dropout_attributes short_pieces = {.probability = 0.3f,
                                                    .pieces = {4, {0, 3}, .whole = 10}};
static const rpi_dropout_attributes part_of_pieces = {
    .probability = 0.3f, .first = 9, .whole = 40, .pieces = {6, {2, 3}}};

static const rpi_dropout_attributes of_tokens = {.probability = 0.3f,
                                                 .pieces = {.first = 5, .own = 9}};
static const rpi_dropout_attributes padded_pieces = {
    .probability = 0.3f, .pieces = {.count = 4, .at = {0, 3}, .first = 4, .own = 6}};

static const rpi_op_example examples[] = {
    {.name = "some", .attributes = &some, .input_count = 1, .inputs = {{3, {3, 7, 23}}}},
    {.name = "none", .attributes = &none, .input_count = 1, .inputs = {{2, {3, 7}}}},
    {.name = "part", .attributes = &part, .input_count = 1, .inputs = {{3, {2, 5, 23}}}},
    {.name = "pieces", .attributes = &of_pieces, .input_count = 1, .inputs = {{3, {3, 6, 23}}}},
    {.name = "pieces that are not full",
     .attributes = &short_pieces,
     .input_count = 1,
     .inputs = {{3, {3, 6, 23}}}},
    {.name = "part of pieces",
     .attributes = &part_of_pieces,
     .input_count = 1,
     .inputs = {{3, {2, 4, 23}}}},
    {.name = "part of the tokens, padded",
     .attributes = &of_tokens,
     .input_count = 1,
     .inputs = {{3, {2, 5, 23}}}},
    {.name = "part of pieces' tokens, padded",
     .attributes = &padded_pieces,
     .input_count = 1,
     .inputs = {{3, {2, 4, 23}}}},
    {.name = "all", .attributes = &all, .input_count = 1, .inputs = {{2, {3, 7}}}},
};

const rpi_op rpi_op_dropout = {
    .name = "dropout",
    .summary = "y = x / (1 - p), or 0 with probability p; y = x in evaluation",
    .attribute_bytes = sizeof(rpi_dropout_attributes),
    .input_count = 1,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .in_place_forward = true,
    .in_place_backward = true,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_dropout_of(rpi_graph *graph, const char *name, rpi_value_id input,
                            rpi_dropout_attributes attributes) {
    return rpi_graph_add(graph, name, &rpi_op_dropout, &attributes, 1, &input);
}

rpi_value_id rpi_dropout(rpi_graph *graph, const char *name, rpi_value_id input,
                         float probability) {
    return rpi_dropout_of(graph, name, input,
                          (rpi_dropout_attributes){.probability = probability});
}
