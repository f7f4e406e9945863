/* Layers that the ranks of a tensor group share (blocks.h); in an undivided model, ordinary
 * layers. */
#include "train/models/blocks.h"

#include <stdio.h>

enum { LONGEST_NAME = 128 };

static const char *part_of(char text[LONGEST_NAME], const char *name, const char *part) {
    snprintf(text, LONGEST_NAME, "%s.%s", name, part);
    return text;
}

static bool is_cut_by_inputs(const rpi_builder *builder, const rpi_linear_layer *layer) {
    return rpi_tensor_is_split(&builder->split) && layer->shard.kind == RPI_SHARD_CUT &&
           layer->shard.axis == 1;
}

/* Of a layer that every rank has as a whole, also if it has only a part of the tokens. */
static bool adds(const rpi_builder *builder, const rpi_linear_layer *layer, rpi_value_id x) {
    return layer->adds || rpi_block_is_part(builder, x);
}

static rpi_value_id declare_weight(rpi_builder *builder, const char *name,
                                   const rpi_linear_layer *layer, bool parts_add) {
    char text[LONGEST_NAME];
    const char *separator = layer->separator ? layer->separator : ".";
    snprintf(text, sizeof text, "%s%sweight", name, separator);
    return rpi_declare(builder, (rpi_parameter){.name = text,
                                                .shape = {2, {layer->out, layer->in}},
                                                .decay_group = RPI_DECAY_WEIGHT,
                                                .init = layer->weight.rule,
                                                .spread = layer->weight.spread,
                                                .shard = layer->shard,
                                                .adds = parts_add});
}

/* Only one rank adds what is added to a sum of parts. */
static rpi_value_id declare_bias(rpi_builder *builder, const char *name,
                                 const rpi_linear_layer *layer, bool parts_add) {
    char text[LONGEST_NAME];
    const char *separator = layer->separator ? layer->separator : ".";
    rpi_shard shard = layer->shard;
    if (!layer->has_bias) return RPI_NO_VALUE;
    if (is_cut_by_inputs(builder, layer)) shard = (rpi_shard){.kind = RPI_SHARD_FIRST};
    if (shard.kind == RPI_SHARD_CUT && shard.axis != 0) shard = (rpi_shard){0};
    snprintf(text, sizeof text, "%s%sbias", name, separator);
    return rpi_declare(builder, (rpi_parameter){.name = text,
                                                .shape = {1, {layer->out}},
                                                .decay_group = RPI_DECAY_VECTOR,
                                                .init = layer->bias.rule,
                                                .spread = layer->bias.spread,
                                                .shard = shard,
                                                .adds = parts_add});
}

static rpi_value_id join_parts(rpi_builder *builder, const char *name, rpi_value_id x) {
    bool cuts = rpi_block_cuts_tokens(builder);
    return rpi_tensor_split_node(builder->graph, &builder->split,
                                 cuts ? RPI_TENSOR_JOIN_TOKENS : RPI_TENSOR_JOIN, name, x);
}

rpi_value_id rpi_block_linear_layer(rpi_builder *builder, const char *name, rpi_value_id x,
                                    const rpi_linear_layer *layer) {
    char text[LONGEST_NAME];
    bool parts_add = adds(builder, layer, x);
    rpi_value_id weight = declare_weight(builder, name, layer, parts_add);
    rpi_value_id bias = declare_bias(builder, name, layer, parts_add);
    x = rpi_linear(builder->graph, name, x, weight, bias);
    if (!is_cut_by_inputs(builder, layer)) return x;
    return join_parts(builder, part_of(text, name, "join"), x);
}

rpi_value_id rpi_block_split(rpi_builder *builder, const char *name, rpi_value_id x) {
    char text[LONGEST_NAME];
    if (!rpi_tensor_is_split(&builder->split)) return x;
    bool cuts = rpi_block_cuts_tokens(builder);
    return rpi_tensor_split_node(builder->graph, &builder->split,
                                 cuts ? RPI_TENSOR_SPLIT_TOKENS : RPI_TENSOR_SPLIT,
                                 part_of(text, name, "split"), x);
}

/* ---- tokens ---- */

bool rpi_block_cuts_tokens(const rpi_builder *builder) {
    return rpi_tensor_cuts_tokens(&builder->split);
}

/* No other axis of tokens has this length: with two ranks or more a part is less than all. */
bool rpi_block_is_part(const rpi_builder *builder, rpi_value_id x) {
    if (!rpi_block_cuts_tokens(builder) || x == RPI_NO_VALUE) return false;
    const rpi_shape *shape = &rpi_graph_value(builder->graph, x)->shape;
    return shape->dims == 3 && shape->size[1] == builder->split.part_tokens &&
           builder->split.all_tokens != builder->split.part_tokens;
}

static int64_t number_of_tokens(const rpi_builder *builder) {
    int64_t all = builder->split.all_tokens;
    return rpi_dimension_is_named(all) ? builder->sequence : all;
}

