/* BERT: an encoder of transformer blocks that look both ways, and its heads: the two of
 * pre-training, or that of spans.
 *
 *     x = layer_norm(tokens' words + positions + segments' types)
 *     for each layer:
 *         x = layer_norm(x + dense(attention(query(x), key(x), value(x))))        both ways
 *         x = layer_norm(x + dense(gelu(dense(x))))             four times as wide inside
 *     what was hidden: layer_norm(gelu(dense(x))) words^T + bias     the table once more
 *     what follows:    seq_relationship(tanh(pooler(x of the first token)))
 *     spans=on, in place of both: where an answer begins and ends, qa_outputs(x) of each token
 *
 * Devlin, Chang, Lee, Toutanova, "BERT: pre-training of deep bidirectional transformers", NAACL
 * 2019. Names are those of Hugging Face's files. Weights start normal with deviation 0.02,
 * biases at 0. pre-ln=on: blocks normalise first, x = x + f(layer_norm(x)), with a norm behind
 * the last and none before the first, and what is added to x starts with 0.02 / sqrt(2 layers):
 * Shoeybi et al., "Megatron-LM", 2019, which is stable where the other grows deep. Tokens of
 * the padding see one another only. */
#include "train/models/activation.h"

#include "base/status.h"
#include "engine/layers.h"

#include <math.h>
#include <stdio.h>

extern const rpi_model rpi_model_bert;

enum { LONGEST_NAME = 96, LARGEST_HEAD = 256, SEGMENTS = 2, FOLLOWS_OR_NOT = 2, ENDS = 2 };
enum { TOKENS_INPUT, SEGMENTS_INPUT, DOCUMENTS_INPUT }; /* of both tasks */
#define SPREAD 0.02

typedef struct bert_options {
    int64_t layers, hidden, heads, intermediate, vocabulary, positions;
    double dropout, attention_dropout, norm_epsilon;
    const char *activation;
    bool pre_ln, spans;
} bert_options;

#define NUMBER(name, fallback, most, help)                                                     \
    RPI_MODEL_OPTION(#name, RPI_OPTION_COUNT, offsetof(bert_options, name), fallback, 1, most, \
                     "N", help, NULL)
static const rpi_option options[] = {
    NUMBER(layers, "12", 1000, "blocks"),
    NUMBER(hidden, "768", 65536, "width of a token"),
    NUMBER(heads, "12", 1024, "of attention, which share the width"),
    RPI_MODEL_OPTION("intermediate", RPI_OPTION_COUNT, offsetof(bert_options, intermediate),
                     "0", 0, 1048576, "N", "width inside of a block; 0: four times hidden",
                     NULL),
    NUMBER(vocabulary, "30522", 16777216, "tokens that there are"),
    NUMBER(positions, "512", 1048576, "the longest sequence"),
    RPI_MODEL_OPTION("dropout", RPI_OPTION_REAL, offsetof(bert_options, dropout), "0", 0, 0.99,
                     "P", "of the embeddings and of what a block adds", NULL),
    RPI_MODEL_OPTION("attention-dropout", RPI_OPTION_REAL,
                     offsetof(bert_options, attention_dropout), "0", 0, 0.99, "P",
                     "of the weights of attention", NULL),
    RPI_MODEL_OPTION("norm-epsilon", RPI_OPTION_REAL, offsetof(bert_options, norm_epsilon),
                     "1e-12", 0, 1, "X", "beside the variance of the norms", NULL),
    RPI_ACTIVATION_OPTION(bert_options, activation, "gelu"),
    RPI_MODEL_OPTION("pre-ln", RPI_OPTION_FLAG, offsetof(bert_options, pre_ln), "off", 0, 0,
                     "on|off", "blocks normalise first, as Megatron's", NULL),
    RPI_MODEL_OPTION("spans", RPI_OPTION_FLAG, offsetof(bert_options, spans), "off", 0, 0,
                     "on|off", "a head that finds answers in a text, for --data spans:", NULL),
    {0},
};

static const rpi_model_head other_heads[] = {{"spans", "spans"}, {0}};

static const rpi_model_size sizes[] = {
    {"base", "layers=12,hidden=768,heads=12"},
    {"large", "layers=24,hidden=1024,heads=16"},
    {0},
};

typedef struct encoder {
    rpi_builder *b;
    const bert_options *o;
    char layer[LONGEST_NAME]; /* "bert.encoder.layer.3" */
} encoder;

/* "bert.encoder.layer.3.output.dense"; of the current layer. */
static const char *part_of(const encoder *e, const char *part, char text[2 * LONGEST_NAME]) {
    snprintf(text, 2 * (size_t)LONGEST_NAME, "%s.%s", e->layer, part);
    return text;
}

static rpi_value_id norm(const encoder *e, const char *name, rpi_value_id x) {
    return rpi_block_layer_norm(e->b, name, x, (int)e->o->hidden, (float)e->o->norm_epsilon);
}

