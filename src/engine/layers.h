/* What a model author writes: one function an op, and the attributes that backends read.
 *
 * Each adds one node named `name` and returns its (first) output, or RPI_NO_VALUE after a
 * failure that rpi_graph_check() tells. Images are N x C x H x W. Absent optional values are
 * RPI_NO_VALUE. Attributes that are 0 and have a default get it here; what a
 * node holds is explicit. */
#ifndef RPI_ENGINE_LAYERS_H
#define RPI_ENGINE_LAYERS_H

#include "engine/graph.h"
#include "engine/rope_stretch.h"
#include "engine/token_pieces.h"

/* y[n,k,i,j] = bias[k] + sum_{c,r,s} x[n,c,i*stride-padding+r,j*stride-padding+s] w[k,c,r,s].
 * weight: K x C x R x S; bias: K or absent. Stride 0 means 1. Padding has no part in the sums:
 * an infinite weight times padding is not NaN. */
typedef struct rpi_conv2d_attributes {
    int stride, padding;
} rpi_conv2d_attributes;
rpi_value_id rpi_conv2d(rpi_graph *graph, const char *name, rpi_value_id input,
                        rpi_value_id weight, rpi_value_id bias,
                        rpi_conv2d_attributes attributes);

/* y = scale[c] (x - mean[c]) / sqrt(variance[c] + epsilon) + shift[c]. In training mean and
 * (biased) variance are the batch's over N, H, W, and the states become
 * (1 - momentum) state + momentum batch's, with the unbiased variance; in evaluation they are
 * the states. epsilon 0 means 1e-5, momentum 0 means 0.1. All of shape C. In training one NaN
 * or infinity makes its whole channel NaN: output, gradients of input and scale, both states.
 */
typedef struct rpi_batch_norm2d_attributes {
    float epsilon, momentum;
} rpi_batch_norm2d_attributes;
rpi_value_id rpi_batch_norm2d(rpi_graph *graph, const char *name, rpi_value_id input,
                              rpi_value_id scale, rpi_value_id shift, rpi_value_id running_mean,
                              rpi_value_id running_variance,
                              rpi_batch_norm2d_attributes attributes);

/* y = scale[c] (x - mean) / sqrt(variance + epsilon) + shift[c] with the mean and (biased)
 * variance over H, W and the C / groups channels of c's group in each image, in training and in
 * evaluation alike (Wu, He, "Group normalization", 2018). groups divides C; epsilon 0 means
 * 1e-5. scale, shift: C. One NaN or infinity makes its whole group of its image NaN. */
typedef struct rpi_group_norm_attributes {
    int groups;
    float epsilon;
} rpi_group_norm_attributes;
rpi_value_id rpi_group_norm(rpi_graph *graph, const char *name, rpi_value_id input,
                            rpi_value_id scale, rpi_value_id shift,
                            rpi_group_norm_attributes attributes);

/* max(x, 0), and NaN of NaN. The output's gradient is passed where the output is above 0 or
 * NaN; elsewhere, at 0 too, the input's is 0 whatever the output's may be. Any shape. */
rpi_value_id rpi_relu(rpi_graph *graph, const char *name, rpi_value_id input);

/* a + b of equal shapes. */
rpi_value_id rpi_add(rpi_graph *graph, const char *name, rpi_value_id a, rpi_value_id b);

/* Maximum over kernel x kernel windows; padding counts as minus infinity; of equal elements the
 * first in row-major order gets the gradient. NaN is larger than any: a window with one gives
 * NaN, and the first of them gets the gradient. Stride 0 means the kernel's size. */
typedef struct rpi_max_pool2d_attributes {
    int kernel, stride, padding;
} rpi_max_pool2d_attributes;
rpi_value_id rpi_max_pool2d(rpi_graph *graph, const char *name, rpi_value_id input,
                            rpi_max_pool2d_attributes attributes);

/* Mean over H and W: N x C x H x W to N x C. */
rpi_value_id rpi_global_avg_pool(rpi_graph *graph, const char *name, rpi_value_id input);

