/* attention of three inputs, and self_attention of one that holds all three. */
#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_attention, rpi_op_self_attention;

enum { WIDEST_HEAD = 256 }; /* what kernels hold of a query */
enum { EVEN = 2 };          /* a length that is looked at later */

static int64_t kv_heads_of(const rpi_attention_attributes *attention) {
    return attention->kv_heads ? attention->kv_heads : attention->heads;
}

static rp_status check_attributes(const rpi_attention_attributes *attention) {
    int64_t heads = attention->heads, kv_heads = kv_heads_of(attention);
    if (heads < 1) return RP_FAIL(INVALID, "heads is %lld; 1 or more", (long long)heads);
    if (kv_heads < 1 || heads % kv_heads != 0)
        return RP_FAIL(INVALID, "kv_heads is %lld; a divisor of the %lld heads is wanted",
                       (long long)kv_heads, (long long)heads);
    int64_t first = attention->first_head, whole = attention->whole_heads;
    if (first < 0 || (whole ? first + heads > whole : first > 0))
        return RP_FAIL(INVALID, "heads from %lld on of %lld", (long long)first,
                       (long long)whole);
    if (attention->window < 0)
        return RP_FAIL(INVALID, "window is %d; 0 (none) or more", attention->window);
    if (!(attention->scale >= 0))
        return RP_FAIL(INVALID, "scale is %g; 0 (1 / sqrt of the head's size) or more",
                       (double)attention->scale);
    rpi_token_pieces pieces = attention->pieces;
    if (pieces.count) pieces.whole = 0; /* looked at with the length */
    RP_TRY(rpi_op_check_pieces(&pieces, EVEN));
    return rpi_op_check_probability(attention->dropout, "dropout");
}

/* batch x sequence x (heads * size), the last a number. */
static rp_status check_heads(const rpi_shape *shape, int64_t heads, const char *what) {
    char text[96];
    if (shape->dims != 3)
        return RP_FAIL(INVALID, "%s is %s; batch x sequence x width is wanted", what,
                       rpi_op_shape_text(shape, text, sizeof text));
    RP_TRY(rpi_op_check_numbers(shape, 2, what));
    if (shape->size[2] % heads != 0 || shape->size[2] / heads > WIDEST_HEAD)
        return RP_FAIL(INVALID, "%s is %s; %lld heads of at most %d elements are wanted", what,
                       rpi_op_shape_text(shape, text, sizeof text), (long long)heads,
                       (int)WIDEST_HEAD);
    return RP_OK;
}

static rp_status check_documents(const rpi_shape *documents, const rpi_shape *tokens) {
    char text[96], other[96];
    rpi_shape wanted = {2, {tokens->size[0], tokens->size[1]}};
    if (rpi_shape_equal(documents, &wanted)) return RP_OK;
    return RP_FAIL(INVALID, "documents are %s; %s is wanted",
                   rpi_op_shape_text(documents, text, sizeof text),
                   rpi_op_shape_text(&wanted, other, sizeof other));
}

/* ---- of three inputs ---- */

/* All keys of the sequence of which the queries are pieces. */
static rp_status check_pieces(const rpi_token_pieces *pieces, int64_t queries, int64_t keys) {
    RP_TRY(rpi_op_check_pieces(pieces, queries));
    if (keys == rpi_token_filled(pieces, queries)) return RP_OK;
    return RP_FAIL(INVALID,
                   "%lld keys; the sequence of which %lld queries are 2 of %lld "
                   "pieces has %lld",
                   (long long)keys, (long long)queries, (long long)pieces->count,
                   (long long)rpi_token_filled(pieces, queries));
}