static rpi_value_id norm_part(const encoder *e, const char *part, rpi_value_id x) {
    char name[2 * LONGEST_NAME];
    return norm(e, part_of(e, part, name), x);
}

static rpi_value_id dense(const encoder *e, const char *part, rpi_value_id x, int64_t in,
                          int64_t out, double spread, rpi_shard shard) {
    char name[2 * LONGEST_NAME];
    const rpi_linear_layer layer = {.in = in,
                                    .out = out,
                                    .weight = {RPI_INIT_NORMAL, spread},
                                    .has_bias = true,
                                    .shard = shard};
    return rpi_block_linear_layer(e->b, part_of(e, part, name), x, &layer);
}

static rpi_value_id drop(const encoder *e, const char *name, rpi_value_id x) {
    return rpi_block_dropout(e->b, name, x, e->o->dropout);
}

/* x + y, if y is the output of a block. */
static rpi_value_id add(const encoder *e, const char *part, rpi_value_id x, rpi_value_id y) {
    char name[2 * LONGEST_NAME], text[LONGEST_NAME];
    snprintf(text, sizeof text, "%s.dropout", part);
    y = drop(e, part_of(e, text, name), y);
    snprintf(text, sizeof text, "%s.add", part);
    return rpi_add(e->b->graph, part_of(e, text, name), x, y);
}

/* Of what is added to x. */
static double spread_out(const encoder *e) {
    return e->o->pre_ln ? SPREAD / sqrt(2 * (double)e->o->layers) : SPREAD;
}

static rpi_value_id attend(const encoder *e, rpi_value_id x) {
    char name[2 * LONGEST_NAME];
    int64_t width = e->o->hidden;
    int64_t each = width / e->o->heads;
    rpi_shard by_heads = rpi_shard_heads(0, e->o->heads, each);
    x = rpi_block_split(e->b, part_of(e, "attention", name), x);
    rpi_value_id q = dense(e, "attention.self.query", x, width, width, SPREAD, by_heads);
    rpi_value_id k = dense(e, "attention.self.key", x, width, width, SPREAD, by_heads);
    rpi_value_id v = dense(e, "attention.self.value", x, width, width, SPREAD, by_heads);
    rpi_attention_attributes heads = {.heads = (int)e->o->heads,
                                      .dropout = (float)e->o->attention_dropout};
    rpi_value_id y =
        rpi_block_attention(e->b, part_of(e, "attention.self", name), q, k, v,
                            e->b->inputs[DOCUMENTS_INPUT], rpi_block_own_heads(e->b, heads));
    return dense(e, "attention.output.dense", y, width, width, spread_out(e),
                 rpi_shard_heads(1, e->o->heads, each));
}

static rpi_value_id feed_forward(const encoder *e, rpi_value_id x) {
    char name[2 * LONGEST_NAME];
    int64_t width = e->o->hidden, inside = e->o->intermediate;
    x = rpi_block_split(e->b, part_of(e, "intermediate", name), x);
    x = dense(e, "intermediate.dense", x, width, inside, SPREAD, rpi_shard_cut(0, inside));
    x = rpi_block_activation(e->b, part_of(e, "intermediate.gelu", name), x, e->o->activation);
    return dense(e, "output.dense", x, inside, width, spread_out(e), rpi_shard_cut(1, inside));
}

static rpi_value_id add_layer(const encoder *e, rpi_value_id x) {
    if (e->o->pre_ln) {
        x = add(e, "attention", x, attend(e, norm_part(e, "attention.ln", x)));
        return add(e, "output", x, feed_forward(e, norm_part(e, "ln", x)));
    }
    x = norm_part(e, "attention.output.LayerNorm", add(e, "attention", x, attend(e, x)));
    return norm_part(e, "output.LayerNorm", add(e, "output", x, feed_forward(e, x)));
}

static rpi_value_id embed(const encoder *e, rpi_value_id words) {
    rpi_graph *graph = e->b->graph;
    const rpi_value_id *inputs = e->b->inputs;
    int64_t width = e->o->hidden;
    rpi_value_id positions = rpi_block_table(e->b, "bert.embeddings.position_embeddings.weight",
                                             e->o->positions, width, SPREAD);
    rpi_value_id types = rpi_block_table(e->b, "bert.embeddings.token_type_embeddings.weight",
                                         SEGMENTS, width, SPREAD);
    rpi_value_id x = rpi_block_tokens(e->b, "bert.embeddings.word_embeddings",
                                      inputs[TOKENS_INPUT], words, e->o->vocabulary);
    rpi_value_id type = rpi_embedding(graph, "bert.embeddings.token_type_embeddings",
                                      inputs[SEGMENTS_INPUT], types);
    type = rpi_block_own_tokens(e->b, "bert.embeddings.token_type_embeddings", type);
    x = rpi_add(graph, "bert.embeddings.add", x, type);
    x = rpi_block_positions(e->b, "bert.embeddings.position_embeddings", x, positions);
    if (!e->o->pre_ln) x = norm(e, "bert.embeddings.LayerNorm", x);
    return drop(e, "bert.embeddings.dropout", x);
}

