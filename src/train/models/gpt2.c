/* GPT-2: a decoder of transformer blocks that normalise first.
 *
 *     x = dropout(tokens' rows of wte + positions' rows of wpe)
 *     for each layer:
 *         x = x + dropout(c_proj(attention(c_attn(ln_1(x)))))      causal, q k v from one
 * matrix x = x + dropout(c_proj(gelu(c_fc(ln_2(x)))))             four times as wide inside
 *     logits = ln_f(x) wte^T                                 the table of tokens once more
 *
 * Radford, Wu, Child, Luan, Amodei, Sutskever, "Language models are unsupervised multitask
 * learners", 2019. Names are those of its published weights; matrices are outputs x inputs.
 * Weights start normal with deviation 0.02, those whose output is added to x with 0.02 / sqrt(2
 * layers), so that the sum of all does not grow with depth; biases at 0. */
#include "train/models/activation.h"

#include "base/status.h"
#include "engine/layers.h"

#include <math.h>
#include <stdio.h>

extern const rpi_model rpi_model_gpt2;

enum { LONGEST_NAME = 64 };
#define SPREAD 0.02

typedef struct gpt2_options {
    int64_t layers, hidden, heads, intermediate, vocabulary, positions;
    double dropout, attention_dropout, norm_epsilon;
    const char *activation;
} gpt2_options;

#define NUMBER(name, fallback, most, help)                                                     \
    RPI_MODEL_OPTION(#name, RPI_OPTION_COUNT, offsetof(gpt2_options, name), fallback, 1, most, \
                     "N", help, NULL)
static const rpi_option options[] = {
    NUMBER(layers, "12", 1000, "blocks"),
    NUMBER(hidden, "768", 65536, "width of a token"),
    NUMBER(heads, "12", 1024, "of attention, which share the width"),
    RPI_MODEL_OPTION("intermediate", RPI_OPTION_COUNT, offsetof(gpt2_options, intermediate),
                     "0", 0, 1048576, "N", "width inside of a block; 0: four times hidden",
                     NULL),
    NUMBER(vocabulary, "50257", 16777216, "tokens that there are"),
    NUMBER(positions, "1024", 1048576, "the longest sequence"),
    RPI_MODEL_OPTION("dropout", RPI_OPTION_REAL, offsetof(gpt2_options, dropout), "0", 0, 0.99,
                     "P", "of the embeddings and of what a block adds", NULL),
    RPI_MODEL_OPTION("attention-dropout", RPI_OPTION_REAL,
                     offsetof(gpt2_options, attention_dropout), "0", 0, 0.99, "P",
                     "of the weights of attention", NULL),
    RPI_MODEL_OPTION("norm-epsilon", RPI_OPTION_REAL, offsetof(gpt2_options, norm_epsilon),
                     "1e-5", 0, 1, "X", "beside the variance of the norms", NULL),
    RPI_ACTIVATION_OPTION(gpt2_options, activation, "gelu-tanh"),
    {0},
};

static const rpi_model_size sizes[] = {
    {"medium", "layers=24,hidden=1024,heads=16"},
    {"large", "layers=36,hidden=1280,heads=20"},
    {"xl", "layers=48,hidden=1600,heads=25"},
    {0},
};

static const char *part_of(char text[LONGEST_NAME], int layer, const char *part) {
    snprintf(text, LONGEST_NAME, "h.%d.%s", layer, part);
    return text;
}

static rpi_value_id linear(rpi_builder *b, const char *name, rpi_value_id x, int64_t in,
                           int64_t out, double spread, rpi_shard shard) {
    const rpi_linear_layer layer = {.in = in,
                                    .out = out,
                                    .weight = {RPI_INIT_NORMAL, spread},
                                    .has_bias = true,
                                    .shard = shard};
    return rpi_block_linear_layer(b, name, x, &layer);
}

static rpi_value_id attend(rpi_builder *b, const gpt2_options *o, int layer, rpi_value_id x,
                           double spread_out) {
    char name[LONGEST_NAME];
    int width = (int)o->hidden;
    int64_t head = o->hidden / o->heads;
    x = rpi_block_layer_norm(b, part_of(name, layer, "ln_1"), x, width, (float)o->norm_epsilon);
    x = rpi_block_split(b, part_of(name, layer, "attn.c_attn"), x);
    x = linear(b, part_of(name, layer, "attn.c_attn"), x, width, 3 * width, SPREAD,
               rpi_shard_qkv(0, o->heads, o->heads, head, false));
    rpi_attention_attributes heads = {.heads = (int)o->heads,
                                      .kv_heads = (int)o->heads,
                                      .causal = true,
                                      .dropout = (float)o->attention_dropout};
    x = rpi_block_self_attention(b, part_of(name, layer, "attn"), x,
                                 rpi_block_own_heads(b, heads));
    return linear(b, part_of(name, layer, "attn.c_proj"), x, width, width, spread_out,
                  rpi_shard_heads(1, o->heads, head));
}

