#include "plan/foresight/rank_memory.h"

#include <math.h>
#include <stddef.h>

const char *const rpi_memory_names[RPI_MEMORY_ITEMS] = {
    "weights",    "gradients", "optimizer", "activations",
    "recomputed", "logits",    "buffers",   "device",
};
const char *const rpi_memory_advice[RPI_MEMORY_ITEMS] = {
    "more --tp or --pp, --zero 3, or more hosts",
    "more --tp or --pp, --zero 2, or more hosts",
    "--zero 1, more --tp or --pp, or more hosts",
    "--recompute full or selective, a smaller --micro-batch-size, or more --tp or --cp",
    "more --tp or --cp, or a smaller --micro-batch-size",
    "more --tp, or a smaller --micro-batch-size",
    "more --tp",
    "a device with more memory",
};

/* ---- activations ---- */

/* Bytes of a token that every tensor-parallel rank holds: inputs and outputs of both norms, and
 * masks. */
static double copied(const rpi_training_layout *l) {
    double h = (double)l->model.hidden;
    return h * (4 * l->precision->activation + (l->model.dropout ? 2 : 0));
}

/* Bytes of a token that tensor-parallel ranks share: queries, keys, values, the output of
 * attention, and the feed-forward part before and after its activation. */
static double shared(const rpi_training_layout *l) {
    const rpi_transformer *m = &l->model;
    double kv = (double)m->kv_heads / (double)m->heads;
    double kv_copies = fmax(1, (double)l->tensor / (double)m->kv_heads);
    double heads = (double)(m->heads * m->head) * (2 + 2 * kv * kv_copies);
    return l->precision->activation * (heads + (m->gated ? 3 : 2) * (double)m->ffn);
}

/* Bytes of a token of the output of softmax, of its dropout's mask, and of the dropout's
 * output. */
static double scores(const rpi_training_layout *l) {
    bool dropout = l->model.attention_dropout;
    double each = l->precision->activation * (dropout ? 2 : 1) + dropout;
    if (l->fused_attention) return 4 * (double)l->model.heads;
    return each * (double)l->model.heads * (double)l->sequence;
}

static double layer_bytes(const rpi_training_layout *l, rpi_recompute recompute) {
    double t = (double)l->tensor, parts = rpi_layout_parts(l);
    double input = l->precision->activation * (double)l->model.hidden;
    if (recompute == RPI_RECOMPUTE_FULL) return rpi_layout_tokens(l) * input / parts;
    double kept = copied(l) / parts + shared(l) / t;
    bool has_scores = recompute == RPI_RECOMPUTE_NONE || l->fused_attention;
    return rpi_layout_tokens(l) * (kept + (has_scores ? scores(l) / t : 0));
}

double rpi_layer_activation_bytes(const rpi_training_layout *l) {
    return layer_bytes(l, l->recompute);
}

int64_t rpi_stage_layers(const rpi_training_layout *l, int64_t stage) {
    int64_t p = l->pipeline, each = l->model.layers / p, left = l->model.layers % p;
    if (stage == p - 1) return each;
    return each + (stage > 0 ? stage <= left : left == p - 1);
}

double rpi_stage_in_flight(const rpi_training_layout *l, int64_t stage) {
    double p = (double)l->pipeline, v = (double)l->interleave;
    double micro = (double)rpi_layout_micro_batches(l);
    double most = p - (double)stage;
    if (v > 1) most = (2 * (p - 1 - (double)stage) + (v - 1) * p + 1) / v;
    return fmin(most, micro);
}

/* ---- parameters ---- */

static double around(const rpi_training_layout *l, int64_t stage) {
    const rpi_transformer *m = &l->model;
    rpi_transformer_parameters p = rpi_transformer_count(m);
    bool is_last = stage == l->pipeline - 1;
    double all = (stage == 0 ? p.embedding : 0) + (is_last ? p.head : 0);
    if (m->tied && is_last && stage > 0) all += (double)(m->vocabulary * m->hidden);
    return all;
}

double rpi_stage_parameters(const rpi_training_layout *l, int64_t stage) {
    rpi_transformer_parameters p = rpi_transformer_count(&l->model);
    double t = (double)l->tensor, layers = (double)rpi_stage_layers(l, stage);
    return layers * (p.layer_matrices / t + p.layer_vectors) + around(l, stage) / t;
}

