/* Scaled dot-product attention that never holds the queries x keys matrix: blocks of 64 keys,
 * with a running maximum and sum for each query.
 *
 * Shapes: q, out, dout, dq [batch, q_length, heads, head_size]; k, v, dk, dv [batch, k_length,
 * kv_heads, head_size]; f32 or bf16, placed by strides, the elements of a head side by side:
 * three parts of one GEMM's output can be read where they lie. Head h reads key head h / (heads
 * / kv_heads). lse [batch, heads, q_length] f32. Arithmetic and sums are f32.
 *
 *   s_ij = scale q_i . k_j,   p_ij = e^(s_ij - lse_i),   lse_i = log sum_j e^s_ij
 *   out_i = sum_j p_ij v_j
 *   D_i = dout_i . out_i,     ds_ij = p_ij (dout_i . v_j - D_i)
 *   dv_j = sum_i p_ij dout_i, dk_j = scale sum_i ds_ij q_i, dq_i = scale sum_j ds_ij k_j
 *
 * With dropout weights are multiplied by m_ij, 0 or 1 / (1 - probability), after the softmax:
 *
 *   out_i = sum_j m_ij p_ij v_j,   ds_ij = p_ij (m_ij dout_i . v_j - D_i),
 *   dv_j = sum_i m_ij p_ij dout_i
 *
 * and the mask is drawn again backward. m_ij of head h in batch b is the factor of element
 * 128 (((b heads + h) ceil(q_length / 2) + i / 2) ceil(k_length / 64) + j / 64) + 64 (i mod 2)
 * + j mod 64 as kernel_dropout.h defines it.
 *
 * Query i stands at position i + q_offset among the keys; where the queries are pieces of the
 * sequence of all keys, at its place in that, and there i of the mask is that place, and
 * q_length and k_length those of the sequence without its padding, which is not seen. It sees
 * the keys j from first_key on, below lengths[b], not after it where `causal`, less than
 * `window` away where that is set, and of its own document: document_starts[b][j] is where the
 * document of position j begins. A query that sees none has out 0, lse -infinity and gradients
 * 0. What is no number in a key or a query that takes no part in an output does not reach it in
 * the forward pass; in the backward pass it may reach queries and keys of its block.
 *
 * Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning",
 * 2023. Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018. */
#ifndef RPI_ENGINE_KERNEL_ATTENTION_H
#define RPI_ENGINE_KERNEL_ATTENTION_H

#include "engine/backends/cpu/kernels/kernel_dropout.h"
#include "engine/token_pieces.h"

enum { RPI_ATTENTION_HEAD_SIZE = 256 }; /* the largest head_size */

/* Transformer-XL: the score depends on how far a key lies before its query, by rows of
 * distances and two biases that all queries share:
 *
 *   s_ij = scale ((q_i + u) . k_j + (q_i + v) . r_d),   d = i + q_offset - j
 *   du = sum_i dq_i of the first product, dv of the second; dr_d = scale sum_i ds_ij (q_i + v)
 *
 * Causal, kv_heads = heads, q_offset = k_length - q_length. The queries x distances matrix
 * never exists either: in a block of keys a query's distances lie side by side, each query's
 * one place further than those of the query before it.
 * Dai et al., "Transformer-XL: attentive language models beyond a fixed-length context", 2019,
 * appendix B. */
typedef struct rpi_kernel_relative {
    const float *r;      /* [k_length, heads, head_size]; row d: of distance d */
    const float *u, *v;  /* [heads, head_size] */
    float *dr, *du, *dv; /* backward: written; NULL: not wanted */
    float *packed;       /* rpi_kernel_attention_packed() floats, content of no matter */
} rpi_kernel_relative;

