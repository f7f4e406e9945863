/* LLaMA: a decoder of transformer blocks that normalise first, without biases unless asked for.
 *
 *     x = tokens' rows of embed_tokens
 *     for each layer:
 *         y = rms_norm(x)
 *         x = x + o_proj(attention(turn(q_proj(y)), turn(k_proj(y)), v_proj(y)))      causal
 *             qk-norm=on: turn(rms_norm(q_proj(y))), turn(rms_norm(k_proj(y))), of each head
 *         y = rms_norm(x)
 *         x = x + down_proj(silu(gate_proj(y)) up_proj(y))
 *     logits = lm_head(rms_norm(x))                  tied: the table of tokens once more
 *
 * turn: rotary positions (Su et al., "RoFormer", 2021), the halves of a head as in Hugging
 * Face's files. With kv-heads less than heads, queries side by side share keys and values
 * (Ainslie et al., "GQA", 2023); with a window a token sees the nearest alone (Jiang et al.,
 * "Mistral 7B", 2023); norms of queries and keys bound the scores (Henry et al., "Query-key
 * normalization for transformers", 2020; Qwen team, "Qwen3 technical report", 2025); angles of
 * low frequency may be stretched, for longer texts (Llama team, "The Llama 3 herd of models",
 * 2024; Peng et al., "YaRN", 2023). Touvron et al., "LLaMA: open and efficient foundation
 * language models", 2023. Names are those of Hugging Face's files. Weights start normal with
 * deviation 0.02, or as asked for; biases at 0. */
#include "train/models/model.h"

#include "base/status.h"
#include "engine/layers.h"

#include <math.h>
#include <stdio.h>

extern const rpi_model rpi_model_llama;

enum { LONGEST_NAME = 64, LARGEST_HEAD = 256 };

typedef struct llama_options {
    int64_t layers, hidden, heads, kv_heads, head, intermediate, vocabulary, positions, window,
        rope_original;
    double rope_base, norm_epsilon, attention_dropout, rope_factor, rope_low, rope_high,
        rope_attention, init_std;
    bool tied, qkv_bias, attention_bias, mlp_bias, qk_norm, rope_yarn, rope_truncate,
        init_scaled;
} llama_options;

#define REAL(name, field, fallback, least, most, value, help)                                  \
    RPI_MODEL_OPTION(name, RPI_OPTION_REAL, offsetof(llama_options, field), fallback, least,   \
                     most, value, help, NULL)
#define FLAG(name, field, help)                                                                \
    RPI_MODEL_OPTION(name, RPI_OPTION_FLAG, offsetof(llama_options, field), "off", 0, 0,       \
                     "on|off", help, NULL)
#define NUMBER(name, field, fallback, least, most, help)                                       \
    RPI_MODEL_OPTION(name, RPI_OPTION_COUNT, offsetof(llama_options, field), fallback, least,  \
                     most, "N", help, NULL)
