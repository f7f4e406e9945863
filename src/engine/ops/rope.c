#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_rope;

static rp_status check_stretch(const rpi_rope_stretch *s) {
    if (s->factor < 0 || s->original < 0)
        return RP_FAIL(INVALID,
                       "angles are stretched by %g over %lld tokens; above 0 is wanted",
                       s->factor, (long long)s->original);
    if (s->yarn && !(s->original && s->factor > 0))
        return RP_FAIL(INVALID, "YaRN without a factor and the tokens of a text in training");
    if (s->attention < 0)
        return RP_FAIL(INVALID, "attention is %g; above 0 is wanted", s->attention);
    if (s->original && !(s->low > 0 && s->high > s->low))
        return RP_FAIL(INVALID, "low is %g and high %g; 0 < low < high is wanted", s->low,
                       s->high);
    return RP_OK;
}

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    const rpi_rope_attributes *rope = attributes;
    char text[96];
    if (inputs[0].dims != 3)
        return RP_FAIL(INVALID, "input is %s; batch x sequence x width is wanted",
                       rpi_op_shape_text(&inputs[0], text, sizeof text));
    RP_TRY(rpi_op_check_numbers(&inputs[0], 2, "input"));
    if (rope->heads < 1 || inputs[0].size[2] % rope->heads != 0)
        return RP_FAIL(INVALID, "heads is %d; a divisor of the width %lld is wanted",
                       rope->heads, (long long)inputs[0].size[2]);
    int64_t head_size = inputs[0].size[2] / rope->heads;
    int64_t rotary = rope->rotary ? rope->rotary : head_size;
    if (rotary < 2 || rotary % 2 != 0 || rotary > head_size)
        return RP_FAIL(INVALID,
                       "%lld elements of a head of %lld are rotated; an even number of them",
                       (long long)rotary, (long long)head_size);
    if (!(rope->base > 0)) return RP_FAIL(INVALID, "base is %g; above 0 is wanted", rope->base);
    RP_TRY(check_stretch(&rope->stretch));
    if (rope->stretch.yarn && !(rope->base > 1))
        return RP_FAIL(INVALID, "base is %g; above 1 is wanted for YaRN", rope->base);
    RP_TRY(rpi_op_check_pieces(&rope->pieces, inputs[0].size[1]));
    if (rope->pieces.count && input_count > 1)
        return RP_FAIL(INVALID, "tokens that are pieces of a sequence, and a position");
    if (input_count > 1 && inputs[1].dims != 0)
        return RP_FAIL(INVALID, "position is %s; a scalar is wanted",
                       rpi_op_shape_text(&inputs[1], text, sizeof text));
    outputs[0] = inputs[0];
    return RP_OK;
}

/* Of a pair of elements four products and two sums, backward again. */
static void flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    (void)attributes, (void)inputs;
    *out_forward = 3 * rpi_shape_count(&outputs[0]);
    *out_backward = wanted ? *out_forward : 0;
}

static const rpi_rope_attributes halves = {.heads = 2, .base = 10000};
static const rpi_rope_attributes pairs = {.heads = 2, .base = 10000, .pairs = true};
static const rpi_rope_attributes partly = {.heads = 1, .base = 100, .rotary = 6};
static const rpi_rope_attributes pairs_partly = {
    .heads = 1, .base = 100, .rotary = 6, .pairs = true};
static const rpi_rope_attributes slower = {.heads = 2, .base = 100, .stretch = {.factor = 4}};
static const rpi_rope_attributes slower_in_part = {
    .heads = 2, .base = 100, .stretch = {.factor = 4, .low = 1, .high = 2, .original = 12}};
static const rpi_rope_attributes yarn = {
    .heads = 2,
    .base = 100,
    .stretch = {.factor = 4, .low = 1, .high = 4, .original = 40, .yarn = true}};
static const rpi_rope_attributes yarn_exactly = {.heads = 2,
                                                 .base = 100,
                                                 .stretch = {.factor = 4,
                                                             .low = 1,
                                                             .high = 4,
                                                             .original = 40,
                                                             .yarn = true,
                                                             .is_exact = true,
                                                             .attention = 0.7}};

static const rpi_rope_attributes of_pieces = {.heads = 2, .base = 100, .pieces = {6, {1, 4}}};
static const rpi_rope_attributes short_pieces = {
    .heads = 2, .base = 100, .pieces = {6, {0, 5}, .whole = 16}};

static const rpi_op_example examples[] = {
    {.name = "halves", .attributes = &halves, .input_count = 1, .inputs = {{3, {2, 5, 16}}}},
    {.name = "pairs", .attributes = &pairs, .input_count = 1, .inputs = {{3, {2, 5, 16}}}},
    {.name = "a part of a head",
     .attributes = &partly,
     .input_count = 1,
     .inputs = {{3, {1, 4, 11}}}},
    {.name = "pairs of a part",
     .attributes = &pairs_partly,
     .input_count = 1,
     .inputs = {{3, {1, 4, 11}}}},
    {.name = "stretched", .attributes = &slower, .input_count = 1, .inputs = {{3, {2, 5, 16}}}},
    {.name = "low frequencies stretched",
     .attributes = &slower_in_part,
     .input_count = 1,
     .inputs = {{3, {2, 5, 16}}}},
    {.name = "YaRN", .attributes = &yarn, .input_count = 1, .inputs = {{3, {2, 5, 16}}}},
    {.name = "YaRN, between indices",
     .attributes = &yarn_exactly,
     .input_count = 1,
     .inputs = {{3, {2, 5, 16}}}},
    {.name = "pieces of a sequence",
     .attributes = &of_pieces,
     .input_count = 1,
     .inputs = {{3, {2, 6, 16}}}},
    {.name = "pieces that are not full",
     .attributes = &short_pieces,
     .input_count = 1,
     .inputs = {{3, {2, 6, 16}}}},
    {.name = "from a position on",
     .attributes = &halves,
     .input_count = 2,
     .inputs = {{3, {2, 5, 16}}},
     .classes = 100},
};

const rpi_op rpi_op_rope = {
    .name = "rope",
    .summary = "pairs of elements of each head, rotated by their position",
    .attribute_bytes = sizeof(rpi_rope_attributes),
    .input_count = 2,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true},
               {.name = "position", .dtype = RP_I32, .optional = true}},
    .needs_inputs = 2,
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .flops = flops,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .in_place_forward = true,
    .in_place_backward = true,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_rope_at(rpi_graph *graph, const char *name, rpi_value_id input,
                         rpi_value_id position, rpi_rope_attributes attributes) {
    if (attributes.base == 0) attributes.base = 10000;
    return rpi_graph_add(graph, name, &rpi_op_rope, &attributes, 2,
                         (rpi_value_id[]){input, position});
}

rpi_value_id rpi_rope(rpi_graph *graph, const char *name, rpi_value_id input,
                      rpi_rope_attributes attributes) {
    return rpi_rope_at(graph, name, input, RPI_NO_VALUE, attributes);
}
