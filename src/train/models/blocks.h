/* What models are made of: layers that declare their parameters and add their nodes.
 *
 * Failures stay in the graph (rpi_graph_check), so that a model reads as its equations. */
#ifndef RPI_TRAIN_BLOCKS_H
#define RPI_TRAIN_BLOCKS_H

#include "engine/layers.h"
#include "train/data/data_shape.h"
#include "train/models/parameter.h"
#include "train/models/tensor_split.h"

enum { RPI_MEMORIES = 64 }; /* most layers with a memory */

typedef struct rpi_builder {
    rpi_graph *graph;
    rpi_parameter *parameters; /* those that this rank has, in order of declaration */
    int count, room;
    int declared;           /* of the whole model */
    rpi_tensor_split split; /* zeros: no other rank has a part of the model */
    /* Where logits are a slice of the vocabulary: from which token on, of how many; else 0. */
    int64_t first_logit, whole_logits;
    /* Where others have tokens of the sequences, too: the widest keys that are gathered. */
    int64_t gathered_keys;
    const rpi_value_id *inputs; /* those of the task, for models that read several */
    /* Tokens of a sample, where they are a named dimension: this rank's, with what fills them
     * up, and those of all ranks that share it. */
    int64_t sequence, whole_sequence;
    /* What the model says of a sample as a whole, for tasks that ask for that, too. */
    rpi_value_id sample_logits;
    /* Where the loss is that of an adaptive softmax (cutoff_count above 0): of what, by which
     * weights. The logits that the model returns are then scores of each token in its cluster.
     */
    rpi_value_id adaptive_input;
    rpi_adaptive_weights adaptive_weights;
    rpi_adaptive_attributes adaptive;
    rpi_value_id cluster_scores; /* of a decoder: batch x sequence x clusters */
    /* A decoder goes on from tokens of earlier runs: the blocks below put caches behind
     * attention, inputs of the graph of batch x memory, and count places from a position. */
    bool is_decoder;
    /* What a model with a memory has added: rpi_block_with_memory(). */
    rpi_value_id remembered;
    int memory_count;
    rpi_value_id memories[RPI_MEMORIES], remembers[RPI_MEMORIES];
    rpi_value_id position; /* an i32 scalar: tokens in the caches */
} rpi_builder;

void rpi_builder_close(rpi_builder *builder); /* frees the parameters, not the graph */

/* Declare one parameter or state: `record` without its value and index. RPI_NO_VALUE, without
 * a failure of the graph: this tensor rank has nothing of it. */
rpi_value_id rpi_declare(rpi_builder *builder, rpi_parameter record);

/* Filters name.weight (out x in x kernel x kernel), no bias, Kaiming normal by fan-out:
 * deviation sqrt(2 / (out kernel^2)). Padding keeps the size for stride 1. */
rpi_value_id rpi_block_conv(rpi_builder *builder, const char *name, rpi_value_id x, int in,
                            int out, int kernel, int stride);
/* The same with name.bias (out), 0. */
rpi_value_id rpi_block_biased_conv(rpi_builder *builder, const char *name, rpi_value_id x,
                                   int in, int out, int kernel, int stride);
/* name.weight as `init` says, name.bias 0, name.running_mean 0, name.running_var 1, each of
 * `channels`. */
rpi_value_id rpi_block_batch_norm(rpi_builder *builder, const char *name, rpi_value_id x,
                                  int channels, rpi_init_rule init);
/* name.weight as `init` says, name.bias 0, each of `channels`. */
rpi_value_id rpi_block_group_norm(rpi_builder *builder, const char *name, rpi_value_id x,
                                  int channels, int groups, rpi_init_rule init);
/* name.weight (out x in) and name.bias (out), both uniform within 1 / sqrt(in). */
rpi_value_id rpi_block_linear(rpi_builder *builder, const char *name, rpi_value_id x, int in,
                              int out);
/* The same along the last axis of any shape, with the weight normal of a given deviation and
 * the bias 0. */
rpi_value_id rpi_block_normal_linear(rpi_builder *builder, const char *name, rpi_value_id x,
                                     int in, int out, double spread);
/* The same without a bias. */
rpi_value_id rpi_block_projection(rpi_builder *builder, const char *name, rpi_value_id x,
                                  int64_t in, int64_t out, double spread);
/* ---- layers that tensor ranks share ----
 *
 *     x = rpi_block_split(b, name, x);
 *     x = a layer that is cut by its outputs, what is done with each output alone,
 *     x = a layer that is cut by its inputs, which joins the parts
 *
 * In a model that is whole these are the same nodes as those of rpi_block_normal_linear(). */

typedef struct rpi_start {
    rpi_init_rule rule;
    double spread;
} rpi_start;

/* name.weight (out x in) and name.bias (out), along the last axis of x. */
typedef struct rpi_linear_layer {
    int64_t in, out; /* of the whole */
    rpi_start weight, bias;
    bool has_bias;
    const char *separator; /* NULL: "." */
    /* Of the weight. Along axis 0, outputs: the bias is cut alike, and x is what
     * rpi_block_split() gave. Along axis 1, inputs: the ranks' sums are added up, and the bias
     * once. Zeros: each rank has all of it, and does all of the work. */
    rpi_shard shard;
    bool adds; /* as rpi_parameter says, of both */
} rpi_linear_layer;
rpi_value_id rpi_block_linear_layer(rpi_builder *builder, const char *name, rpi_value_id x,
                                    const rpi_linear_layer *layer);
/* x itself in a model that is whole; else NAME.split, once for all layers that take it. */
rpi_value_id rpi_block_split(rpi_builder *builder, const char *name, rpi_value_id x);