/* y = x w^T + bias along the last axis. x: ... x I of any rank, weight: O x I, bias: O or
 * absent; y: ... x O. */
rpi_value_id rpi_linear(rpi_graph *graph, const char *name, rpi_value_id input,
                        rpi_value_id weight, rpi_value_id bias);

/* x Phi(x), Phi the normal distribution: (1 + erf(x / sqrt 2)) / 2 as in BERT and ViT, or its
 * approximation (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 as in GPT-2. Any shape. */
typedef enum rpi_gelu_form { RPI_GELU_ERF, RPI_GELU_TANH } rpi_gelu_form;
typedef struct rpi_gelu_attributes {
    rpi_gelu_form form;
} rpi_gelu_attributes;
rpi_value_id rpi_gelu(rpi_graph *graph, const char *name, rpi_value_id input,
                      rpi_gelu_form form);
/* x / (1 + e^-x) */
rpi_value_id rpi_silu(rpi_graph *graph, const char *name, rpi_value_id input);
rpi_value_id rpi_tanh(rpi_graph *graph, const char *name, rpi_value_id input);

/* f(gate) up, of equal shapes. */
typedef enum rpi_glu_gate { RPI_GATE_SILU, RPI_GATE_GELU_ERF, RPI_GATE_GELU_TANH } rpi_glu_gate;
typedef struct rpi_glu_attributes {
    rpi_glu_gate gate;
} rpi_glu_attributes;
rpi_value_id rpi_glu(rpi_graph *graph, const char *name, rpi_value_id gate, rpi_value_id up,
                     rpi_glu_gate function);
/* silu(gate) up, as in LLaMA. */
rpi_value_id rpi_swiglu(rpi_graph *graph, const char *name, rpi_value_id gate, rpi_value_id up);

/* y[...] = table[tokens[...]]. tokens: i32 of any rank up to 7, table: V x W; y: ... x W. A
 * token outside of 0 to V - 1 fails the run, with its place. The table's gradient is dense;
 * only rows of tokens that occur are added to, in the order of the tokens. */
rpi_value_id rpi_embedding(rpi_graph *graph, const char *name, rpi_value_id tokens,
                           rpi_value_id table);
/* The same of a table that is rows [first, first + V) of one of `whole` rows: tokens of other
 * rows, which who has those makes, give zeros. whole 0: the table is all there is. */
typedef struct rpi_embedding_attributes {
    int64_t first, whole;
} rpi_embedding_attributes;
rpi_value_id rpi_embedding_of(rpi_graph *graph, const char *name, rpi_value_id tokens,
                              rpi_value_id table, rpi_embedding_attributes attributes);

/* y[..., t, :] = x[..., t, :] + table[t]. x: ... x T x W, table: P x W with P at least T; axes
 * of 1 may stand before them, as in torchvision's files. */
typedef struct rpi_position_attributes {
    rpi_token_pieces pieces; /* x has these of a sequence: t is a token's place in that */
} rpi_position_attributes;
rpi_value_id rpi_position_embedding_of(rpi_graph *graph, const char *name, rpi_value_id input,
                                       rpi_value_id table, rpi_position_attributes attributes);
rpi_value_id rpi_position_embedding(rpi_graph *graph, const char *name, rpi_value_id input,
                                    rpi_value_id table);
/* The same from table[position] on. position: an i32 scalar; one that leaves the table fails
 * the run. */
rpi_value_id rpi_position_embedding_at(rpi_graph *graph, const char *name, rpi_value_id input,
                                       rpi_value_id table, rpi_value_id position);

/* y = scale (x - mean) / sqrt(variance + epsilon) + shift along the last axis, with its mean
 * and (biased) variance. scale: W; shift: W or absent. epsilon 0 means 1e-5. */
typedef struct rpi_norm_attributes {
    float epsilon;
} rpi_norm_attributes;
rpi_value_id rpi_layer_norm(rpi_graph *graph, const char *name, rpi_value_id input,
                            rpi_value_id scale, rpi_value_id shift,
                            rpi_norm_attributes attributes);