typedef struct rpi_kernel_attention {
    int64_t batch, heads, kv_heads, q_length, k_length, head_size;
    int64_t q_offset;        /* k_length - q_length where queries follow cached keys */
    rpi_token_pieces pieces; /* of queries; count 0: all that there are. q_offset is then 0 */
    float scale;             /* 1 / sqrt(head_size) as a rule */
    bool causal;
    int64_t window;                 /* 0: none */
    int64_t first_key;              /* those before it are not seen: memory not yet filled */
    const int32_t *lengths;         /* [batch] or NULL: all keys */
    const int32_t *document_starts; /* [batch, k_length], never falling; NULL: one document */
    rpi_kernel_heads q, k, v;
    rpi_kernel_heads out; /* forward: written; backward: read */
    float *lse;           /* likewise; forward: NULL when there is no backward pass */

    rpi_kernel_heads dout, dq, dk, dv; /* backward; none may overlap */
    float *scratch; /* backward: rpi_kernel_attention_scratch() floats, content of no matter */
    const rpi_kernel_relative *relative; /* NULL: s_ij as above */
    rpi_dropout_mask dropout;            /* of the weights; probability 0: none */
    int64_t first_batch;                 /* what the mask takes batch 0 for, */
    int64_t first_head, whole_heads;     /* and head 0, of so many; 0: of `heads` */
} rpi_kernel_attention;

/* Threads share heads and blocks of queries; 750 KB of a thread's stack are used. */
void rpi_kernel_attention_forward(const rpi_kernel_run *run, const rpi_kernel_attention *it);
/* Threads share batches and key heads; 650 KB of stack. */
void rpi_kernel_attention_backward(const rpi_kernel_run *run, const rpi_kernel_attention *it);
int64_t rpi_kernel_attention_scratch(const rpi_kernel_attention *it);
int64_t rpi_kernel_attention_packed(const rpi_kernel_attention *it);

/* ---- inside ---- */

/* The keys [first, last) that a query sees; empty where last <= first. */
typedef struct rpi_key_range {
    int64_t first, last;
} rpi_key_range;

/* kernel_attention_keys.c, for the definition and for vectors */
rpi_key_range rpi_attention_keys(const rpi_kernel_attention *it, int64_t batch, int64_t query);

enum { RPI_ATTENTION_KEYS = 64 };

/* A block of queries times its head_size: what it sums stays in the second-level cache. */
enum { RPI_ATTENTION_TILE = 32768, RPI_ATTENTION_QUERIES = 512 };

typedef struct rpi_attention_call {
    const rpi_kernel_attention *it;
    int64_t queries; /* of a block; the bits do not depend on it */
} rpi_attention_call;

static inline int64_t rpi_attention_padded(const rpi_kernel_attention *it) {
    return (it->head_size + 15) / 16 * 16;
}

/* Rows of distances, the largest first, so that they go up with the keys; behind the last one
 * zeros, for keys after a query that no query sees. */
enum { RPI_ATTENTION_BEYOND = 112 };

static inline int64_t rpi_attention_distances(const rpi_kernel_attention *it) {
    return (it->k_length + 15) / 16 * 16 + RPI_ATTENTION_BEYOND;
}

/* The number that the mask knows a query by. */
static inline int64_t rpi_attention_query(const rpi_kernel_attention *it, int64_t query) {
    return rpi_token_place(&it->pieces, it->q_length, query);
}

/* Keys without padding. */
static inline int64_t rpi_attention_all_keys(const rpi_kernel_attention *it) {
    return it->pieces.whole ? it->pieces.whole : it->k_length;
}

/* The group of 128 elements of a mask that holds the keys from `key` on, a multiple of 64, of
 * the queries that it knows by i and i + 1, i even. */
static inline uint64_t rpi_attention_mask_group(const rpi_kernel_attention *it, int64_t batch,
                                                int64_t head, int64_t query, int64_t key) {
    int64_t pairs = (rpi_token_whole(&it->pieces, it->q_length) + 1) / 2;
    int64_t blocks = (rpi_attention_all_keys(it) + RPI_ATTENTION_KEYS - 1) / RPI_ATTENTION_KEYS;
    int64_t heads = it->whole_heads ? it->whole_heads : it->heads;
    head += it->first_head;
    return (uint64_t)(((((it->first_batch + batch) * heads + head) * pairs) + query / 2) *
                          blocks +
                      key / RPI_ATTENTION_KEYS);
}

RPI_KERNEL_DECLARE(attention_distances);
RPI_KERNEL_DECLARE(attention_biases);
RPI_KERNEL_DECLARE(attention_forward);
RPI_KERNEL_DECLARE(attention_prepare);
RPI_KERNEL_DECLARE(attention_backward);
RPI_KERNEL_DECLARE(attention_finish);

#endif