static const rpi_option options[] = {
    NUMBER("layers", layers, "12", 1, 1000, "blocks"),
    NUMBER("hidden", hidden, "768", 1, 65536, "width of a token"),
    NUMBER("heads", heads, "12", 1, 1024, "of attention, which share the width"),
    NUMBER("kv-heads", kv_heads, "0", 0, 1024, "of keys and values; 0: as many as heads"),
    NUMBER("head", head, "0", 0, LARGEST_HEAD, "width of a head; 0: hidden over heads"),
    NUMBER("intermediate", intermediate, "0", 0, 1048576,
           "width inside of a block; 0: 8/3 of hidden, up to a multiple of 256"),
    NUMBER("vocabulary", vocabulary, "32000", 1, 16777216, "tokens that there are"),
    NUMBER("positions", positions, "2048", 1, 1048576, "the longest sequence"),
    NUMBER("window", window, "0", 0, 1048576,
           "a token sees itself and those less than so many before; 0: all"),
    REAL("rope-base", rope_base, "10000", 1, 1e9, "BASE", "of the rotary positions' angles"),
    REAL("rope-factor", rope_factor, "1", 1, 1e6, "X",
         "those angles are divided by it, for texts longer than the model was trained on"),
    NUMBER("rope-original", rope_original, "0", 0, 1048576,
           "of LLaMA-3.1's rule: tokens that it was trained on; 0: all angles are divided"),
    REAL("rope-low", rope_low, "1", 1e-6, 1e6, "CIRCLES",
         "of that rule: what turns less within them is divided"),
    REAL("rope-high", rope_high, "0", 0, 1e6, "CIRCLES",
         "and what turns more is not; 0: 4, of YaRN 32"),
    FLAG("rope-yarn", rope_yarn, "YaRN's rule in its place"),
    RPI_MODEL_OPTION("rope-truncate", RPI_OPTION_FLAG, offsetof(llama_options, rope_truncate),
                     "on", 0, 0, "on|off", "of YaRN: its ramp begins and ends at whole indices",
                     NULL),
    REAL("rope-attention", rope_attention, "0", 0, 1e6, "X",
         "of YaRN: cosines and sines are multiplied by it; 0: 0.1 ln(rope-factor) + 1"),
    REAL("norm-epsilon", norm_epsilon, "1e-5", 1e-12, 1, "X",
         "beside the mean square of the norms"),
    FLAG("tied", tied, "the head is the table of tokens"),
    FLAG("qkv-bias", qkv_bias, "queries, keys and values have biases, as in Qwen2"),
    FLAG("attention-bias", attention_bias, "these and attention's output have"),
    FLAG("mlp-bias", mlp_bias, "the feed-forward part has"),
    FLAG("qk-norm", qk_norm, "each head's queries and keys are normalised, as in Qwen3"),
    REAL("attention-dropout", attention_dropout, "0", 0, 0.99, "P",
         "of the weights of attention"),
    REAL("init-std", init_std, "0.02", 0, 100, "X", "deviation of weights at the start"),
    FLAG("init-scaled", init_scaled,
         "of those whose output is added to x, that over sqrt(2 layers)"),
    {0},
};

/* LLaMA-2's, SmolLM2-135M, and Qwen3-0.6B. */
static const rpi_model_size sizes[] = {
    {"7b", "layers=32,hidden=4096,heads=32,positions=4096"},
    {"13b", "layers=40,hidden=5120,heads=40,positions=4096"},
    {"70b", "layers=80,hidden=8192,heads=64,kv-heads=8,intermediate=28672,positions=4096"},
    {"smol", "layers=30,hidden=576,heads=9,kv-heads=3,vocabulary=49152,positions=8192,"
             "rope-base=100000,tied=on"},
    {"qwen3-0.6b", "layers=28,hidden=1024,heads=16,kv-heads=8,head=128,intermediate=3072,"
                   "vocabulary=151936,positions=40960,rope-base=1000000,norm-epsilon=1e-6,"
                   "tied=on,qk-norm=on"},
    {0},
};

typedef struct decoder {
    rpi_builder *b;
    llama_options o;
} decoder;

static const char *part_of(char text[LONGEST_NAME], int layer, const char *part) {
    snprintf(text, LONGEST_NAME, "model.layers.%d.%s", layer, part);
    return text;
}

static rpi_value_id norm(const decoder *d, int layer, const char *part, rpi_value_id x) {
    char name[LONGEST_NAME];
    return rpi_block_rms_norm(d->b, part_of(name, layer, part), x, d->o.hidden,
                              (float)d->o.norm_epsilon);
}

static rpi_value_id linear(const decoder *d, int layer, const char *part, rpi_value_id x,
                           rpi_linear_layer wanted) {
    char name[LONGEST_NAME];
    wanted.weight.rule = RPI_INIT_NORMAL;
    return rpi_block_linear_layer(d->b, part_of(name, layer, part), x, &wanted);
}

/* Outputs are heads of queries, or of keys and values, which several tensor ranks may share. */
static rpi_value_id project(const decoder *d, int layer, const char *part, rpi_value_id x,
                            int64_t heads) {
    const rpi_linear_layer wanted = {.in = d->o.hidden,
                                     .out = heads * d->o.head,
                                     .has_bias = d->o.qkv_bias || d->o.attention_bias,
                                     .weight = {.spread = d->o.init_std},
                                     .shard = rpi_shard_heads(0, heads, d->o.head),
                                     .adds = heads < d->b->split.ranks};
    return linear(d, layer, part, x, wanted);
}

/* Back to what is added to x. */
static rpi_value_id project_back(const decoder *d, int layer, const char *part, rpi_value_id x,
                                 int64_t in, rpi_shard shard, bool bias) {
    double spread = d->o.init_std;
    if (d->o.init_scaled) spread /= sqrt(2 * (double)d->o.layers);
    const rpi_linear_layer wanted = {.in = in,
                                     .out = d->o.hidden,
                                     .has_bias = bias,
                                     .weight = {.spread = spread},
                                     .shard = shard};
    return linear(d, layer, part, x, wanted);
}

