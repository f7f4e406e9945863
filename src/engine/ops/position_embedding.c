#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_position_embedding;

static rp_status check_bound(const void *attributes, int input_count, const rpi_shape *inputs) {
    const rpi_position_attributes *embedding = attributes;
    (void)input_count;
    RP_TRY(rpi_op_check_pieces(&embedding->pieces, inputs[0].size[inputs[0].dims - 2]));
    int64_t length = rpi_token_whole(&embedding->pieces, inputs[0].size[inputs[0].dims - 2]),
            positions = rpi_op_drop_ones(&inputs[1], 2).size[0];
    if (length > positions)
        return RP_FAIL(INVALID,
                       "the sequence is %lld long; the table has %lld positions: shorten the "
                       "sequence or make the table longer",
                       (long long)length, (long long)positions);
    return RP_OK;
}

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    char text[96], other[96];
    int dims = inputs[0].dims;
    if (dims < 2)
        return RP_FAIL(INVALID, "input is %s; ... x sequence x width is wanted",
                       rpi_op_shape_text(&inputs[0], text, sizeof text));
    RP_TRY(rpi_op_check_numbers(&inputs[0], dims - 1, "input"));
    rpi_shape table = rpi_op_drop_ones(&inputs[1], 2);
    if (table.dims != 2 || table.size[1] != rpi_op_width(&inputs[0]))
        return RP_FAIL(INVALID, "table is %s; positions x %lld is wanted for input %s",
                       rpi_op_shape_text(&inputs[1], text, sizeof text),
                       (long long)rpi_op_width(&inputs[0]),
                       rpi_op_shape_text(&inputs[0], other, sizeof other));
    const rpi_position_attributes *embedding = attributes;
    RP_TRY(rpi_op_check_pieces(&embedding->pieces, inputs[0].size[dims - 2]));
    if (rpi_token_is_cut(&embedding->pieces) && input_count > 2)
        return RP_FAIL(INVALID, "tokens that are pieces of a sequence, and a position");
    if (input_count > 2 && inputs[2].dims != 0)
        return RP_FAIL(INVALID, "position is %s; a scalar is wanted",
                       rpi_op_shape_text(&inputs[2], text, sizeof text));
    outputs[0] = inputs[0];
    if (rpi_dimension_is_named(inputs[0].size[dims - 2])) return RP_OK;
    return check_bound(attributes, input_count, inputs);
}

static void flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    (void)attributes, (void)inputs;
    *out_forward = rpi_shape_count(&outputs[0]);
    *out_backward = wanted >> 1 & 1u ? *out_forward : 0;
}

static const rpi_position_attributes usual;
static const rpi_position_attributes of_pieces = {.pieces = {4, {1, 2}}};

static const rpi_position_attributes part = {.pieces = {.first = 2, .own = 9}};
static const rpi_position_attributes padded = {.pieces = {.first = 3, .own = 5}};
static const rpi_position_attributes padding = {.pieces = {.first = 6, .own = 5}};
static const rpi_position_attributes part_of_pieces = {
    .pieces = {.count = 4, .at = {1, 2}, .first = 2, .own = 6}};
static const rpi_position_attributes short_pieces = {.pieces = {4, {0, 3}, .whole = 10}};
static const rpi_position_attributes no_piece = {
    .pieces = {.count = 4, .at = {1, 2}, .whole = 5, .first = 2, .own = 6}};

static const rpi_op_example examples[] = {
    {.name = "sequences",
     .attributes = &usual,
     .input_count = 2,
     .inputs = {{3, {2, 3, 5}}, {2, {4, 5}}}},
    {.name = "whole table",
     .attributes = &usual,
     .input_count = 2,
     .inputs = {{3, {3, 4, 20}}, {2, {4, 20}}}},
    {.name = "pieces of a sequence",
     .attributes = &of_pieces,
     .input_count = 2,
     .inputs = {{3, {2, 6, 5}}, {2, {13, 5}}}},
    {.name = "table of torchvision's shape",
     .attributes = &usual,
     .input_count = 2,
     .inputs = {{3, {2, 3, 5}}, {3, {1, 4, 5}}}},
    {.name = "from a position on",
     .attributes = &usual,
     .input_count = 3,
     .inputs = {{3, {2, 3, 5}}, {2, {9, 5}}},
     .classes = 7},
    {.name = "part",
     .attributes = &part,
     .input_count = 2,
     .inputs = {{3, {2, 3, 5}}, {2, {9, 5}}}},
    {.name = "padded part",
     .attributes = &padded,
     .input_count = 2,
     .inputs = {{3, {2, 3, 5}}, {2, {5, 5}}}},
    {.name = "padding alone",
     .attributes = &padding,
     .input_count = 2,
     .inputs = {{3, {2, 3, 5}}, {2, {5, 5}}}},
    {.name = "part of pieces",
     .attributes = &part_of_pieces,
     .input_count = 2,
     .inputs = {{3, {2, 3, 5}}, {2, {13, 5}}}},
    {.name = "pieces that are not full",
     .attributes = &short_pieces,
     .input_count = 2,
     .inputs = {{3, {2, 6, 5}}, {2, {10, 5}}}},
    {.name = "part of pieces that are not full",
     .attributes = &no_piece,
     .input_count = 2,
     .inputs = {{3, {2, 3, 5}}, {2, {5, 5}}}},
    {.name = "one row",
     .attributes = &usual,
     .input_count = 2,
     .inputs = {{2, {3, 6}}, {2, {5, 6}}}},
};

const rpi_op rpi_op_position_embedding = {
    .name = "position_embedding",
    .summary = "y[..., t, :] = x[..., t, :] + table[position + t]",
    .attribute_bytes = sizeof(rpi_position_attributes),
    .input_count = 3,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true},
               {.name = "table", .role = RPI_WEIGHT, .dtype = RP_F32, .has_gradient = true},
               {.name = "position", .dtype = RP_I32, .optional = true}},
    .needs_inputs = 4,
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .check_bound = check_bound,
    .flops = flops,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .in_place_forward = true,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_position_embedding_at(rpi_graph *graph, const char *name, rpi_value_id input,
                                       rpi_value_id table, rpi_value_id position) {
    static const rpi_position_attributes whole;
    return rpi_graph_add(graph, name, &rpi_op_position_embedding, &whole, 3,
                         (rpi_value_id[]){input, table, position});
}

rpi_value_id rpi_position_embedding_of(rpi_graph *graph, const char *name, rpi_value_id input,
                                       rpi_value_id table, rpi_position_attributes attributes) {
    return rpi_graph_add(graph, name, &rpi_op_position_embedding, &attributes, 3,
                         (rpi_value_id[]){input, table, RPI_NO_VALUE});
}

rpi_value_id rpi_position_embedding(rpi_graph *graph, const char *name, rpi_value_id input,
                                    rpi_value_id table) {
    return rpi_position_embedding_at(graph, name, input, table, RPI_NO_VALUE);
}