/* y = scale x / sqrt(mean of x^2 + epsilon) along the last axis. epsilon 0 means 1e-5. */
rpi_value_id rpi_rms_norm(rpi_graph *graph, const char *name, rpi_value_id input,
                          rpi_value_id scale, rpi_norm_attributes attributes);

/* Attention, head by head: y_i = sum_j p_ij v_j, p_i = softmax over j of scale q_i . k_j, over
 * the keys that query i sees; the matrix of all pairs never exists. query: batch x T x (heads
 * D), key and value: batch x S x (kv_heads D); y: as query. Heads side by side share a key head
 * where kv_heads is less (0 means as many). D is at most 256. causal: no key behind the query;
 * window w: only keys less than w away (0: all); for both the queries are the last T of the S
 * keys. documents (or absent): i32, batch x S, T = S unless queries are pieces: a row holds
 * several texts, and a query sees only keys of its own; one begins where the number changes.
 * NaN and infinity: of a key or value they reach only queries that see it, in the forward pass;
 * in the backward pass they may reach more of the sequence. pieces: the T queries are these of
 * a sequence, whose S keys are all there, and stand among them where they are in it; no query
 * sees the padding of the last ones. */
typedef struct rpi_attention_attributes {
    int heads, kv_heads;
    bool causal;
    int window;
    float scale;   /* 0 means 1 / sqrt(D) */
    float dropout; /* of p, after the softmax, as rpi_dropout does it; none in evaluation */
    /* Heads are [first_head, first_head + heads) of `whole_heads`, and dropout's mask theirs;
     * whole_heads 0: they are all there are. */
    int first_head, whole_heads;
    rpi_token_pieces pieces; /* of queries */
} rpi_attention_attributes;
rpi_value_id rpi_attention(rpi_graph *graph, const char *name, rpi_value_id query,
                           rpi_value_id key, rpi_value_id value, rpi_value_id documents,
                           rpi_attention_attributes attributes);
/* The same of one input, as one linear layer makes it: batch x T x ((heads + 2 kv_heads) D), in
 * a token all queries, then all keys, then all values. */
rpi_value_id rpi_self_attention(rpi_graph *graph, const char *name, rpi_value_id input,
                                rpi_value_id documents, rpi_attention_attributes attributes);

/* What tokens of earlier runs have left: keys and values, batch x M x (kv_heads D), inputs of
 * the graph that belong to this node alone and that a run rewrites (RPI_CACHE in op.h); and how
 * many tokens they hold, an i32 scalar, M - T at most. */
typedef struct rpi_cache {
    rpi_value_id keys, values, position;
} rpi_cache;
/* Causal attention of T tokens behind those in the cache: their keys and values are put there,
 * then the queries see them and all before. Tokens that come one by one, or some at a time,
 * give what they give at once, and cost what their own queries cost. For inference: it has no
 * gradients. */
rpi_value_id rpi_cached_attention(rpi_graph *graph, const char *name, rpi_value_id query,
                                  rpi_value_id key, rpi_value_id value, rpi_cache cache,
                                  rpi_attention_attributes attributes);
rpi_value_id rpi_cached_self_attention(rpi_graph *graph, const char *name, rpi_value_id input,
                                       rpi_cache cache, rpi_attention_attributes attributes);

/* The tokens of a memory, batch x M x W, then those of the input, batch x T x W: batch x length
 * x W. length is M + T, a number, or a dimension with a name of its own that the program binds
 * to that. */
typedef struct rpi_concat_tokens_attributes {
    int64_t length;
} rpi_concat_tokens_attributes;
rpi_value_id rpi_concat_tokens(rpi_graph *graph, const char *name, rpi_value_id memory,
                               rpi_value_id input, int64_t length);

/* A row for each distance from 0 on, as wide as tokens (batch x T x W, whose elements are not
 * read): rows x W, W / 2 sines of distance 10000^(-2c / W), then their cosines. Distances
 * beyond `clamp` are taken for that; 0: all as they are. rows: a number or a named dimension.
 */
