/* What Transformer-XL is made of: tokens behind a memory, rows of sinusoids by distance, and
 * attention that reads them. */
#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_concat_tokens, rpi_op_sinusoids, rpi_op_relative_attention;

enum { WIDEST_HEAD = 256 }; /* what kernels hold of a query */

static bool is_number(int64_t size) {
    return !rpi_dimension_is_named(size);
}

/* batch x sequence x width */
static rp_status check_tokens(const rpi_shape *shape, const char *what) {
    char text[96];
    if (shape->dims == 3) return rpi_op_check_numbers(shape, 2, what);
    return RP_FAIL(INVALID, "%s is %s; batch x sequence x width is wanted", what,
                   rpi_op_shape_text(shape, text, sizeof text));
}

/* ---- concat_tokens ---- */

static rp_status check_length(int64_t length, const rpi_shape *inputs) {
    int64_t memory = inputs[0].size[1], tokens = inputs[1].size[1];
    if (!is_number(length) || !is_number(memory) || !is_number(tokens)) return RP_OK;
    if (length == memory + tokens) return RP_OK;
    return RP_FAIL(INVALID, "%lld tokens behind a memory of %lld are not %lld",
                   (long long)tokens, (long long)memory, (long long)length);
}

static rp_status infer_concat(const void *attributes, int input_count, const rpi_shape *inputs,
                              rpi_shape *outputs) {
    const rpi_concat_tokens_attributes *concat = attributes;
    char a[96], b[96];
    (void)input_count;
    RP_TRY(check_tokens(&inputs[0], "memory"));
    RP_TRY(check_tokens(&inputs[1], "input"));
    if (inputs[0].size[0] != inputs[1].size[0] || inputs[0].size[2] != inputs[1].size[2])
        return RP_FAIL(INVALID, "memory is %s, input is %s; the same batch and width",
                       rpi_op_shape_text(&inputs[0], a, sizeof a),
                       rpi_op_shape_text(&inputs[1], b, sizeof b));
    outputs[0] = inputs[1];
    outputs[0].size[1] = concat->length;
    return check_length(concat->length, inputs);
}

/* A named length is bound to what its name says: the kernel compares it. */
static const rpi_concat_tokens_attributes seven = {.length = 7}, sixty = {.length = 60};

static const rpi_op_example concat_examples[] = {
    {.name = "behind a longer memory",
     .attributes = &seven,
     .input_count = 2,
     .inputs = {{3, {2, 5, 3}}, {3, {2, 2, 3}}}},
    {.name = "wide",
     .attributes = &sixty,
     .input_count = 2,
     .inputs = {{3, {1, 20, 37}}, {3, {1, 40, 37}}}},
};