static rp_status check_bound(const void *attributes, int input_count, const rpi_shape *inputs) {
    const rpi_attention_attributes *attention = attributes;
    int64_t queries = inputs[0].size[1], keys = inputs[1].size[1];
    if (attention->pieces.count) return check_pieces(&attention->pieces, queries, keys);
    bool aligned = attention->causal || attention->window > 0;
    if (aligned && keys < queries)
        return RP_FAIL(INVALID,
                       "%lld queries and %lld keys; the queries are the last of the keys, so "
                       "that there are at least as many keys",
                       (long long)queries, (long long)keys);
    if (input_count > 3 && keys != queries)
        return RP_FAIL(INVALID, "%lld queries and %lld keys; with documents they are as many",
                       (long long)queries, (long long)keys);
    return RP_OK;
}

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    const rpi_attention_attributes *attention = attributes;
    const rpi_shape *query = &inputs[0], *key = &inputs[1], *value = &inputs[2];
    char a[96], b[96];
    RP_TRY(check_attributes(attention));
    RP_TRY(check_heads(query, attention->heads, "query"));
    RP_TRY(check_heads(key, kv_heads_of(attention), "key"));
    if (key->size[0] != query->size[0] ||
        key->size[2] / kv_heads_of(attention) != query->size[2] / attention->heads)
        return RP_FAIL(INVALID, "query is %s, key is %s; the same batch and size of heads",
                       rpi_op_shape_text(query, a, sizeof a),
                       rpi_op_shape_text(key, b, sizeof b));
    if (!rpi_shape_equal(key, value))
        return RP_FAIL(INVALID, "key is %s, value is %s; equal shapes are wanted",
                       rpi_op_shape_text(key, a, sizeof a),
                       rpi_op_shape_text(value, b, sizeof b));
    if (input_count > 3) RP_TRY(check_documents(&inputs[3], key));
    outputs[0] = *query;
    bool is_named =
        rpi_dimension_is_named(query->size[1]) || rpi_dimension_is_named(key->size[1]);
    return is_named ? RP_OK : check_bound(attributes, input_count, inputs);
}

/* Pairs of a query and a key that it sees, documents left aside. */
static int64_t count_pairs(const rpi_attention_attributes *attention, int64_t queries,
                           int64_t keys) {
    int64_t pairs = 0, seen = attention->pieces.whole ? attention->pieces.whole : keys;
    for (int64_t i = 0; i < queries; i++) {
        int64_t at = i + keys - queries, first = 0, last = seen;
        if (attention->pieces.count) at = rpi_token_place(&attention->pieces, queries, i);
        if (attention->causal && at + 1 < last) last = at + 1;
        if (attention->window && at + attention->window < last) last = at + attention->window;
        if (attention->window && at - attention->window + 1 > first)
            first = at - attention->window + 1;
        pairs += last - first;
    }
    return pairs;
}

/* Two products forward, four backward; what backward makes again is not counted. */
static void count_flops(const void *attributes, const rpi_shape *queries, int64_t keys,
                        int64_t width, uint32_t wanted, int64_t *out_forward,
                        int64_t *out_backward) {
    *out_forward =
        4 * queries->size[0] * width * count_pairs(attributes, queries->size[1], keys);
    *out_backward = wanted ? 2 * *out_forward : 0;
}

static void flops(const void *attributes, const rpi_shape *inputs, const rpi_shape *outputs,
                  uint32_t wanted, int64_t *out_forward, int64_t *out_backward) {
    count_flops(attributes, &outputs[0], inputs[1].size[1], outputs[0].size[2], wanted,
                out_forward, out_backward);
}

/* log of the sum of exponentials of each query and head, f32. */
static size_t saved_bytes(const void *attributes, const rpi_shape *inputs,
                          const rpi_shape *outputs) {
    const rpi_attention_attributes *attention = attributes;
    (void)inputs;
    return sizeof(float) * (size_t)(outputs[0].size[0] * outputs[0].size[1] * attention->heads);
}

static const rpi_attention_attributes causal = {.heads = 2, .causal = true};
static const rpi_attention_attributes both_ways = {.heads = 2};
static const rpi_attention_attributes grouped = {.heads = 4, .kv_heads = 2, .causal = true};
static const rpi_attention_attributes near = {.heads = 1, .causal = true, .window = 3};
static const rpi_attention_attributes near_both_ways = {.heads = 2, .window = 2, .scale = 0.5f};
static const rpi_attention_attributes dropping = {.heads = 2, .causal = true, .dropout = 0.3f};
static const rpi_attention_attributes pieces = {
    .heads = 4, .kv_heads = 2, .causal = true, .pieces = {4, {1, 2}}};
static const rpi_attention_attributes dropping_pieces = {
    .heads = 2, .causal = true, .dropout = 0.3f, .pieces = {4, {0, 3}}};