/* ---- tokens that tensor ranks share between the layers ----
 *
 * All of these are x itself, or what they say of a whole sequence, but with sequence
 * parallelism (tensor_split.h). Layers know which it is by the shape of x: the gradients of
 * what they declare for a part of the tokens add up. */

/* Is x, batch x tokens x width, this rank's part of the tokens? */
bool rpi_block_is_part(const rpi_builder *builder, rpi_value_id x);
/* All tokens, of which all ranks have made the same, to this rank's part: NAME.part. */
rpi_value_id rpi_block_own_tokens(rpi_builder *builder, const char *name, rpi_value_id x);
/* And back, for what all ranks do alike: NAME.all. */
rpi_value_id rpi_block_all_tokens(rpi_builder *builder, const char *name, rpi_value_id x);
/* From this rank's tokens of each sequence, of which all that share it have their own, to those
 * of the whole sequence, with what fills it up: NAME.whole. */
rpi_value_id rpi_block_whole_sequence(rpi_builder *builder, const char *name, rpi_value_id x);
/* The first token of each sequence, batch x width, on every rank of a layer. Of ranks that
 * share sequences the first has it; what others have is of no matter, and in no loss. */
rpi_value_id rpi_block_first_token(rpi_builder *builder, const char *name, rpi_value_id x);
/* Which tokens of the whole sequence x has. */
rpi_token_pieces rpi_block_pieces(const rpi_builder *builder, rpi_value_id x);
/* Does what is made of all tokens before they are cut see but a part of their gradients? */
bool rpi_block_cuts_tokens(const rpi_builder *builder);

/* How many of so many heads this rank has: one at least, which it then shares. */
int rpi_block_heads(const rpi_builder *builder, int64_t heads);
/* Attributes of attention over all heads to those over this rank's. */
rpi_attention_attributes rpi_block_own_heads(const rpi_builder *builder,
                                             rpi_attention_attributes all);

/* A table of tokens, each rank's a slice of the rows; its rows by token; and logits by it, with
 * or without a bias, of which each rank has its slice. */
rpi_value_id rpi_block_vocabulary(rpi_builder *builder, const char *name, int64_t rows,
                                  int64_t width, double spread);
rpi_value_id rpi_block_tokens(rpi_builder *builder, const char *name, rpi_value_id tokens,
                              rpi_value_id table, int64_t rows);
rpi_value_id rpi_block_logits(rpi_builder *builder, const char *name, rpi_value_id x,
                              rpi_value_id table, rpi_value_id bias, int64_t rows);

/* A row for each token, or place: `name` (rows x width), normal of a given deviation. */
rpi_value_id rpi_block_table(rpi_builder *builder, const char *name, int64_t rows,
                             int64_t width, double spread);
/* name.weight 1, of `width`. */
rpi_value_id rpi_block_rms_norm(rpi_builder *builder, const char *name, rpi_value_id x,
                                int64_t width, float epsilon);
/* The same of each head of x, batch x sequence x (heads D), this rank's of so many in the whole
 * model: name.weight is of one head, and all heads share it. */
rpi_value_id rpi_block_head_norm(rpi_builder *builder, const char *name, rpi_value_id x,
                                 int64_t heads, float epsilon);
/* name.weight 1, name.bias 0, each of `width`. */
rpi_value_id rpi_block_layer_norm(rpi_builder *builder, const char *name, rpi_value_id x,
                                  int width, float epsilon);

/* x itself where the probability is 0, and in a decoder. */
rpi_value_id rpi_block_dropout(rpi_builder *builder, const char *name, rpi_value_id x,
                               double probability);
/* The same inside a cut layer: x is this rank's slice of a last axis of `whole` elements. */
rpi_value_id rpi_block_inner_dropout(rpi_builder *builder, const char *name, rpi_value_id x,
                                     double probability, int64_t whole);

/* What differs in a decoder, and where other ranks have tokens of the same sequences: attention
 * (causal in a decoder), and whatever knows a token's place. documents: RPI_NO_VALUE, or those
 * of the whole sequence, of models that are no decoders. */
rpi_value_id rpi_block_attention(rpi_builder *builder, const char *name, rpi_value_id query,
                                 rpi_value_id key, rpi_value_id value, rpi_value_id documents,
                                 rpi_attention_attributes attributes);
rpi_value_id rpi_block_self_attention(rpi_builder *builder, const char *name, rpi_value_id x,
                                      rpi_attention_attributes attributes);
rpi_value_id rpi_block_rope(rpi_builder *builder, const char *name, rpi_value_id x,
                            rpi_rope_attributes attributes);
rpi_value_id rpi_block_positions(rpi_builder *builder, const char *name, rpi_value_id x,
                                 rpi_value_id table);

/* x (batch x sequence x width) behind what the run of the segment before had at this place:
 * batch x context x width. The memory is an input of the graph called `name`, batch x memory x
 * width, through which no gradient goes; who runs the graph puts the last tokens of both there
 * for the next run (train/segment_memory.h), and binds context to memory + sequence. */
rpi_value_id rpi_block_with_memory(rpi_builder *builder, const char *name, rpi_value_id x);
/* How many of the memory's tokens are there: an i32 scalar, one for the whole graph. */
rpi_value_id rpi_block_remembered(rpi_builder *builder);

/* RP_INVALID: sequences are longer than the positions of a model; says what to do. */
rp_status rpi_check_positions(int64_t sequence, int64_t positions);
/* Does a model of so many tokens and positions take the data? RP_INVALID says what to do. */
rp_status rpi_check_tokens(const rpi_data_shape *shape, int64_t vocabulary, int64_t positions);

#endif