/* x, which the ranks of a tensor group each take a part of the work with. */
static rpi_value_id split(const decoder *d, int layer, const char *part, rpi_value_id x) {
    char name[LONGEST_NAME];
    return rpi_block_split(d->b, part_of(name, layer, part), x);
}

static rpi_value_id turn(const decoder *d, int layer, const char *part, rpi_value_id x,
                         int64_t heads) {
    char name[LONGEST_NAME];
    rpi_rope_attributes rope = {.heads = rpi_block_heads(d->b, heads), .base = d->o.rope_base};
    if (d->o.rope_factor > 1 || d->o.rope_yarn)
        rope.stretch = (rpi_rope_stretch){.factor = d->o.rope_factor,
                                          .low = d->o.rope_low,
                                          .high = d->o.rope_high,
                                          .original = d->o.rope_original,
                                          .yarn = d->o.rope_yarn,
                                          .is_exact = !d->o.rope_truncate,
                                          .attention = d->o.rope_attention};
    return rpi_block_rope(d->b, part_of(name, layer, part), x, rope);
}

static rpi_value_id head_norm(const decoder *d, int layer, const char *part, rpi_value_id x,
                              int64_t heads) {
    char name[LONGEST_NAME];
    if (!d->o.qk_norm) return x;
    return rpi_block_head_norm(d->b, part_of(name, layer, part), x,
                               rpi_block_heads(d->b, heads), (float)d->o.norm_epsilon);
}

static rpi_value_id attend(const decoder *d, int layer, rpi_value_id x) {
    char name[LONGEST_NAME];
    const llama_options *o = &d->o;
    x = norm(d, layer, "input_layernorm", x);
    x = split(d, layer, "self_attn", x);
    rpi_value_id q = project(d, layer, "self_attn.q_proj", x, o->heads);
    rpi_value_id k = project(d, layer, "self_attn.k_proj", x, o->kv_heads);
    rpi_value_id v = project(d, layer, "self_attn.v_proj", x, o->kv_heads);
    q = head_norm(d, layer, "self_attn.q_norm", q, o->heads);
    k = head_norm(d, layer, "self_attn.k_norm", k, o->kv_heads);
    q = turn(d, layer, "self_attn.q_rope", q, o->heads);
    k = turn(d, layer, "self_attn.k_rope", k, o->kv_heads);
    rpi_attention_attributes heads = {.heads = (int)o->heads,
                                      .kv_heads = (int)o->kv_heads,
                                      .causal = true,
                                      .window = (int)o->window,
                                      .dropout = (float)o->attention_dropout};
    x = rpi_block_attention(d->b, part_of(name, layer, "self_attn"), q, k, v, RPI_NO_VALUE,
                            rpi_block_own_heads(d->b, heads));
    return project_back(d, layer, "self_attn.o_proj", x, o->heads * o->head,
                        rpi_shard_heads(1, o->heads, o->head), o->attention_bias);
}

static rpi_value_id feed_forward(const decoder *d, int layer, rpi_value_id x) {
    char name[LONGEST_NAME];
    int64_t inside = d->o.intermediate;
    const rpi_linear_layer wide = {.in = d->o.hidden,
                                   .out = inside,
                                   .has_bias = d->o.mlp_bias,
                                   .weight = {.spread = d->o.init_std},
                                   .shard = rpi_shard_cut(0, inside)};
    x = norm(d, layer, "post_attention_layernorm", x);
    x = split(d, layer, "mlp", x);
    rpi_value_id gate = linear(d, layer, "mlp.gate_proj", x, wide);
    rpi_value_id up = linear(d, layer, "mlp.up_proj", x, wide);
    x = rpi_swiglu(d->b->graph, part_of(name, layer, "mlp.swiglu"), gate, up);
    return project_back(d, layer, "mlp.down_proj", x, inside, rpi_shard_cut(1, inside),
                        d->o.mlp_bias);
}

static void fill_in(void *chosen) {
    llama_options *o = chosen;
    int64_t multiple = 256, wide = (8 * o->hidden + 2) / 3;
    if (!o->kv_heads) o->kv_heads = o->heads;
    if (o->rope_high == 0) o->rope_high = o->rope_yarn ? 32 : 4;
    if (!o->head && o->hidden % o->heads == 0) o->head = o->hidden / o->heads;
    if (!o->intermediate) o->intermediate = (wide + multiple - 1) / multiple * multiple;
}