typedef struct rpi_sinusoids_attributes {
    int64_t rows, clamp;
} rpi_sinusoids_attributes;
rpi_value_id rpi_sinusoids(rpi_graph *graph, const char *name, rpi_value_id tokens,
                           rpi_sinusoids_attributes attributes);

/* Attention of Transformer-XL: y_i = sum_j p_ij v_j, p_i = softmax over j of
 * scale ((q_i + u) . k_j + (q_i + v) . r_d), d being how far j lies before i. input: batch x S
 * x (3 heads D), in a token all queries, then keys, then values; the last `queries` tokens ask,
 * and each sees all tokens up to itself, or the `window` last of them. distances: S x (heads
 * D), row d for distance d. u (content bias), v (position bias): heads x D, shared by all
 * tokens. remembered (or absent): an i32 scalar, how many of the S - queries tokens before are
 * there; those further back are not seen. Neither scores nor their shifted copy ever exist as a
 * whole. queries: a number or a named dimension. */
typedef struct rpi_relative_attention_attributes {
    int heads, window;
    int64_t queries;
    float scale;   /* 0 means 1 / sqrt(D) */
    float dropout; /* of p, as in rpi_attention_attributes */
} rpi_relative_attention_attributes;
rpi_value_id rpi_relative_attention(rpi_graph *graph, const char *name, rpi_value_id input,
                                    rpi_value_id distances, rpi_value_id content_bias,
                                    rpi_value_id position_bias, rpi_value_id remembered,
                                    rpi_relative_attention_attributes attributes);

/* Rotary positions of queries or keys, batch x T x (heads D): of token t, elements c and
 * c + rotary / 2 of each head are turned by the angle t base^(-2c / rotary), as in Hugging
 * Face's LLaMA; `pairs`: elements 2c and 2c + 1, as in Meta's files. Elements from `rotary` on
 * stay. Angles can be stretched, for texts longer than those that a model was trained on. */
typedef struct rpi_rope_attributes {
    int heads;
    int rotary;  /* elements of a head that are turned, even; 0 means all */
    double base; /* 0 means 10000 */
    bool pairs;
    rpi_rope_stretch stretch;
    rpi_token_pieces pieces; /* the tokens are these of a sequence, and t counts in that */
} rpi_rope_attributes;
rpi_value_id rpi_rope(rpi_graph *graph, const char *name, rpi_value_id input,
                      rpi_rope_attributes attributes);
/* The same, the first token being the position-th: an i32 scalar, 0 or more. */
rpi_value_id rpi_rope_at(rpi_graph *graph, const char *name, rpi_value_id input,
                         rpi_value_id position, rpi_rope_attributes attributes);

/* factor x; any shape. */
typedef struct rpi_scale_attributes {
    float factor;
} rpi_scale_attributes;
rpi_value_id rpi_scale(rpi_graph *graph, const char *name, rpi_value_id input, float factor);

/* In training an element is 0 with this probability, which is rounded to 1 / 65536, and is else
 * divided by the probability of staying; in evaluation y = x. The mask follows from
 * rpi_run_options.seed and the low 32 bits of .step, the node's name, the sample's number in
 * the whole batch (.first_sample and on, where the first axis is the dimension "batch") and the
 * element's index in it: it is the same in backward and in recomputation, on every backend and
 * machine, and for any cut of a batch into runs, on however many ranks. */
typedef struct rpi_dropout_attributes {
    float probability;
    /* The last axis is [first, first + W) of one of `whole`, and the mask that of these
     * elements; whole 0: it is all there is. */
    int64_t first, whole;
    rpi_token_pieces pieces; /* of batch x T x W: T is these of a sequence, likewise */
} rpi_dropout_attributes;
rpi_value_id rpi_dropout(rpi_graph *graph, const char *name, rpi_value_id input,
                         float probability);
rpi_value_id rpi_dropout_of(rpi_graph *graph, const char *name, rpi_value_id input,
                            rpi_dropout_attributes attributes);

