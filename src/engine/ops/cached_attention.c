/* attention to what earlier runs have seen: of three inputs, and of one that holds all three.
 */
#include "base/status.h"
#include "engine/layers.h"
#include "engine/op.h"

extern const rpi_op rpi_op_cached_attention, rpi_op_cached_self_attention;

enum { WIDEST_HEAD = 256 };

static int64_t kv_heads_of(const rpi_attention_attributes *attention) {
    return attention->kv_heads ? attention->kv_heads : attention->heads;
}

static rp_status check_attributes(const rpi_attention_attributes *attention) {
    int64_t heads = attention->heads, kv_heads = kv_heads_of(attention);
    if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0)
        return RP_FAIL(INVALID, "%lld heads of queries and %lld of keys; a divisor is wanted",
                       (long long)heads, (long long)kv_heads);
    if (!attention->causal)
        return RP_FAIL(INVALID, "it is causal, and is not said to be: what comes later is not "
                                "in the cache yet");
    if (attention->window < 0)
        return RP_FAIL(INVALID, "window is %d; 0 (none) or more", attention->window);
    return RP_OK;
}

static rp_status check_tokens(const rpi_shape *tokens, int64_t parts, const char *what) {
    char text[96];
    if (tokens->dims != 3)
        return RP_FAIL(INVALID, "%s is %s; batch x sequence x width is wanted", what,
                       rpi_op_shape_text(tokens, text, sizeof text));
    RP_TRY(rpi_op_check_numbers(tokens, 2, what));
    if (tokens->size[2] % parts == 0 && tokens->size[2] / parts <= WIDEST_HEAD) return RP_OK;
    return RP_FAIL(INVALID, "%s is %s; %lld heads of at most %d elements are wanted", what,
                   rpi_op_shape_text(tokens, text, sizeof text), (long long)parts,
                   (int)WIDEST_HEAD);
}

/* keys and values are batch x memory x width; the position is a scalar. */
static rp_status check_caches(const rpi_shape *tokens, int64_t width, const rpi_shape *inputs) {
    char a[96], b[96];
    if (inputs[0].dims != 3 || inputs[0].size[0] != tokens->size[0] ||
        inputs[0].size[2] != width || !rpi_shape_equal(&inputs[0], &inputs[1]))
        return RP_FAIL(
            INVALID,
            "key cache is %s, value cache is %s; both batch x memory x %lld, with the "
            "batch of the tokens",
            rpi_op_shape_text(&inputs[0], a, sizeof a),
            rpi_op_shape_text(&inputs[1], b, sizeof b), (long long)width);
    if (inputs[2].dims != 0)
        return RP_FAIL(INVALID, "position is %s; a scalar is wanted",
                       rpi_op_shape_text(&inputs[2], a, sizeof a));
    return RP_OK;
}

static rp_status check_room(const rpi_shape *tokens, const rpi_shape *cache) {
    int64_t length = tokens->size[1], room = cache->size[1];
    if (rpi_dimension_is_named(length) || rpi_dimension_is_named(room) || length <= room)
        return RP_OK;
    return RP_FAIL(INVALID, "%lld tokens; the cache has room for %lld", (long long)length,
                   (long long)room);
}

/* ---- of three inputs ---- */

enum { QUERY, KEY, VALUE, CACHES };

static rp_status check_bound(const void *attributes, int input_count, const rpi_shape *inputs) {
    (void)attributes, (void)input_count;
    return check_room(&inputs[KEY], &inputs[CACHES]);
}

static rp_status infer(const void *attributes, int input_count, const rpi_shape *inputs,
                       rpi_shape *outputs) {
    const rpi_attention_attributes *attention = attributes;
    int64_t kv_heads = attention->heads > 0 ? kv_heads_of(attention) : 1;
    char a[96], b[96];
    RP_TRY(check_attributes(attention));
    RP_TRY(check_tokens(&inputs[QUERY], attention->heads, "query"));
    RP_TRY(check_tokens(&inputs[KEY], kv_heads, "key"));
    if (inputs[KEY].size[0] != inputs[QUERY].size[0] ||
        inputs[KEY].size[1] != inputs[QUERY].size[1] ||
        inputs[KEY].size[2] / kv_heads != inputs[QUERY].size[2] / attention->heads ||
        !rpi_shape_equal(&inputs[KEY], &inputs[VALUE]))
        return RP_FAIL(INVALID,
                       "query is %s, key is %s; keys and values of the same tokens and size of "
                       "heads are wanted",
                       rpi_op_shape_text(&inputs[QUERY], a, sizeof a),
                       rpi_op_shape_text(&inputs[KEY], b, sizeof b));
    RP_TRY(check_caches(&inputs[KEY], inputs[KEY].size[2], &inputs[CACHES]));
    outputs[0] = inputs[QUERY];
    return check_bound(attributes, input_count, inputs);
}

static const rpi_attention_attributes plain = {.heads = 2, .causal = true};
static const rpi_attention_attributes grouped = {.heads = 4, .kv_heads = 2, .causal = true};
static const rpi_attention_attributes near = {.heads = 1, .causal = true, .window = 3};