const rpi_op rpi_op_concat_tokens = {
    .name = "concat_tokens",
    .summary = "the tokens of a memory, then those of the input",
    .attribute_bytes = sizeof(rpi_concat_tokens_attributes),
    .input_count = 2,
    .output_count = 1,
    .inputs = {{.name = "memory", .dtype = RP_F32, .has_gradient = true},
               {.name = "input", .dtype = RP_F32, .has_gradient = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer_concat,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .examples = concat_examples,
    .example_count = sizeof concat_examples / sizeof concat_examples[0],
};

rpi_value_id rpi_concat_tokens(rpi_graph *graph, const char *name, rpi_value_id memory,
                               rpi_value_id input, int64_t length) {
    rpi_concat_tokens_attributes attributes = {.length = length};
    return rpi_graph_add(graph, name, &rpi_op_concat_tokens, &attributes, 2,
                         (rpi_value_id[]){memory, input});
}

/* ---- sinusoids ---- */

static rp_status infer_sinusoids(const void *attributes, int input_count,
                                 const rpi_shape *inputs, rpi_shape *outputs) {
    const rpi_sinusoids_attributes *sinusoids = attributes;
    (void)input_count;
    RP_TRY(check_tokens(&inputs[0], "tokens"));
    if (sinusoids->rows == 0) return RP_FAIL(INVALID, "rows is 0; 1 or more");
    if (inputs[0].size[2] % 2)
        return RP_FAIL(INVALID, "the width is %lld; half are sines, so an even one is wanted",
                       (long long)inputs[0].size[2]);
    if (sinusoids->clamp < 0)
        return RP_FAIL(INVALID, "clamp is %lld; 0 (none) or more", (long long)sinusoids->clamp);
    outputs[0] = (rpi_shape){2, {sinusoids->rows, inputs[0].size[2]}};
    return RP_OK;
}

static const rpi_sinusoids_attributes all_distances = {.rows = 9};
static const rpi_sinusoids_attributes near_distances = {.rows = 11, .clamp = 4};

static const rpi_op_example sinusoids_examples[] = {
    {.name = "all", .attributes = &all_distances, .input_count = 1, .inputs = {{3, {2, 9, 6}}}},
    {.name = "clamped",
     .attributes = &near_distances,
     .input_count = 1,
     .inputs = {{3, {1, 9, 20}}}},
};

const rpi_op rpi_op_sinusoids = {
    .name = "sinusoids",
    .summary = "y[d] = sines, then cosines, of min(d, clamp) 10000^(-2c / width)",
    .attribute_bytes = sizeof(rpi_sinusoids_attributes),
    .input_count = 1,
    .output_count = 1,
    .inputs = {{.name = "tokens", .dtype = RP_F32}},
    .outputs = {{"output", RP_F32}},
    .infer = infer_sinusoids,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .examples = sinusoids_examples,
    .example_count = sizeof sinusoids_examples / sizeof sinusoids_examples[0],
};

rpi_value_id rpi_sinusoids(rpi_graph *graph, const char *name, rpi_value_id tokens,
                           rpi_sinusoids_attributes attributes) {
    return rpi_graph_add(graph, name, &rpi_op_sinusoids, &attributes, 1, &tokens);
}

/* ---- relative_attention ---- */

enum { TOKENS, DISTANCES, CONTENT_BIAS, POSITION_BIAS, REMEMBERED };

static rp_status check_attributes(const rpi_relative_attention_attributes *attention) {
    if (attention->heads < 1)
        return RP_FAIL(INVALID, "heads is %d; 1 or more", attention->heads);
    if (attention->window < 0)
        return RP_FAIL(INVALID, "window is %d; 0 (none) or more", attention->window);
    if (attention->queries == 0) return RP_FAIL(INVALID, "queries is 0; 1 or more");
    if (!(attention->scale >= 0))
        return RP_FAIL(INVALID, "scale is %g; 0 (1 / sqrt of the head's size) or more",
                       (double)attention->scale);
    return rpi_op_check_probability(attention->dropout, "dropout");
}

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    const rpi_relative_attention_attributes *attention = attributes;
    const int64_t *tokens = inputs[TOKENS].size;
    char text[96];
    RP_TRY(check_attributes(attention));
    RP_TRY(check_tokens(&inputs[TOKENS], "input"));
    int64_t parts = 3 * (int64_t)attention->heads, head = tokens[2] / parts;
    if (tokens[2] % parts || head > WIDEST_HEAD)
        return RP_FAIL(INVALID,
                       "input is %s; queries, keys and values of %d heads of at most %d "
                       "elements are wanted",
                       rpi_op_shape_text(&inputs[TOKENS], text, sizeof text), attention->heads,
                       (int)WIDEST_HEAD);
    rpi_shape rows = {2, {tokens[1], tokens[2] / 3}}, bias = {2, {attention->heads, head}};
    RP_TRY(rpi_op_check_shape(&inputs[DISTANCES], &rows, "distances"));
    RP_TRY(rpi_op_check_shape(&inputs[CONTENT_BIAS], &bias, "content bias"));
    RP_TRY(rpi_op_check_shape(&inputs[POSITION_BIAS], &bias, "position bias"));
    if (input_count > REMEMBERED)
        RP_TRY(rpi_op_check_shape(&inputs[REMEMBERED], &(rpi_shape){0}, "remembered"));
    if (is_number(attention->queries) && is_number(tokens[1]) && attention->queries > tokens[1])
        return RP_FAIL(INVALID, "%lld queries among %lld tokens; they are the last of them",
                       (long long)attention->queries, (long long)tokens[1]);
    outputs[0] = (rpi_shape){3, {tokens[0], attention->queries, tokens[2] / 3}};
    return RP_OK;
}

static int64_t count_pairs(int64_t queries, int64_t keys, int64_t window) {
    int64_t pairs = 0;
    for (int64_t at = keys - queries; at < keys; at++)
        pairs += window && window < at + 1 ? window : at + 1;
    return pairs;
}

/* Three products forward: by content, by distance, and of values; six backward. */
static void flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    const rpi_relative_attention_attributes *attention = attributes;
    const int64_t *size = outputs[0].size;
    int64_t pairs = count_pairs(size[1], inputs[TOKENS].size[1], attention->window);
    *out_forward = 6 * size[0] * size[2] * pairs;
    *out_backward = wanted ? 2 * *out_forward : 0;
}