/* Do width and heads, and the data, fit? */
static rp_status check(const llama_options *o, const rpi_data_shape *shape) {
    long long hidden = o->hidden, heads = o->heads;
    if (!o->head)
        return RP_FAIL(INVALID, "hidden=%lld is no multiple of heads=%lld", hidden, heads);
    if (o->head % 2 || o->head > LARGEST_HEAD)
        return RP_FAIL(INVALID,
                       "hidden=%lld over heads=%lld are %lld a head; rotary positions need an "
                       "even number of %d at most",
                       hidden, heads, (long long)o->head, LARGEST_HEAD);
    if (o->rope_original && o->rope_high <= o->rope_low)
        return RP_FAIL(INVALID, "rope-high=%g is not above rope-low=%g", o->rope_high,
                       o->rope_low);
    if (o->rope_yarn && !(o->rope_original && o->rope_base > 1))
        return RP_FAIL(INVALID,
                       "rope-yarn=on wants rope-original=N, the tokens of a text in training, "
                       "and a rope-base above 1");
    if (o->rope_attention > 0 && !o->rope_yarn)
        return RP_FAIL(INVALID, "rope-attention=%g is of rope-yarn=on alone",
                       o->rope_attention);
    if (heads % o->kv_heads)
        return RP_FAIL(INVALID, "kv-heads=%lld is no divisor of heads=%lld",
                       (long long)o->kv_heads, heads);
    return rpi_check_tokens(shape, o->vocabulary, o->positions);
}

static rpi_value_id build(rpi_builder *b, const void *chosen, const rpi_data_shape *shape,
                          rpi_value_id tokens) {
    decoder d = {.b = b, .o = *(const llama_options *)chosen};
    rp_status status = check(&d.o, shape);
    if (status != RP_OK) rpi_graph_fail(b->graph, status, "%s", rp_last_error()->message);
    rpi_value_id table = rpi_block_vocabulary(b, "model.embed_tokens.weight", d.o.vocabulary,
                                              d.o.hidden, d.o.init_std);
    rpi_value_id x = rpi_block_tokens(b, "model.embed_tokens", tokens, table, d.o.vocabulary);
    for (int layer = 0; layer < d.o.layers; layer++) {
        char name[LONGEST_NAME];
        rpi_value_id y = attend(&d, layer, x);
        x = rpi_add(b->graph, part_of(name, layer, "self_attn.add"), x, y);
        y = feed_forward(&d, layer, x);
        x = rpi_add(b->graph, part_of(name, layer, "mlp.add"), x, y);
    }
    x = rpi_block_rms_norm(b, "model.norm", x, d.o.hidden, (float)d.o.norm_epsilon);
    if (!d.o.tied)
        table =
            rpi_block_vocabulary(b, "lm_head.weight", d.o.vocabulary, d.o.hidden, d.o.init_std);
    return rpi_block_logits(b, "lm_head", x, table, RPI_NO_VALUE, d.o.vocabulary);
}

static rp_status check_split(const void *chosen, const rpi_tensor_split *split) {
    const llama_options *o = chosen;
    RP_TRY(rpi_tensor_split_check(split, "heads", o->heads));
    RP_TRY(rpi_tensor_split_check_units(split, "vocabulary", o->vocabulary));
    RP_TRY(rpi_tensor_split_check_units(split, "intermediate", o->intermediate));
    return rpi_tensor_split_check_shared(split, "kv-heads", o->kv_heads);
}

/* Biases of queries alone are too few to count. */
static void transformer(const void *chosen, rpi_transformer *out) {
    const llama_options *o = chosen;
    *out = (rpi_transformer){.layers = o->layers,
                             .hidden = o->hidden,
                             .heads = o->heads,
                             .kv_heads = o->kv_heads,
                             .head = o->head,
                             .ffn = o->intermediate,
                             .vocabulary = o->vocabulary,
                             .gated = true,
                             .tied = o->tied,
                             .attention_dropout = o->attention_dropout > 0};
}

const rpi_model rpi_model_llama = {
    .name = "llama",
    .summary = "LLaMA, a decoder with rotary positions and gated units (134M parameters as it "
               "stands)",
    .task = "language-model",
    .options = options,
    .sizes = sizes,
    .fill_in = fill_in,
    .transformer = transformer,
    .check_split = check_split,
    .shares_sequences = true,
    .build = build,
};