/* An image as a sequence: N x C x H x W to N x (H W) x C, row by row; with a class token (C or
 * 1 x 1 x C, or absent) N x (1 + H W) x C, where that comes first. Without one C may be a named
 * dimension. */
rpi_value_id rpi_image_tokens(rpi_graph *graph, const char *name, rpi_value_id input,
                              rpi_value_id class_token);

/* The index-th token of each sequence: batch x T x W to batch x W. */
typedef struct rpi_select_token_attributes {
    int64_t index;
} rpi_select_token_attributes;
rpi_value_id rpi_select_token(rpi_graph *graph, const char *name, rpi_value_id input,
                              int64_t index);

/* N x anything to N x (product of the rest), without a copy. */
rpi_value_id rpi_flatten(rpi_graph *graph, const char *name, rpi_value_id input);

/* The elements in the same order under another shape of as many, without a copy: a product of
 * named dimensions (rpi_dimension_multiply) makes rows of batch x sequence. */
typedef struct rpi_reshape_attributes {
    rpi_shape shape;
} rpi_reshape_attributes;
rpi_value_id rpi_reshape(rpi_graph *graph, const char *name, rpi_value_id input,
                         rpi_shape shape);

/* loss = scale * sum_n -sum_c q[n,c] log softmax(logits[n])[c], a scalar, where q is 1 for the
 * label, or with smoothing s: 1 - s + s / C for it and s / C for all others. Rows whose label
 * is the ignored one have no part in loss, gradient and counts. `scale` is a scalar f32 input,
 * 1 / (valid labels of the global batch), so that ranks and micro-batches of any size add up to
 * the mean. Output 1 (rpi_graph_output) counts rows whose largest logit is the label's, as i32;
 * of equal logits the first counts; output 2 counts valid labels. A row with NaN or +inf makes
 * the loss and the row's gradient NaN and counts as wrong, a label's logit of -inf makes the
 * loss infinite. logits: ... x C, of any rank from 2 on, C a number or a named dimension;
 * labels: one a row, i32 in [0, C), or the ignored one: others fail the run, with their place.
 */
typedef struct rpi_cross_entropy_attributes {
    float smoothing; /* 0 to 1 */
    int ignored;     /* a negative label; 0 means -100 */
} rpi_cross_entropy_attributes;
rpi_value_id rpi_softmax_cross_entropy_with(rpi_graph *graph, const char *name,
                                            rpi_value_id logits, rpi_value_id labels,
                                            rpi_value_id scale,
                                            rpi_cross_entropy_attributes attributes);
/* Without smoothing; -100 is ignored. */
rpi_value_id rpi_softmax_cross_entropy(rpi_graph *graph, const char *name, rpi_value_id logits,
                                       rpi_value_id labels, rpi_value_id scale);

/* The same where several ranks have a slice of the classes each. Statistics of the slice are a
 * few numbers a row (... x RPI_LOGIT_STATISTICS, of logits ... x C): log of the sum of
 * exponentials, the label's logit (0 where it is in another slice), the sum of logits, the
 * largest logit and its class. C classes from `first` on; those from `whole` on are padding,
 * which has no part in anything and no gradient. Those of all slices, slices x ... x
 * RPI_LOGIT_STATISTICS in the order of their classes, give the loss and the outputs above;
 * smoothing is over the whole vocabulary. z_loss z adds z (log of the sum of exponentials)^2 to
 * the loss of a row. Both ops have their own gradients: whoever gathers statistics hands each
 * slice back the gradient of its own. */
enum { RPI_LOGIT_STATISTICS = 5 };
typedef struct rpi_logit_slice {
    int64_t first, whole;
    int ignored; /* 0 means -100 */
} rpi_logit_slice;
rpi_value_id rpi_logit_statistics(rpi_graph *graph, const char *name, rpi_value_id logits,
                                  rpi_value_id labels, rpi_logit_slice slice);