/* Does the second piece of text follow the first? */
static rpi_value_id add_next_head(const encoder *e, rpi_value_id x) {
    int width = (int)e->o->hidden;
    x = rpi_block_first_token(e->b, "bert.pooler.first_token", x);
    x = rpi_block_normal_linear(e->b, "bert.pooler.dense", x, width, width, SPREAD);
    x = rpi_tanh(e->b->graph, "bert.pooler.tanh", x);
    return rpi_block_normal_linear(e->b, "cls.seq_relationship", x, width, FOLLOWS_OR_NOT,
                                   SPREAD);
}

/* Which token was here? */
static rpi_value_id add_word_head(const encoder *e, rpi_value_id x, rpi_value_id words) {
    int width = (int)e->o->hidden;
    x = rpi_block_normal_linear(e->b, "cls.predictions.transform.dense", x, width, width,
                                SPREAD);
    x = rpi_block_activation(e->b, "cls.predictions.transform.gelu", x, e->o->activation);
    x = norm(e, "cls.predictions.transform.LayerNorm", x);
    rpi_value_id bias =
        rpi_declare(e->b, (rpi_parameter){.name = "cls.predictions.bias",
                                          .shape = {1, {e->o->vocabulary}},
                                          .decay_group = RPI_DECAY_VECTOR,
                                          .init = RPI_INIT_ZEROS,
                                          .shard = rpi_shard_cut(0, e->o->vocabulary)});
    return rpi_block_logits(e->b, "cls.predictions.decoder", x, words, bias, e->o->vocabulary);
}

/* Where does the answer begin, and where does it end? batch x 2 x sequence. */
static rpi_value_id add_span_head(const encoder *e, rpi_value_id x) {
    rpi_graph *graph = e->b->graph;
    x = rpi_block_normal_linear(e->b, "qa_outputs", x, (int)e->o->hidden, ENDS, SPREAD);
    x = rpi_block_whole_sequence(e->b, "qa_outputs", x);
    if (x == RPI_NO_VALUE) return x;
    const int64_t *size = rpi_graph_value(graph, x)->shape.size;
    rpi_shape tokens_first = {4, {size[0], size[1], 1, ENDS}};
    x = rpi_reshape(graph, "qa_outputs.reshape", x, tokens_first);
    return rpi_image_tokens(graph, "qa_outputs.transpose", x, RPI_NO_VALUE);
}

static void fill_in(void *chosen) {
    bert_options *o = chosen;
    if (!o->intermediate) o->intermediate = 4 * o->hidden;
}

/* Do width and heads, and the data, fit? */
static rp_status check(const bert_options *o, const rpi_data_shape *shape) {
    long long hidden = o->hidden, heads = o->heads;
    if (hidden % heads)
        return RP_FAIL(INVALID, "hidden=%lld is no multiple of heads=%lld", hidden, heads);
    if (hidden / heads > LARGEST_HEAD)
        return RP_FAIL(INVALID, "hidden=%lld over heads=%lld are %lld a head; %d are the most",
                       hidden, heads, hidden / heads, LARGEST_HEAD);
    return rpi_check_tokens(shape, o->vocabulary, o->positions);
}

static rpi_value_id build(rpi_builder *b, const void *chosen, const rpi_data_shape *shape,
                          rpi_value_id tokens) {
    encoder e = {.b = b, .o = chosen};
    rp_status status = check(e.o, shape);
    (void)tokens; /* the first of b->inputs */
    if (status != RP_OK) rpi_graph_fail(b->graph, status, "%s", rp_last_error()->message);
    rpi_value_id words = rpi_block_vocabulary(b, "bert.embeddings.word_embeddings.weight",
                                              e.o->vocabulary, e.o->hidden, SPREAD);
    rpi_value_id x = embed(&e, words);
    for (int layer = 0; layer < e.o->layers; layer++) {
        snprintf(e.layer, sizeof e.layer, "bert.encoder.layer.%d", layer);
        x = add_layer(&e, x);
    }
    if (e.o->pre_ln) x = norm(&e, "bert.encoder.ln", x);
    if (e.o->spans) return add_span_head(&e, x);
    b->sample_logits = add_next_head(&e, x);
    return add_word_head(&e, x, words);
}

static rp_status check_split(const void *chosen, const rpi_tensor_split *split) {
    const bert_options *o = chosen;
    RP_TRY(rpi_tensor_split_check(split, "heads", o->heads));
    RP_TRY(rpi_tensor_split_check_units(split, "vocabulary", o->vocabulary));
    return rpi_tensor_split_check_units(split, "intermediate", o->intermediate);
}

const rpi_model rpi_model_bert = {
    .name = "bert",
    .summary = "BERT, an encoder of transformer blocks with both heads of its pre-training, "
               "or one for spans (110M parameters as it stands)",
    .task = "masked-lm",
    .heads = other_heads,
    .options = options,
    .sizes = sizes,
    .fill_in = fill_in,
    .check_split = check_split,
    .shares_sequences = true,
    .build = build,
};