/* log of the sum of exponentials of each query and head, f32. */
static size_t saved_bytes(const void *attributes, const rpi_shape *inputs,
                          const rpi_shape *outputs) {
    const rpi_relative_attention_attributes *attention = attributes;
    (void)inputs;
    return sizeof(float) * (size_t)(outputs[0].size[0] * outputs[0].size[1] * attention->heads);
}

static const rpi_relative_attention_attributes three = {.heads = 2, .queries = 3};
static const rpi_relative_attention_attributes five = {.heads = 2, .queries = 5};
static const rpi_relative_attention_attributes near = {.heads = 1, .queries = 6, .window = 3};
static const rpi_relative_attention_attributes dropping = {
    .heads = 2, .queries = 3, .dropout = 0.4f};
static const rpi_relative_attention_attributes many = {
    .heads = 1, .queries = 70, .scale = 2e-3f};

static const rpi_op_example examples[] = {
    {.name = "behind a memory",
     .attributes = &three,
     .input_count = 4,
     .inputs = {{3, {2, 7, 24}}, {2, {7, 8}}, {2, {2, 4}}, {2, {2, 4}}}},
    {.name = "without memory",
     .attributes = &five,
     .input_count = 4,
     .inputs = {{3, {2, 5, 18}}, {2, {5, 6}}, {2, {2, 3}}, {2, {2, 3}}}},
    {.name = "memory not yet full",
     .attributes = &three,
     .input_count = 5,
     .inputs = {{3, {2, 8, 24}}, {2, {8, 8}}, {2, {2, 4}}, {2, {2, 4}}, {0}},
     .classes = 6},
    {.name = "window",
     .attributes = &near,
     .input_count = 4,
     .inputs = {{3, {1, 8, 15}}, {2, {8, 5}}, {2, {1, 5}}, {2, {1, 5}}}},
    {.name = "dropout",
     .attributes = &dropping,
     .input_count = 4,
     .inputs = {{3, {2, 7, 24}}, {2, {7, 8}}, {2, {2, 4}}, {2, {2, 4}}}},
    {.name = "long",
     .attributes = &many,
     .input_count = 4,
     .inputs = {{3, {1, 100, 60}}, {2, {100, 20}}, {2, {1, 20}}, {2, {1, 20}}}},
};

const rpi_op rpi_op_relative_attention = {
    .name = "relative_attention",
    .summary = "y = softmax(scale ((q + u) k^T + (q + v) r^T by distance)) v, head by head",
    .attribute_bytes = sizeof(rpi_relative_attention_attributes),
    .input_count = 5,
    .output_count = 1,
    .inputs =
        {{.name = "input", .dtype = RP_F32, .has_gradient = true},
         {.name = "distances", .dtype = RP_F32, .has_gradient = true},
         {.name = "content bias", .dtype = RP_F32, .role = RPI_WEIGHT, .has_gradient = true},
         {.name = "position bias", .dtype = RP_F32, .role = RPI_WEIGHT, .has_gradient = true},
         {.name = "remembered", .dtype = RP_I32, .optional = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .flops = flops,
    .needs_inputs = 31,
    .needs_outputs = 1,
    .saved_bytes = saved_bytes,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_relative_attention(rpi_graph *graph, const char *name, rpi_value_id input,
                                    rpi_value_id distances, rpi_value_id content_bias,
                                    rpi_value_id position_bias, rpi_value_id remembered,
                                    rpi_relative_attention_attributes attributes) {
    return rpi_graph_add(
        graph, name, &rpi_op_relative_attention, &attributes, 5,
        (rpi_value_id[]){input, distances, content_bias, position_bias, remembered});
}
