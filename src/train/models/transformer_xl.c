/* Transformer-XL: a decoder that remembers the segment before.
 *
 *     x = dropout(sqrt(hidden) tokens' rows of word_emb)
 *     r = dropout(sinusoids of distances)
 *     for each layer:
 *         c = memory of this layer, then x                          the memory: earlier x
 *         q, k, v = qkv_net(c)                                      q of x alone
 *         s_ij = ((q_i + r_w_bias) k_j + (q_i + r_r_bias) r_net(r)_{i - j}) / sqrt(head)
 *         x = layer_norm(x + dropout(o_net(softmax(s) v)))          causal
 *         x = layer_norm(x + dropout(CoreNet.3(dropout(relu(CoreNet.0(x))))))
 *     logits = dropout(x) word_emb^T + bias                     the table of tokens once more
 *
 * With cutoffs the loss is by clusters (rpi_adaptive_cross_entropy): frequent tokens come first
 * in the vocabulary.
 *
 * Dai, Yang, Yang, Carbonell, Le, Salakhutdinov, "Transformer-XL: attentive language models
 * beyond a fixed-length context", 2019. Names are those of its published code. Weights start
 * normal with deviation 0.02, the scales of norms around 1 with the same; biases at 0. A row of
 * a batch goes on where it ended in the step before; its memory has no gradient. As a decoder a
 * token sees itself and `memory` tokens before it, wherever segments begin. */
#include "train/models/model.h"

#include "base/status.h"
#include "engine/layers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const rpi_model rpi_model_transformer_xl;

enum { LONGEST_NAME = 64, LARGEST_HEAD = 256 };
#define SPREAD 0.02

typedef struct xl_options {
    int64_t layers, hidden, heads, head, inner, memory, clamp, vocabulary;
    double dropout, attention_dropout;
    const char *cutoffs;
} xl_options;

#define NUMBER(name, fallback, least, most, help)                                              \
    RPI_MODEL_OPTION(#name, RPI_OPTION_COUNT, offsetof(xl_options, name), fallback, least,     \
                     most, "N", help, NULL)
static const rpi_option options[] = {
    NUMBER(layers, "16", 1, RPI_MEMORIES, "blocks"),
    NUMBER(hidden, "410", 2, 65536, "width of a token, even"),
    NUMBER(heads, "10", 1, 1024, "of attention"),
    NUMBER(head, "41", 1, LARGEST_HEAD, "width of a head"),
    NUMBER(inner, "2100", 1, 1048576, "width inside of a block"),
    NUMBER(memory, "150", 1, 1048576, "tokens that a row remembers"),
    NUMBER(clamp, "0", 0, 1048576, "distances beyond are taken for this one; 0: none"),
    NUMBER(vocabulary, "267735", 1, 16777216, "tokens that there are"),
    RPI_MODEL_OPTION("dropout", RPI_OPTION_REAL, offsetof(xl_options, dropout), "0.1", 0, 0.99,
                     "P", "probability that an element is dropped", NULL),
    RPI_MODEL_OPTION("attention-dropout", RPI_OPTION_REAL,
                     offsetof(xl_options, attention_dropout), "0", 0, 0.99, "P",
                     "of the weights of attention", NULL),
    RPI_MODEL_OPTION("cutoffs", RPI_OPTION_TEXT, offsetof(xl_options, cutoffs), "auto", 0, 0,
                     "N:N:..",
                     "tokens below the first are frequent, the others in clusters "
                     "between them; none; auto: 20000:40000:200000, as far as the "
                     "vocabulary goes",
                     NULL),
    {0},
};

/* For WikiText-103: of the paper's code, and of NVIDIA's examples. */
static const rpi_model_size sizes[] = {
    {"base", "layers=16,hidden=410,heads=10,head=41,inner=2100,memory=150"},
    {"nvidia", "layers=16,hidden=512,heads=8,head=64,inner=2048,memory=192,"
               "cutoffs=19997:39997:199997"},
    {0},
};

typedef struct decoder {
    rpi_builder *b;
    const xl_options *o;
    rpi_value_id content_bias, position_bias, distances;
    char layer[LONGEST_NAME]; /* "layers.3" */
} decoder;

static const char *part_of(const decoder *d, char text[LONGEST_NAME], const char *part) {
    snprintf(text, LONGEST_NAME, "%.20s.%.40s", d->layer, part);
    return text;
}

static rpi_value_id drop(const decoder *d, const char *name, rpi_value_id x) {
    return rpi_block_dropout(d->b, name, x, d->o->dropout);
}

static rpi_value_id project(const decoder *d, const char *part, rpi_value_id x, int64_t in,
                            int64_t out) {
    char name[LONGEST_NAME];
    return rpi_block_projection(d->b, part_of(d, name, part), x, in, out, SPREAD);
}