static const rpi_op_example examples[] = {
    {.name = "one token",
     .attributes = &plain,
     .input_count = 6,
     .inputs = {{3, {2, 1, 8}}, {3, {2, 1, 8}}, {3, {2, 1, 8}}, {3, {2, 9, 8}}, {3, {2, 9, 8}}},
     .classes = 9},
    {.name = "some tokens, grouped queries",
     .attributes = &grouped,
     .input_count = 6,
     .inputs =
         {{3, {1, 3, 12}}, {3, {1, 3, 6}}, {3, {1, 3, 6}}, {3, {1, 80, 6}}, {3, {1, 80, 6}}},
     .classes = 78},
    {.name = "window",
     .attributes = &near,
     .input_count = 6,
     .inputs = {{3, {1, 2, 5}}, {3, {1, 2, 5}}, {3, {1, 2, 5}}, {3, {1, 8, 5}}, {3, {1, 8, 5}}},
     .classes = 7},
};

const rpi_op rpi_op_cached_attention = {
    .name = "cached_attention",
    .summary = "attention of tokens behind those whose keys and values a cache holds",
    .attribute_bytes = sizeof(rpi_attention_attributes),
    .input_count = 6,
    .output_count = 1,
    .inputs = {{.name = "query", .dtype = RP_F32},
               {.name = "key", .dtype = RP_F32},
               {.name = "value", .dtype = RP_F32},
               {.name = "key cache", .dtype = RP_F32, .role = RPI_CACHE},
               {.name = "value cache", .dtype = RP_F32, .role = RPI_CACHE},
               {.name = "position", .dtype = RP_I32}},
    .outputs = {{"output", RP_F32}},
    .infer = infer,
    .check_bound = check_bound,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .examples = examples,
    .example_count = sizeof examples / sizeof examples[0],
};

rpi_value_id rpi_cached_attention(rpi_graph *graph, const char *name, rpi_value_id query,
                                  rpi_value_id key, rpi_value_id value, rpi_cache cache,
                                  rpi_attention_attributes attributes) {
    return rpi_graph_add(
        graph, name, &rpi_op_cached_attention, &attributes, 6,
        (rpi_value_id[]){query, key, value, cache.keys, cache.values, cache.position});
}

/* ---- of one input ---- */

static rp_status check_bound_self(const void *attributes, int input_count,
                                  const rpi_shape *inputs) {
    (void)attributes, (void)input_count;
    return check_room(&inputs[0], &inputs[1]);
}

static rp_status infer_self(const void *attributes, int input_count, const rpi_shape *inputs,
                            rpi_shape *outputs) {
    const rpi_attention_attributes *attention = attributes;
    RP_TRY(check_attributes(attention));
    int64_t parts = attention->heads + 2 * kv_heads_of(attention);
    RP_TRY(check_tokens(&inputs[0], parts, "input"));
    int64_t head_size = inputs[0].size[2] / parts;
    RP_TRY(check_caches(&inputs[0], kv_heads_of(attention) * head_size, &inputs[1]));
    outputs[0] = inputs[0];
    outputs[0].size[2] = attention->heads * head_size;
    return check_bound_self(attributes, input_count, inputs);
}

static const rpi_op_example self_examples[] = {
    {.name = "one token",
     .attributes = &plain,
     .input_count = 4,
     .inputs = {{3, {2, 1, 24}}, {3, {2, 6, 8}}, {3, {2, 6, 8}}},
     .classes = 6},
    {.name = "some tokens, grouped queries",
     .attributes = &grouped,
     .input_count = 4,
     .inputs = {{3, {2, 4, 24}}, {3, {2, 7, 6}}, {3, {2, 7, 6}}},
     .classes = 4},
};

const rpi_op rpi_op_cached_self_attention = {
    .name = "cached_self_attention",
    .summary = "cached attention of queries, keys and values that lie side by side",
    .attribute_bytes = sizeof(rpi_attention_attributes),
    .input_count = 4,
    .output_count = 1,
    .inputs = {{.name = "input", .dtype = RP_F32},
               {.name = "key cache", .dtype = RP_F32, .role = RPI_CACHE},
               {.name = "value cache", .dtype = RP_F32, .role = RPI_CACHE},
               {.name = "position", .dtype = RP_I32}},
    .outputs = {{"output", RP_F32}},
    .infer = infer_self,
    .check_bound = check_bound_self,
    .gradient_from = RPI_GRADIENT_WRITTEN,
    .examples = self_examples,
    .example_count = sizeof self_examples / sizeof self_examples[0],
};

rpi_value_id rpi_cached_self_attention(rpi_graph *graph, const char *name, rpi_value_id input,
                                       rpi_cache cache, rpi_attention_attributes attributes) {
    return rpi_graph_add(graph, name, &rpi_op_cached_self_attention, &attributes, 4,
                         (rpi_value_id[]){input, cache.keys, cache.values, cache.position});
}
