#include "train/models/blocks.h"

#include "base/status.h"
#include <math.h>
#include <stdio.h>

enum { LONGEST_NAME = 128 };

/* "layer1.conv1" and "weight" to "layer1.conv1.weight". */
static const char *join(char text[LONGEST_NAME], const char *name, const char *part) {
    snprintf(text, LONGEST_NAME, "%s.%s", name, part);
    return text;
}

static rpi_value_id declare_vector(rpi_builder *builder, const char *name, const char *part,
                                   int64_t count, rpi_init_rule init, bool is_state) {
    char text[LONGEST_NAME];
    return rpi_declare(builder, (rpi_parameter){.name = join(text, name, part),
                                                .shape = {1, {count}},
                                                .is_state = is_state,
                                                .decay_group = RPI_DECAY_VECTOR,
                                                .init = init});
}

/* Of a norm of x. */
static rpi_value_id declare_norm(rpi_builder *builder, const char *name, const char *part,
                                 int64_t width, rpi_init_rule init, rpi_value_id x) {
    char text[LONGEST_NAME];
    return rpi_declare(builder, (rpi_parameter){.name = join(text, name, part),
                                                .shape = {1, {width}},
                                                .decay_group = RPI_DECAY_VECTOR,
                                                .init = init,
                                                .adds = rpi_block_is_part(builder, x)});
}

static rpi_value_id declare_filters(rpi_builder *builder, const char *name, int in, int out,
                                    int kernel) {
    char text[LONGEST_NAME];
    return rpi_declare(builder,
                       (rpi_parameter){.name = join(text, name, "weight"),
                                       .shape = {4, {out, in, kernel, kernel}},
                                       .decay_group = RPI_DECAY_WEIGHT,
                                       .init = RPI_INIT_NORMAL,
                                       .spread = sqrt(2.0 / ((double)out * kernel * kernel))});
}

rpi_value_id rpi_block_conv(rpi_builder *builder, const char *name, rpi_value_id x, int in,
                            int out, int kernel, int stride) {
    rpi_value_id weight = declare_filters(builder, name, in, out, kernel);
    rpi_conv2d_attributes attributes = {.stride = stride, .padding = kernel / 2};
    return rpi_conv2d(builder->graph, name, x, weight, RPI_NO_VALUE, attributes);
}

rpi_value_id rpi_block_biased_conv(rpi_builder *builder, const char *name, rpi_value_id x,
                                   int in, int out, int kernel, int stride) {
    rpi_value_id weight = declare_filters(builder, name, in, out, kernel);
    rpi_value_id bias = declare_vector(builder, name, "bias", out, RPI_INIT_ZEROS, false);
    rpi_conv2d_attributes attributes = {.stride = stride, .padding = kernel / 2};
    return rpi_conv2d(builder->graph, name, x, weight, bias, attributes);
}

rpi_value_id rpi_block_batch_norm(rpi_builder *builder, const char *name, rpi_value_id x,
                                  int channels, rpi_init_rule init) {
    rpi_value_id scale = declare_vector(builder, name, "weight", channels, init, false);
    rpi_value_id shift = declare_vector(builder, name, "bias", channels, RPI_INIT_ZEROS, false);
    rpi_value_id mean =
        declare_vector(builder, name, "running_mean", channels, RPI_INIT_ZEROS, true);
    rpi_value_id variance =
        declare_vector(builder, name, "running_var", channels, RPI_INIT_ONES, true);
    return rpi_batch_norm2d(builder->graph, name, x, scale, shift, mean, variance,
                            (rpi_batch_norm2d_attributes){0});
}

rpi_value_id rpi_block_group_norm(rpi_builder *builder, const char *name, rpi_value_id x,
                                  int channels, int groups, rpi_init_rule init) {
    rpi_value_id scale = declare_vector(builder, name, "weight", channels, init, false);
    rpi_value_id shift = declare_vector(builder, name, "bias", channels, RPI_INIT_ZEROS, false);
    return rpi_group_norm(builder->graph, name, x, scale, shift,
                          (rpi_group_norm_attributes){.groups = groups});
}