/* layer_norm(x + y) */
static rpi_value_id add_norm(const decoder *d, const char *part, rpi_value_id x,
                             rpi_value_id y) {
    char name[LONGEST_NAME], of[LONGEST_NAME], full[2 * LONGEST_NAME];
    snprintf(of, sizeof of, "%.30s.layer_norm", part);
    part_of(d, name, of);
    snprintf(full, sizeof full, "%s.weight", name);
    rpi_value_id scale = rpi_declare(d->b, (rpi_parameter){.name = full,
                                                           .shape = {1, {d->o->hidden}},
                                                           .decay_group = RPI_DECAY_VECTOR,
                                                           .init = RPI_INIT_AROUND_ONE,
                                                           .spread = SPREAD});
    snprintf(full, sizeof full, "%s.bias", name);
    rpi_value_id shift = rpi_declare(d->b, (rpi_parameter){.name = full,
                                                           .shape = {1, {d->o->hidden}},
                                                           .decay_group = RPI_DECAY_VECTOR,
                                                           .init = RPI_INIT_ZEROS});
    snprintf(full, sizeof full, "%s.add", name);
    x = rpi_add(d->b->graph, full, x, y);
    return rpi_layer_norm(d->b->graph, name, x, scale, shift,
                          (rpi_norm_attributes){.epsilon = 1e-5f});
}

/* Queries, keys and values of the memory and of x. Their projection is of each token by itself,
 * without a bias: so a decoder remembers what it gives, and a new token costs one. */
static rpi_value_id project_context(const decoder *d, rpi_value_id x) {
    char name[LONGEST_NAME];
    const xl_options *o = d->o;
    part_of(d, name, "memory");
    if (!d->b->is_decoder) x = rpi_block_with_memory(d->b, name, x);
    x = project(d, "dec_attn.qkv_net", x, o->hidden, 3 * o->heads * o->head);
    return d->b->is_decoder ? rpi_block_with_memory(d->b, name, x) : x;
}

static rpi_value_id attend(const decoder *d, rpi_value_id x) {
    char name[LONGEST_NAME];
    const xl_options *o = d->o;
    rpi_graph *graph = d->b->graph;
    int64_t width = o->heads * o->head;
    rpi_value_id y = project_context(d, x);
    rpi_value_id r = project(d, "dec_attn.r_net", d->distances, o->hidden, width);
    y = rpi_relative_attention(
        graph, part_of(d, name, "dec_attn"), y, r, d->content_bias, d->position_bias,
        rpi_block_remembered(d->b),
        (rpi_relative_attention_attributes){.heads = (int)o->heads,
                                            .window = d->b->is_decoder ? (int)o->memory + 1 : 0,
                                            .queries = rpi_graph_dimension(graph, "sequence"),
                                            .dropout = (float)o->attention_dropout});
    y = project(d, "dec_attn.o_net", y, width, o->hidden);
    y = drop(d, part_of(d, name, "dec_attn.drop"), y);
    return add_norm(d, "dec_attn", x, y);
}

static rpi_value_id feed_forward(const decoder *d, rpi_value_id x) {
    char name[LONGEST_NAME];
    int hidden = (int)d->o->hidden, inner = (int)d->o->inner;
    rpi_value_id y = rpi_block_normal_linear(d->b, part_of(d, name, "pos_ff.CoreNet.0"), x,
                                             hidden, inner, SPREAD);
    y = rpi_relu(d->b->graph, part_of(d, name, "pos_ff.CoreNet.1"), y);
    y = drop(d, part_of(d, name, "pos_ff.CoreNet.2"), y);
    y = rpi_block_normal_linear(d->b, part_of(d, name, "pos_ff.CoreNet.3"), y, inner, hidden,
                                SPREAD);
    y = drop(d, part_of(d, name, "pos_ff.CoreNet.4"), y);
    return add_norm(d, "pos_ff", x, y);
}

/* Rows of distances, alike for all layers and sequences: as many as a layer's context. */
static rpi_value_id make_distances(const decoder *d, rpi_value_id x) {
    rpi_graph *graph = d->b->graph;
    rpi_sinusoids_attributes rows = {.rows = rpi_graph_dimension(graph, "context"),
                                     .clamp = d->o->clamp};
    x = rpi_sinusoids(graph, "pos_emb", x, rows);
    return drop(d, "pos_emb.drop", x);
}

/* ---- the softmax ---- */

static void choose_cutoffs(int64_t vocabulary, rpi_adaptive_attributes *adaptive) {
    static const int64_t published[] = {20000, 40000, 200000};
    for (int i = 0; i < 3 && published[i] < vocabulary; i++)
        adaptive->cutoffs[adaptive->cutoff_count++] = published[i];
}