static const rpi_attention_attributes near_pieces = {
    .heads = 1, .causal = true, .window = 3, .pieces = {6, {1, 4}}};
static const rpi_attention_attributes pieces_both_ways = {.heads = 2, .pieces = {2, {0, 1}}};
static const rpi_attention_attributes middle_pieces = {.heads = 2, .pieces = {6, {1, 4}}};
static const rpi_attention_attributes padded_pieces = {
    .heads = 2, .dropout = 0.3f, .pieces = {4, {0, 3}, .whole = 10}};
static const rpi_attention_attributes long_pieces = {
    .heads = 1, .causal = true, .scale = 2e-3f, .dropout = 0.1f, .pieces = {4, {0, 3}}};
/* Elements of a long example are large. */
static const rpi_attention_attributes one_head = {.heads = 1, .causal = true, .scale = 2e-3f};

static const rpi_op_example examples[] = {
    {.name = "causal",
     .attributes = &causal,
     .input_count = 3,
     .inputs = {{3, {2, 5, 8}}, {3, {2, 5, 8}}, {3, {2, 5, 8}}}},
    {.name = "both ways",
     .attributes = &both_ways,
     .input_count = 3,
     .inputs = {{3, {2, 4, 6}}, {3, {2, 7, 6}}, {3, {2, 7, 6}}}},
    {.name = "grouped queries",
     .attributes = &grouped,
     .input_count = 3,
     .inputs = {{3, {2, 4, 12}}, {3, {2, 4, 6}}, {3, {2, 4, 6}}}},
    {.name = "window",
     .attributes = &near,
     .input_count = 3,
     .inputs = {{3, {1, 7, 5}}, {3, {1, 7, 5}}, {3, {1, 7, 5}}}},
    {.name = "window both ways",
     .attributes = &near_both_ways,
     .input_count = 3,
     .inputs = {{3, {1, 6, 8}}, {3, {1, 6, 8}}, {3, {1, 6, 8}}}},
    {.name = "keys of before",
     .attributes = &causal,
     .input_count = 3,
     .inputs = {{3, {1, 3, 8}}, {3, {1, 5, 8}}, {3, {1, 5, 8}}}},
    {.name = "documents",
     .attributes = &causal,
     .input_count = 4,
     .inputs = {{3, {2, 9, 6}}, {3, {2, 9, 6}}, {3, {2, 9, 6}}, {2, {2, 9}}},
     .classes = 2},
    {.name = "dropout",
     .attributes = &dropping,
     .input_count = 3,
     .inputs = {{3, {2, 5, 8}}, {3, {2, 7, 8}}, {3, {2, 7, 8}}}},
    {.name = "long",
     .attributes = &one_head,
     .input_count = 3,
     .inputs = {{3, {1, 70, 20}}, {3, {1, 70, 20}}, {3, {1, 70, 20}}}},
    {.name = "pieces, grouped queries",
     .attributes = &pieces,
     .input_count = 3,
     .inputs = {{3, {2, 4, 12}}, {3, {2, 8, 6}}, {3, {2, 8, 6}}}},
    {.name = "pieces of odd length, dropout",
     .attributes = &dropping_pieces,
     .input_count = 3,
     .inputs = {{3, {2, 6, 8}}, {3, {2, 12, 8}}, {3, {2, 12, 8}}}},
    {.name = "pieces, window",
     .attributes = &near_pieces,
     .input_count = 3,
     .inputs = {{3, {1, 4, 5}}, {3, {1, 12, 5}}, {3, {1, 12, 5}}}},
    {.name = "all pieces, both ways",
     .attributes = &pieces_both_ways,
     .input_count = 3,
     .inputs = {{3, {2, 4, 6}}, {3, {2, 4, 6}}, {3, {2, 4, 6}}}},
    {.name = "pieces, documents",
     .attributes = &middle_pieces,
     .input_count = 4,
     .inputs = {{3, {2, 6, 6}}, {3, {2, 18, 6}}, {3, {2, 18, 6}}, {2, {2, 18}}},
     .classes = 2},
    {.name = "padded pieces, documents, dropout",
     .attributes = &padded_pieces,
     .input_count = 4,
     .inputs = {{3, {2, 6, 8}}, {3, {2, 12, 8}}, {3, {2, 12, 8}}, {2, {2, 12}}},
     .classes = 2},
    {.name = "long pieces",
     .attributes = &long_pieces,
     .input_count = 3,
     .inputs = {{3, {1, 70, 20}}, {3, {1, 140, 20}}, {3, {1, 140, 20}}}},
};