rpi_value_id rpi_block_layer_norm(rpi_builder *builder, const char *name, rpi_value_id x,
                                  int width, float epsilon) {
    rpi_value_id scale = declare_norm(builder, name, "weight", width, RPI_INIT_ONES, x);
    rpi_value_id shift = declare_norm(builder, name, "bias", width, RPI_INIT_ZEROS, x);
    return rpi_layer_norm(builder->graph, name, x, scale, shift,
                          (rpi_norm_attributes){.epsilon = epsilon});
}

rpi_value_id rpi_block_rms_norm(rpi_builder *builder, const char *name, rpi_value_id x,
                                int64_t width, float epsilon) {
    rpi_value_id scale = declare_norm(builder, name, "weight", width, RPI_INIT_ONES, x);
    return rpi_rms_norm(builder->graph, name, x, scale,
                        (rpi_norm_attributes){.epsilon = epsilon});
}

rpi_value_id rpi_block_table(rpi_builder *builder, const char *name, int64_t rows,
                             int64_t width, double spread) {
    return rpi_declare(builder, (rpi_parameter){.name = name,
                                                .shape = {2, {rows, width}},
                                                .decay_group = RPI_DECAY_WEIGHT,
                                                .init = RPI_INIT_NORMAL,
                                                .spread = spread,
                                                .adds = rpi_block_cuts_tokens(builder)});
}

rpi_value_id rpi_block_projection(rpi_builder *builder, const char *name, rpi_value_id x,
                                  int64_t in, int64_t out, double spread) {
    const rpi_linear_layer layer = {.in = in, .out = out, .weight = {RPI_INIT_NORMAL, spread}};
    return rpi_block_linear_layer(builder, name, x, &layer);
}

rpi_value_id rpi_block_normal_linear(rpi_builder *builder, const char *name, rpi_value_id x,
                                     int in, int out, double spread) {
    const rpi_linear_layer layer = {
        .in = in, .out = out, .weight = {RPI_INIT_NORMAL, spread}, .has_bias = true};
    return rpi_block_linear_layer(builder, name, x, &layer);
}

rpi_value_id rpi_block_linear(rpi_builder *builder, const char *name, rpi_value_id x, int in,
                              int out) {
    char text[LONGEST_NAME];
    double bound = 1.0 / sqrt((double)in);
    rpi_value_id weight =
        rpi_declare(builder, (rpi_parameter){.name = join(text, name, "weight"),
                                             .shape = {2, {out, in}},
                                             .decay_group = RPI_DECAY_WEIGHT,
                                             .init = RPI_INIT_UNIFORM,
                                             .spread = bound});
    rpi_value_id bias = rpi_declare(builder, (rpi_parameter){.name = join(text, name, "bias"),
                                                             .shape = {1, {out}},
                                                             .decay_group = RPI_DECAY_VECTOR,
                                                             .init = RPI_INIT_UNIFORM,
                                                             .spread = bound});
    return rpi_linear(builder->graph, name, x, weight, bias);
}

/* ---- decoders ---- */

static rpi_value_id add_cache(rpi_builder *builder, const char *name, const char *part,
                              rpi_shape shape) {
    char text[LONGEST_NAME];
    return rpi_graph_input(builder->graph, join(text, name, part), RP_F32, shape);
}

/* Room for keys and values of `width`, in a batch as large as that of x. */
static rpi_cache add_caches(rpi_builder *builder, const char *name, rpi_value_id x,
                            int64_t width) {
    int64_t memory = rpi_graph_dimension(builder->graph, "memory");
    int64_t batch = rpi_graph_value(builder->graph, x)->shape.size[0];
    rpi_shape shape = {3, {batch, memory, width}};
    return (rpi_cache){.keys = add_cache(builder, name, "keys", shape),
                       .values = add_cache(builder, name, "values", shape),
                       .position = builder->position};
}

static bool is_failed(const rpi_builder *builder, rpi_value_id x) {
    return x == RPI_NO_VALUE || rpi_graph_check(builder->graph) != RP_OK;
}

static int64_t width_of(const rpi_builder *builder, rpi_value_id x) {
    const rpi_shape *shape = &rpi_graph_value(builder->graph, x)->shape;
    return shape->size[shape->dims - 1];
}