static rp_status add_cutoff(const xl_options *o, long long cutoff, bool is_number,
                            rpi_adaptive_attributes *adaptive) {
    int count = adaptive->cutoff_count;
    int64_t before = count ? adaptive->cutoffs[count - 1] : 0;
    if (!is_number || cutoff <= before || cutoff >= o->vocabulary || count == RPI_CUTOFFS)
        return RP_FAIL(INVALID,
                       "cutoffs=%s: at most %d numbers with ':' between them, each above the "
                       "one before and below vocabulary=%lld; or none, or auto",
                       o->cutoffs, (int)RPI_CUTOFFS, (long long)o->vocabulary);
    adaptive->cutoffs[adaptive->cutoff_count++] = cutoff;
    return RP_OK;
}

static rp_status parse_cutoffs(const xl_options *o, rpi_adaptive_attributes *out) {
    rpi_adaptive_attributes adaptive = {.cutoff_count = 0};
    bool is_auto = strcmp(o->cutoffs, "auto") == 0, is_none = strcmp(o->cutoffs, "none") == 0;
    const char *at = is_auto || is_none ? "" : o->cutoffs;
    if (is_auto) choose_cutoffs(o->vocabulary, &adaptive);
    while (*at || !*o->cutoffs) {
        char *end = NULL;
        long long cutoff = strtoll(at, &end, 10);
        bool is_number = end != at && (!*end || (*end == ':' && end[1]));
        RP_TRY(add_cutoff(o, cutoff, is_number, &adaptive));
        at = *end ? end + 1 : end;
    }
    *out = adaptive;
    return RP_OK;
}

static void add_clusters(const decoder *d, rpi_value_id x, rpi_value_id table,
                         rpi_value_id bias) {
    rpi_builder *b = d->b;
    int64_t clusters = b->adaptive.cutoff_count;
    if (!clusters) return;
    b->adaptive_input = x;
    b->adaptive_weights = (rpi_adaptive_weights){.table = table, .bias = bias};
    b->adaptive_weights.cluster_weight =
        rpi_block_table(b, "crit.cluster_weight", clusters, d->o->hidden, SPREAD);
    b->adaptive_weights.cluster_bias =
        rpi_declare(b, (rpi_parameter){.name = "crit.cluster_bias",
                                       .shape = {1, {clusters}},
                                       .decay_group = RPI_DECAY_VECTOR,
                                       .init = RPI_INIT_ZEROS});
    if (b->is_decoder)
        b->cluster_scores =
            rpi_linear(b->graph, "crit.clusters", x, b->adaptive_weights.cluster_weight,
                       b->adaptive_weights.cluster_bias);
}

static rp_status check(const xl_options *o, const rpi_data_shape *shape) {
    if (o->hidden % 2)
        return RP_FAIL(INVALID, "hidden=%lld is odd; half of a distance's row are sines",
                       (long long)o->hidden);
    return rpi_check_tokens(shape, o->vocabulary, INT32_MAX);
}

static rpi_value_id bias_of_heads(const decoder *d, const char *name) {
    return rpi_block_table(d->b, name, d->o->heads, d->o->head, SPREAD);
}

static rpi_value_id build(rpi_builder *b, const void *chosen, const rpi_data_shape *shape,
                          rpi_value_id tokens) {
    decoder d = {.b = b, .o = chosen};
    rp_status status = check(d.o, shape);
    if (status == RP_OK) status = parse_cutoffs(d.o, &b->adaptive);
    if (status != RP_OK) rpi_graph_fail(b->graph, status, "%s", rp_last_error()->message);
    rpi_value_id table = rpi_block_table(b, "word_emb.emb_layers.0.weight", d.o->vocabulary,
                                         d.o->hidden, SPREAD);
    d.content_bias = bias_of_heads(&d, "r_w_bias");
    d.position_bias = bias_of_heads(&d, "r_r_bias");
    (void)rpi_block_remembered(b); /* before the memories among the graph's inputs */
    rpi_value_id x = rpi_embedding(b->graph, "word_emb", tokens, table);
    x = rpi_scale(b->graph, "word_emb.scale", x, sqrtf((float)d.o->hidden));
    x = drop(&d, "drop", x);
    d.distances = make_distances(&d, x);
    for (int layer = 0; layer < d.o->layers; layer++) {
        snprintf(d.layer, sizeof d.layer, "layers.%d", layer);
        x = attend(&d, x);
        x = feed_forward(&d, x);
    }
    x = drop(&d, "drop.out", x);
    rpi_value_id bias = rpi_declare(b, (rpi_parameter){.name = "crit.out_layers.0.bias",
                                                       .shape = {1, {d.o->vocabulary}},
                                                       .decay_group = RPI_DECAY_VECTOR,
                                                       .init = RPI_INIT_ZEROS});
    add_clusters(&d, x, table, bias);
    return rpi_linear(b->graph, "crit", x, table, bias);
}

static int64_t memory(const void *chosen) {
    return ((const xl_options *)chosen)->memory;
}

const rpi_model rpi_model_transformer_xl = {
    .name = "transformer-xl",
    .summary =
        "Transformer-XL, a decoder that remembers the segment before (151M parameters as "
        "it stands)",
    .task = "language-model",
    .options = options,
    .sizes = sizes,
    .memory = memory,
    .build = build,
};
