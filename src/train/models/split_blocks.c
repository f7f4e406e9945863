/* Layers that the ranks of a tensor group share (blocks.h); in a model that is whole, layers.
 */
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

static rpi_value_id declare_weight(rpi_builder *builder, const char *name,
                                   const rpi_linear_layer *layer) {
    char text[LONGEST_NAME];
    const char *separator = layer->separator ? layer->separator : ".";
    snprintf(text, sizeof text, "%s%sweight", name, separator);
    return rpi_declare(builder, (rpi_parameter){.name = text,
                                                .shape = {2, {layer->out, layer->in}},
                                                .decay_group = RPI_DECAY_WEIGHT,
                                                .init = layer->weight.rule,
                                                .spread = layer->weight.spread,
                                                .shard = layer->shard,
                                                .adds = layer->adds});
}

/* What is added to a sum of parts is one rank's to add. */
static rpi_value_id declare_bias(rpi_builder *builder, const char *name,
                                 const rpi_linear_layer *layer) {
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
                                                .adds = layer->adds});
}

rpi_value_id rpi_block_linear_layer(rpi_builder *builder, const char *name, rpi_value_id x,
                                    const rpi_linear_layer *layer) {
    char text[LONGEST_NAME];
    rpi_value_id weight = declare_weight(builder, name, layer);
    rpi_value_id bias = declare_bias(builder, name, layer);
    x = rpi_linear(builder->graph, name, x, weight, bias);
    if (!is_cut_by_inputs(builder, layer)) return x;
    return rpi_tensor_split_node(builder->graph, &builder->split, RPI_TENSOR_JOIN,
                                 part_of(text, name, "join"), x);
}

rpi_value_id rpi_block_split(rpi_builder *builder, const char *name, rpi_value_id x) {
    char text[LONGEST_NAME];
    if (!rpi_tensor_is_split(&builder->split)) return x;
    return rpi_tensor_split_node(builder->graph, &builder->split, RPI_TENSOR_SPLIT,
                                 part_of(text, name, "split"), x);
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
    return rpi_tensor_split_node(builder->graph, &builder->split, RPI_TENSOR_JOIN,
                                 part_of(text, name, "join"), x);
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