const rpi_op rpi_op_attention = {
    .name = "attention",
    .summary = "y = softmax(scale q k^T + mask) v, head by head",
    .attribute_bytes = sizeof(rpi_attention_attributes),
    .input_count = 4,
    .output_count = 1,
    .inputs = {{.name = "query", .dtype = RP_F32, .has_gradient = true},
               {.name = "key", .dtype = RP_F32, .has_gradient = true},
               {.name = "value", .dtype = RP_F32, .has_gradient = true},
               {.name = "documents", .dtype = RP_I32, .optional = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .check_bound = check_bound,
    .flops = flops,
    .needs_inputs = 15,
    .needs_outputs = 1,
    .saved_bytes = saved_bytes,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_attention(rpi_graph *graph, const char *name, rpi_value_id query,
                           rpi_value_id key, rpi_value_id value, rpi_value_id documents,
                           rpi_attention_attributes attributes) {
    return rpi_graph_add(graph, name, &rpi_op_attention, &attributes, 4,
                         (rpi_value_id[]){query, key, value, documents});
}

/* ---- of one input ---- */

static rp_status infer_self(const void *attributes, int input_count, const rpi_shape *inputs,
                            rpi_shape *outputs) {
    const rpi_attention_attributes *attention = attributes;
    RP_TRY(check_attributes(attention));
    if (attention->pieces.count)
        return RP_FAIL(INVALID, "queries that are pieces of a sequence lie side by side with "
                                "keys of these alone; attention takes them as three inputs");
    int64_t parts = attention->heads + 2 * kv_heads_of(attention);
    RP_TRY(check_heads(&inputs[0], parts, "input"));
    if (input_count > 1) RP_TRY(check_documents(&inputs[1], &inputs[0]));
    outputs[0] = inputs[0];
    outputs[0].size[2] = inputs[0].size[2] / parts * attention->heads;
    return RP_OK;
}

static void flops_of_self(const void *attributes, const rpi_shape *inputs,
                          const rpi_shape *outputs, uint32_t wanted, int64_t *out_forward,
                          int64_t *out_backward) {
    count_flops(attributes, &outputs[0], inputs[0].size[1], outputs[0].size[2], wanted,
                out_forward, out_backward);
}

static const rpi_op_example self_examples[] = {
    {.name = "causal", .attributes = &causal, .input_count = 1, .inputs = {{3, {2, 5, 24}}}},
    {.name = "grouped queries",
     .attributes = &grouped,
     .input_count = 1,
     .inputs = {{3, {2, 4, 24}}}},
    {.name = "documents",
     .attributes = &both_ways,
     .input_count = 2,
     .inputs = {{3, {2, 9, 18}}, {2, {2, 9}}},
     .classes = 2},
    {.name = "dropout", .attributes = &dropping, .input_count = 1, .inputs = {{3, {2, 5, 24}}}},
};

const rpi_op rpi_op_self_attention = {
    .name = "self_attention",
    .summary = "attention of queries, keys and values that lie side by side",
    .attribute_bytes = sizeof(rpi_attention_attributes),
    .input_count = 2,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32, .has_gradient = true},
               {.name = "documents", .dtype = RP_I32, .optional = true}},
    .outputs = {{"output", RP_F32}},
    .infer = infer_self,
    .flops = flops_of_self,
    .needs_inputs = 3,
    .needs_outputs = 1,
    .saved_bytes = saved_bytes,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .examples = self_examples,
    .example_count = sizeof self_examples / sizeof self_examples[0],
};

rpi_value_id rpi_self_attention(rpi_graph *graph, const char *name, rpi_value_id input,
                                rpi_value_id documents, rpi_attention_attributes attributes) {
    return rpi_graph_add(graph, name, &rpi_op_self_attention, &attributes, 2,
                         (rpi_value_id[]){input, documents});
}