rpi_value_id rpi_block_dropout(rpi_builder *builder, const char *name, rpi_value_id x,
                               double probability) {
    if (probability == 0 || builder->is_decoder) return x;
    return rpi_dropout_of(builder->graph, name, x,
                          (rpi_dropout_attributes){.probability = (float)probability,
                                                   .pieces = rpi_block_pieces(builder, x)});
}

rpi_value_id rpi_block_inner_dropout(rpi_builder *builder, const char *name, rpi_value_id x,
                                     double probability, int64_t whole) {
    rpi_dropout_attributes attributes = {
        .probability = (float)probability,
        .whole = whole,
        .pieces = rpi_context_pieces(&builder->split.context, builder->whole_sequence)};
    int64_t end;
    if (probability == 0 || builder->is_decoder || !rpi_tensor_is_split(&builder->split))
        return rpi_block_dropout(builder, name, x, probability);
    rpi_tensor_split_range(&builder->split, whole, &attributes.first, &end);
    return rpi_dropout_of(builder->graph, name, x, attributes);
}

/* What one node gathers in front of attention, and of what. */
typedef struct gathered {
    rpi_context_gather gather;
    rpi_value_id inputs[RPI_CONTEXT_PARTS];
    rpi_value_id query, documents; /* query: where it does not lie beside the keys */
} gathered;

/* Queries of this rank's tokens, keys and values of all: the last two outputs of the node. */
static rpi_value_id attend_gathered(rpi_builder *builder, const char *name, const gathered *it,
                                    rpi_attention_attributes attributes) {
    char text[LONGEST_NAME];
    rpi_graph *graph = builder->graph;
    const rpi_context_split *context = &builder->split.context;
    rpi_value_id first = rpi_context_gather_node(graph, context, join(text, name, "gather"),
                                                 &it->gather, it->inputs);
    if (is_failed(builder, first)) return RPI_NO_VALUE;
    if (it->gather.keys > builder->gathered_keys) builder->gathered_keys = it->gather.keys;
    int keys = it->gather.queries ? 1 : 0;
    attributes.pieces = rpi_context_pieces(context, builder->whole_sequence);
    return rpi_attention(graph, name, it->gather.queries ? first : it->query,
                         rpi_graph_output(graph, first, keys),
                         rpi_graph_output(graph, first, keys + 1), it->documents, attributes);
}

rpi_value_id rpi_block_attention(rpi_builder *builder, const char *name, rpi_value_id query,
                                 rpi_value_id key, rpi_value_id value, rpi_value_id documents,
                                 rpi_attention_attributes attributes) {
    if (rpi_context_is_split(&builder->split.context) && !is_failed(builder, key))
        return attend_gathered(builder, name,
                               &(gathered){.gather = {.keys = width_of(builder, key)},
                                           .inputs = {key, value},
                                           .query = query,
                                           .documents = documents},
                               attributes);
    if (!builder->is_decoder || is_failed(builder, key))
        return rpi_attention(builder->graph, name, query, key, value, documents, attributes);
    rpi_cache cache = add_caches(builder, name, key, width_of(builder, key));
    return rpi_cached_attention(builder->graph, name, query, key, value, cache, attributes);
}

rpi_value_id rpi_block_self_attention(rpi_builder *builder, const char *name, rpi_value_id x,
                                      rpi_attention_attributes attributes) {
    bool is_split = rpi_context_is_split(&builder->split.context);
    if ((!is_split && !builder->is_decoder) || is_failed(builder, x))
        return rpi_self_attention(builder->graph, name, x, RPI_NO_VALUE, attributes);
    int64_t kv_heads = attributes.kv_heads ? attributes.kv_heads : attributes.heads;
    int64_t head_size = width_of(builder, x) / (attributes.heads + 2 * kv_heads);
    if (is_split)
        return attend_gathered(builder, name,
                               &(gathered){.gather = {.queries = attributes.heads * head_size,
                                                      .keys = kv_heads * head_size},
                                           .inputs = {x},
                                           .query = RPI_NO_VALUE,
                                           .documents = RPI_NO_VALUE},
                               attributes);
    rpi_cache cache = add_caches(builder, name, x, kv_heads * head_size);
    return rpi_cached_self_attention(builder->graph, name, x, cache, attributes);
}