static void add_parameters(const rpi_training_layout *l, int64_t stage, rpi_rank_memory *r) {
    const rpi_precision *p = l->precision;
    double n = rpi_stage_parameters(l, stage), d = (double)rpi_layout_sharers(l);
    r->bytes[RPI_MEMORY_WEIGHTS] = n * p->weight / (l->zero >= 3 ? d : 1);
    r->bytes[RPI_MEMORY_GRADIENTS] = n * p->gradient / (l->zero >= 2 ? d : 1);
    r->bytes[RPI_MEMORY_OPTIMIZER] = n * p->optimizer / (l->zero >= 1 ? d : 1);
}

/* Keys and values of one layer's whole sequences, if ranks share these, and once more while
 * they are sent. */
static double keys(const rpi_training_layout *l) {
    double whole = rpi_layout_tokens(l) * (double)l->context * 2 * rpi_layout_keys(l);
    return l->context > 1 ? 2 * whole * l->precision->activation : 0;
}

/* ZeRO 3: the group that computes and the next one, in 2 bytes where products are in 2 bytes. A
 * pipeline: received and sent messages. */
static double buffers(const rpi_training_layout *l) {
    rpi_transformer_parameters p = rpi_transformer_count(&l->model);
    double t = (double)l->tensor, parts = rpi_layout_parts(l), bytes = keys(l);
    double layer = p.layer_matrices / t + p.layer_vectors;
    if (l->zero == 3 && rpi_layout_sharers(l) > 1)
        bytes += l->precision->activation * (layer + fmax(layer, p.embedding / t));
    if (l->pipeline > 1)
        bytes += 2 * rpi_layout_tokens(l) * l->precision->activation * (double)l->model.hidden /
                 parts;
    return bytes;
}

/* What the last stage keeps: the head's input, and logits in 4 bytes, which softmax turns into
 * gradients in place; 4 s b h (1 + V / h) / t. */
static double logits(const rpi_training_layout *l) {
    double t = (double)l->tensor, width = (double)(l->model.hidden + l->model.vocabulary);
    return 4 * rpi_layout_tokens(l) * width / t;
}

rpi_rank_memory rpi_rank_memory_of(const rpi_training_layout *l, int64_t stage,
                                   double context_bytes, double fragment_share) {
    rpi_rank_memory r = {.stage = stage};
    double layers = (double)rpi_stage_layers(l, stage), kept = rpi_layer_activation_bytes(l);
    add_parameters(l, stage, &r);
    r.bytes[RPI_MEMORY_KEPT] = layers * kept * rpi_stage_in_flight(l, stage);
    if (l->recompute != RPI_RECOMPUTE_NONE)
        r.bytes[RPI_MEMORY_PASSING] = layer_bytes(l, RPI_RECOMPUTE_NONE) - kept;
    if (stage == l->pipeline - 1) r.bytes[RPI_MEMORY_LOGITS] = logits(l);
    r.bytes[RPI_MEMORY_BUFFERS] = buffers(l);
    double all = 0;
    for (int i = 0; i < RPI_MEMORY_ITEMS; i++) all += r.bytes[i];
    r.bytes[RPI_MEMORY_DEVICE] = context_bytes + fragment_share * all;
    r.all = all + r.bytes[RPI_MEMORY_DEVICE];
    return r;
}

rpi_rank_memory rpi_rank_memory_most(const rpi_training_layout *l, double context_bytes,
                                     double fragment_share) {
    rpi_rank_memory most = rpi_rank_memory_of(l, 0, context_bytes, fragment_share);
    for (int64_t stage = 1; stage < l->pipeline; stage++) {
        rpi_rank_memory r = rpi_rank_memory_of(l, stage, context_bytes, fragment_share);
        if (r.all > most.all) most = r;
    }
    return most;
}

rpi_memory_item rpi_rank_memory_largest(const rpi_rank_memory *r) {
    int largest = 0;
    for (int i = 1; i < RPI_MEMORY_ITEMS; i++)
        if (r->bytes[i] > r->bytes[largest]) largest = i;
    return (rpi_memory_item)largest;
}