static rpi_value_id feed_forward(rpi_builder *b, const gpt2_options *o, int layer,
                                 rpi_value_id x, double spread_out) {
    char name[LONGEST_NAME];
    int width = (int)o->hidden, inside = (int)o->intermediate;
    x = rpi_block_layer_norm(b, part_of(name, layer, "ln_2"), x, width, (float)o->norm_epsilon);
    x = rpi_block_split(b, part_of(name, layer, "mlp.c_fc"), x);
    x = linear(b, part_of(name, layer, "mlp.c_fc"), x, width, inside, SPREAD,
               rpi_shard_cut(0, inside));
    x = rpi_block_activation(b, part_of(name, layer, "mlp.gelu"), x, o->activation);
    return linear(b, part_of(name, layer, "mlp.c_proj"), x, inside, width, spread_out,
                  rpi_shard_cut(1, inside));
}

static void fill_in(void *chosen) {
    gpt2_options *o = chosen;
    if (!o->intermediate) o->intermediate = 4 * o->hidden;
}

/* Do width and heads, and the data, fit? */
static rp_status check(const gpt2_options *o, const rpi_data_shape *shape) {
    if (o->hidden % o->heads)
        return RP_FAIL(INVALID, "hidden=%lld is no multiple of heads=%lld",
                       (long long)o->hidden, (long long)o->heads);
    return rpi_check_tokens(shape, o->vocabulary, o->positions);
}

static rpi_value_id build(rpi_builder *b, const void *chosen, const rpi_data_shape *shape,
                          rpi_value_id tokens) {
    const gpt2_options *o = chosen;
    double spread_out = SPREAD / sqrt(2 * (double)o->layers);
    rp_status status = check(o, shape);
    if (status != RP_OK) rpi_graph_fail(b->graph, status, "%s", rp_last_error()->message);
    rpi_value_id wte = rpi_block_vocabulary(b, "wte.weight", o->vocabulary, o->hidden, SPREAD);
    rpi_value_id wpe = rpi_block_table(b, "wpe.weight", o->positions, o->hidden, SPREAD);
    rpi_value_id x = rpi_block_tokens(b, "wte", tokens, wte, o->vocabulary);
    x = rpi_block_positions(b, "wpe", x, wpe);
    x = rpi_block_dropout(b, "drop", x, o->dropout);
    for (int layer = 0; layer < o->layers; layer++) {
        char name[LONGEST_NAME];
        rpi_value_id y = attend(b, o, layer, x, spread_out);
        y = rpi_block_dropout(b, part_of(name, layer, "attn.dropout"), y, o->dropout);
        x = rpi_add(b->graph, part_of(name, layer, "attn.add"), x, y);
        y = feed_forward(b, o, layer, x, spread_out);
        y = rpi_block_dropout(b, part_of(name, layer, "mlp.dropout"), y, o->dropout);
        x = rpi_add(b->graph, part_of(name, layer, "mlp.add"), x, y);
    }
    x = rpi_block_layer_norm(b, "ln_f", x, (int)o->hidden, (float)o->norm_epsilon);
    return rpi_block_logits(b, "lm_head", x, wte, RPI_NO_VALUE, o->vocabulary);
}

static rp_status check_split(const void *chosen, const rpi_tensor_split *split) {
    const gpt2_options *o = chosen;
    RP_TRY(rpi_tensor_split_check(split, "heads", o->heads));
    RP_TRY(rpi_tensor_split_check_units(split, "vocabulary", o->vocabulary));
    return rpi_tensor_split_check_units(split, "intermediate", o->intermediate);
}

static void transformer(const void *chosen, rpi_transformer *out) {
    const gpt2_options *o = chosen;
    *out = (rpi_transformer){.layers = o->layers,
                             .hidden = o->hidden,
                             .heads = o->heads,
                             .kv_heads = o->heads,
                             .head = o->hidden % o->heads ? 0 : o->hidden / o->heads,
                             .ffn = o->intermediate,
                             .vocabulary = o->vocabulary,
                             .positions = o->positions,
                             .tied = true,
                             .biases = true,
                             .dropout = o->dropout > 0,
                             .attention_dropout = o->attention_dropout > 0};
}

const rpi_model rpi_model_gpt2 = {
    .name = "gpt2",
    .summary = "GPT-2, a decoder of transformer blocks (124M parameters as it stands)",
    .task = "language-model",
    .options = options,
    .sizes = sizes,
    .fill_in = fill_in,
    .transformer = transformer,
    .check_split = check_split,
    .shares_sequences = true,
    .build = build,
};