rpi_token_pieces rpi_block_pieces(const rpi_builder *builder, rpi_value_id x) {
    rpi_token_pieces pieces =
        rpi_context_pieces(&builder->split.context, builder->whole_sequence);
    if (!rpi_block_is_part(builder, x)) return pieces;
    pieces.first = builder->split.rank * builder->split.part_tokens;
    pieces.own = number_of_tokens(builder);
    return pieces;
}

/* x, batch x tokens x width, has the tokens that will be cut. */
static void note_tokens(rpi_builder *builder, rpi_value_id x) {
    rpi_tensor_split *split = &builder->split;
    if (!split->tokens || x == RPI_NO_VALUE || rpi_graph_check(builder->graph) != RP_OK) return;
    split->all_tokens = rpi_graph_value(builder->graph, x)->shape.size[1];
    split->part_tokens = (number_of_tokens(builder) + split->ranks - 1) / split->ranks;
    if (split->part_tokens < 1)
        rpi_graph_fail(builder->graph, RP_INVALID, "no tokens are there to be shared");
}

rpi_value_id rpi_block_own_tokens(rpi_builder *builder, const char *name, rpi_value_id x) {
    char text[LONGEST_NAME];
    if (!rpi_block_cuts_tokens(builder)) return x;
    note_tokens(builder, x);
    return rpi_tensor_split_node(builder->graph, &builder->split, RPI_TENSOR_OWN_TOKENS,
                                 part_of(text, name, "part"), x);
}

rpi_value_id rpi_block_all_tokens(rpi_builder *builder, const char *name, rpi_value_id x) {
    char text[LONGEST_NAME];
    if (!rpi_block_is_part(builder, x)) return x;
    return rpi_tensor_split_node(builder->graph, &builder->split, RPI_TENSOR_ALL_TOKENS,
                                 part_of(text, name, "all"), x);
}

rpi_value_id rpi_block_whole_sequence(rpi_builder *builder, const char *name, rpi_value_id x) {
    char text[LONGEST_NAME];
    x = rpi_block_all_tokens(builder, name, x);
    if (!rpi_context_is_split(&builder->split.context) || x == RPI_NO_VALUE) return x;
    const rpi_context_gather gather = {
        .keys = rpi_graph_value(builder->graph, x)->shape.size[2], .is_one = true};
    return rpi_context_gather_node(builder->graph, &builder->split.context,
                                   part_of(text, name, "whole"), &gather, &x);
}

rpi_value_id rpi_block_first_token(rpi_builder *builder, const char *name, rpi_value_id x) {
    char text[LONGEST_NAME];
    bool is_part = rpi_block_is_part(builder, x);
    x = rpi_select_token(builder->graph, name, x, 0);
    if (!is_part) return x;
    return rpi_tensor_split_node(builder->graph, &builder->split, RPI_TENSOR_FIRST,
                                 part_of(text, name, "first"), x);
}

int rpi_block_heads(const rpi_builder *builder, int64_t heads) {
    int64_t own = rpi_tensor_is_split(&builder->split) ? heads / builder->split.ranks : heads;
    return (int)(own > 0 ? own : 1);
}

rpi_attention_attributes rpi_block_own_heads(const rpi_builder *builder,
                                             rpi_attention_attributes all) {
    if (!rpi_tensor_is_split(&builder->split)) return all;
    rpi_attention_attributes own = all;
    own.heads = rpi_block_heads(builder, all.heads);
    own.kv_heads = rpi_block_heads(builder, all.kv_heads ? all.kv_heads : all.heads);
    own.first_head = builder->split.rank * own.heads;
    own.whole_heads = all.heads;
    return own;
}

rpi_value_id rpi_block_vocabulary(rpi_builder *builder, const char *name, int64_t rows,
                                  int64_t width, double spread) {
    return rpi_declare(builder, (rpi_parameter){.name = name,
                                                .shape = {2, {rows, width}},
                                                .decay_group = RPI_DECAY_WEIGHT,
                                                .init = RPI_INIT_NORMAL,
                                                .spread = spread,
                                                .shard = rpi_shard_cut(0, rows)});
}

rpi_value_id rpi_block_tokens(rpi_builder *builder, const char *name, rpi_value_id tokens,
                              rpi_value_id table, int64_t rows) {
    char text[LONGEST_NAME];
    int64_t first, end;
    if (!rpi_tensor_is_split(&builder->split))
        return rpi_embedding(builder->graph, name, tokens, table);
    rpi_tensor_split_range(&builder->split, rows, &first, &end);
    rpi_value_id x = rpi_embedding_of(builder->graph, name, tokens, table,
                                      (rpi_embedding_attributes){first, rows});
    note_tokens(builder, x);
    return join_parts(builder, part_of(text, name, "join"), x);
}

rpi_value_id rpi_block_logits(rpi_builder *builder, const char *name, rpi_value_id x,
                              rpi_value_id table, rpi_value_id bias, int64_t rows) {
    int64_t end;
    if (rpi_tensor_is_split(&builder->split)) {
        rpi_tensor_split_range(&builder->split, rows, &builder->first_logit, &end);
        builder->whole_logits = rows;
        x = rpi_block_split(builder, name, x);
    }
    return rpi_linear(builder->graph, name, x, table, bias);
}