typedef struct rpi_statistics_loss {
    int64_t whole;
    float smoothing, z_loss;
    int ignored; /* 0 means -100 */
} rpi_statistics_loss;
rpi_value_id rpi_statistics_cross_entropy(rpi_graph *graph, const char *name,
                                          rpi_value_id statistics, rpi_value_id labels,
                                          rpi_value_id scale, rpi_statistics_loss loss);

/* The same of logits x table^T + bias that are never all made: tokens below the first cutoff
 * are frequent, and those between two cutoffs, or behind the last, are a cluster. A softmax
 * over the frequent ones and the clusters, then, where the label is in a cluster, one over its
 * tokens: -log p is the sum of both. Row i of the cluster weight is that of the last cluster
 * but i, as in Transformer-XL's published code. A row counts as right where each softmax has
 * the label, or its cluster, first. input: ... x width; table: V x width, bias: V, cluster
 * weight: cutoffs x width, cluster bias: cutoffs. Gradients of the table are dense. Grave,
 * Joulin, Cisse, Grangier, Jegou, "Efficient softmax approximation for GPUs", 2017. */
enum { RPI_CUTOFFS = 7 };
typedef struct rpi_adaptive_attributes {
    int cutoff_count;
    int64_t cutoffs[RPI_CUTOFFS]; /* ascending, above 0 and below V */
    int ignored;                  /* a negative label; 0 means -100 */
} rpi_adaptive_attributes;
typedef struct rpi_adaptive_weights {
    rpi_value_id table, bias, cluster_weight, cluster_bias;
} rpi_adaptive_weights;
rpi_value_id rpi_adaptive_cross_entropy(rpi_graph *graph, const char *name, rpi_value_id input,
                                        rpi_adaptive_weights weights, rpi_value_id labels,
                                        rpi_value_id scale, rpi_adaptive_attributes attributes);

/* A node whose computation is given from above, in two halves so that it overlaps with what
 * does not depend on it: `start` runs when the inputs are there, `finish` just before the first
 * use of an output. Values are row-major f32; pointers are the same in both halves and stay
 * valid and untouched in between. Shapes are bound. */
typedef struct rpi_external_io {
    uint64_t run; /* rpi_run_options.run: which of the runs in flight this is */
    int input_count, output_count;
    /* Of backward: the gradients of the outputs; data NULL where the loss does not depend. */
    const rpi_tensor *inputs;
    /* Of backward: the gradients of the inputs; data NULL where it is not wanted. */
    const rpi_tensor *outputs;
} rpi_external_io;
typedef rp_status (*rpi_external_function)(void *context, const rpi_external_io *io);

typedef struct rpi_external_attributes {
    void *context; /* borrowed; outlives the graph */
    /* start may be NULL (all is done in finish), or finish (all is done in start). Both NULL:
     * output i is input i, without a copy (shapes must then be equal). */
    rpi_external_function forward_start, forward_finish;
    /* Likewise; both NULL: the gradient of input i is that of output i. */
    rpi_external_function backward_start, backward_finish;
    /* In a segment that is recomputed, forward runs again where backward needs its outputs:
     * they are not kept. false: it runs once, and they are. */
    bool repeats;
    /* The same where no segment is recomputed: what forward makes is free when forward has read
     * it, and made again shortly before backward does. */
    bool always_repeats;
    /* The run failed after start had succeeded and before finish was called, which it will not
     * be: what is in flight must let go of the memory before this returns. NULL: nothing to do,
     * as where start leaves nothing behind. */
    void (*cancel)(void *context, uint64_t run, bool is_backward); /* of which functions */
    int output_count; /* 0: one, of the shape of input 0 */
    rpi_shape output_shapes[RPI_NODE_OUTPUTS];
} rpi_external_attributes;
/* Of one input; its first output. */
rpi_value_id rpi_external(rpi_graph *graph, const char *name, rpi_value_id input,
                          rpi_external_attributes attributes);
/* Of 1 to RPI_NODE_INPUTS inputs; further outputs by rpi_graph_output. */
rpi_value_id rpi_external_node(rpi_graph *graph, const char *name, int input_count,
                               const rpi_value_id *inputs, rpi_external_attributes attributes);

#endif