static rpi_value_id position_of(const rpi_builder *builder) {
    return builder->is_decoder ? builder->position : RPI_NO_VALUE;
}

rpi_value_id rpi_block_head_norm(rpi_builder *builder, const char *name, rpi_value_id x,
                                 int64_t heads, float epsilon) {
    if (is_failed(builder, x)) return RPI_NO_VALUE;
    char text[LONGEST_NAME];
    rpi_graph *graph = builder->graph;
    const rpi_shape whole = rpi_graph_value(graph, x)->shape;
    int64_t head = whole.size[2] / heads;
    rpi_shape parts = {4, {whole.size[0], whole.size[1], heads, head}};
    x = rpi_reshape(graph, join(text, name, "heads"), x, parts);
    rpi_value_id scale =
        rpi_declare(builder, (rpi_parameter){.name = join(text, name, "weight"),
                                             .shape = {1, {head}},
                                             .decay_group = RPI_DECAY_VECTOR,
                                             .init = RPI_INIT_ONES,
                                             .adds = rpi_tensor_is_split(&builder->split)});
    x = rpi_rms_norm(graph, name, x, scale, (rpi_norm_attributes){.epsilon = epsilon});
    return rpi_reshape(graph, join(text, name, "whole"), x, whole);
}

rpi_value_id rpi_block_rope(rpi_builder *builder, const char *name, rpi_value_id x,
                            rpi_rope_attributes attributes) {
    attributes.pieces = rpi_context_pieces(&builder->split.context, builder->whole_sequence);
    return rpi_rope_at(builder->graph, name, x, position_of(builder), attributes);
}

rpi_value_id rpi_block_positions(rpi_builder *builder, const char *name, rpi_value_id x,
                                 rpi_value_id table) {
    const rpi_position_attributes attributes = {.pieces = rpi_block_pieces(builder, x)};
    if (rpi_token_is_cut(&attributes.pieces))
        return rpi_position_embedding_of(builder->graph, name, x, table, attributes);
    return rpi_position_embedding_at(builder->graph, name, x, table, position_of(builder));
}

/* ---- memories ---- */

rpi_value_id rpi_block_remembered(rpi_builder *builder) {
    if (builder->remembered == RPI_NO_VALUE)
        builder->remembered =
            rpi_graph_input(builder->graph, "remembered", RP_I32, (rpi_shape){0});
    return builder->remembered;
}

rpi_value_id rpi_block_with_memory(rpi_builder *builder, const char *name, rpi_value_id x) {
    if (is_failed(builder, x)) return RPI_NO_VALUE;
    char text[LONGEST_NAME];
    rpi_graph *graph = builder->graph;
    rpi_shape shape = rpi_graph_value(graph, x)->shape;
    shape.size[1] = rpi_graph_dimension(graph, "memory");
    rpi_value_id memory = rpi_graph_input(graph, name, RP_F32, shape);
    if (builder->memory_count == RPI_MEMORIES) {
        rpi_graph_fail(graph, RP_INVALID, "more than %d layers with a memory", RPI_MEMORIES);
        return RPI_NO_VALUE;
    }
    builder->memories[builder->memory_count] = memory;
    builder->remembers[builder->memory_count++] = x;
    return rpi_concat_tokens(graph, join(text, name, "join"), memory, x,
                             rpi_graph_dimension(graph, "context"));
}

rp_status rpi_check_positions(int64_t sequence, int64_t positions) {
    if (sequence <= positions) return RP_OK;
    return RP_FAIL(INVALID,
                   "sequences of %lld tokens, and the model has %lld positions: use "
                   "--seq-length %lld or less, or positions=%lld",
                   (long long)sequence, (long long)positions, (long long)positions,
                   (long long)sequence);
}

rp_status rpi_check_tokens(const rpi_data_shape *shape, int64_t vocabulary, int64_t positions) {
    RP_TRY(rpi_check_positions(shape->sequence, positions));
    if (shape->vocabulary > vocabulary)
        return RP_FAIL(INVALID,
                       "the data have a vocabulary of %d tokens, the model one of %lld: make "
                       "the data by the model's tokenizer, or, of a new model, use "
                       "vocabulary=%d",
                       shape->vocabulary, (long long)vocabulary, shape->vocabulary);
    return RP_OK;
}
