/* Attention, backward: queries are packed once, then each block of keys meets all of them. */
#include "engine/backends/cpu/kernels/simd_attention.h"

enum { BACKWARD_QUERIES = 128 };

/* The scratch: rows [padded] of sums of dq, of q times scale / ln 2 and of dout, and D; each a
 * query of all batches and heads. Packed once, since every block of keys reads them. */
enum { DQ, Q, DOUT, SCRATCH_ROWS };
/* With distances, behind D: sums of the gradient of q + v, and q + v (Q is then q + u). */
enum { DQV, QV, MORE_ROWS };

SIMD float *scratch_row(const rpi_kernel_attention *it, int which, int64_t query) {
    int64_t queries = it->batch * it->heads * it->q_length;
    return it->scratch + (which * queries + query) * rpi_attention_padded(it);
}

SIMD float *delta_of(const rpi_kernel_attention *it, int64_t query) {
    return scratch_row(it, SCRATCH_ROWS, 0) + query;
}

SIMD float *relative_row(const rpi_kernel_attention *it, int which, int64_t query) {
    int64_t queries = it->batch * it->heads * it->q_length;
    return delta_of(it, queries) + (which * queries + query) * rpi_attention_padded(it);
}

/* Gradients of a head's rows of distances in one batch, as distance_rows() lies. */
SIMD float *distance_gradients(const rpi_kernel_attention *it, int64_t b, int64_t h) {
    return relative_row(it, MORE_ROWS, 0) +
           (b * it->heads + h) * rpi_attention_distances(it) * rpi_attention_padded(it);
}

SIMD void prepare_relative(const rpi_kernel_attention *it, int64_t h, int64_t query) {
    float *q = scratch_row(it, Q, query), factor = it->scale * LOG2_E;
    add_bias(it, it->relative->v, h, 1, factor, q, relative_row(it, QV, query));
    add_bias(it, it->relative->u, h, 1, factor, q, q);
    memset(relative_row(it, DQV, query), 0, (size_t)rpi_attention_padded(it) * sizeof(float));
}

/* Units are queries of all heads and batches. */
RPI_SIMD_BODY(attention_prepare)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_attention *it = args;
    for (int64_t query = begin; query < end; query++) {
        int64_t i = query % it->q_length, h = query / it->q_length % it->heads;
        int64_t b = query / it->q_length / it->heads;
        rows_of_head dout = head_at(it->dout, b, i, h);
        simd_row out = head_at(it->out, b, i, h).start;
        vf sum = vf_zero();
        EACH_VECTOR(c, live, it->head_size)
        sum = vf_fma(row_load(out, c, live), row_load(dout.start, c, live), sum);
        *delta_of(it, query) = vf_sum(sum);
        (void)pack(it, dout, 1, 1, 1, scratch_row(it, DOUT, query));
        (void)pack(it, head_at(it->q, b, i, h), 1, 1, it->scale * LOG2_E,
                   scratch_row(it, Q, query));
        memset(scratch_row(it, DQ, query), 0, (size_t)rpi_attention_padded(it) * sizeof(float));
        if (it->relative) prepare_relative(it, h, query);
    }
}

/* dq = scale sums. */
RPI_SIMD_BODY(attention_finish)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_attention *it = args;
    for (int64_t query = begin; query < end; query++) {
        int64_t i = query % it->q_length, h = query / it->q_length % it->heads;
        simd_row dq = head_at(it->dq, query / it->q_length / it->heads, i, h).start;
        EACH_VECTOR(c, live, it->head_size) {
            vf sum = vf_load(scratch_row(it, DQ, query) + c);
            if (it->relative) sum = vf_add(sum, vf_load(relative_row(it, DQV, query) + c));
            row_store(dq, c, vf_mul(sum, vf_set(it->scale)), live);
        }
    }
}

/* to = factor times the sum of rows [padded], `stride` floats apart, in order. */
SIMD void sum_rows(const rpi_kernel_attention *it, const float *from, int64_t rows,
                   int64_t stride, float factor, float *to, bool adds) {
    EACH_VECTOR(c, live, it->head_size) {
        vf sum = vf_zero();
        for (int64_t r = 0; r < rows; r++) sum = vf_add(sum, vf_load(from + r * stride + c));
        sum = vf_mul(sum, vf_set(factor));
        if (adds) sum = vf_add(sum, vf_load_n(to + c, live));
        vf_store_n(to + c, sum, live);
    }
}

/* Units are heads: what all batches and queries add up to. As for dk, ln 2 is left of the
 * scale for rows of distances. */
RPI_SIMD_BODY(attention_biases)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_attention *it = args;
    const rpi_kernel_relative *relative = it->relative;
    int64_t padded = rpi_attention_padded(it), length = it->q_length;
    for (int64_t h = begin; h < end; h++) {
        int64_t at = h * it->head_size;
        for (int64_t b = 0; b < it->batch; b++) {
            int64_t query = (b * it->heads + h) * length;
            if (relative->du)
                sum_rows(it, scratch_row(it, DQ, query), length, padded, it->scale,
                         relative->du + at, b > 0);
            if (relative->dv)
                sum_rows(it, relative_row(it, DQV, query), length, padded, it->scale,
                         relative->dv + at, b > 0);
        }
        int64_t next = it->heads * rpi_attention_distances(it) * padded;
        for (int64_t d = 0; relative->dr && d < it->k_length; d++)
            sum_rows(it, distance_gradients(it, 0, h) + (it->k_length - 1 - d) * padded,
                     it->batch, next, (float)LN_2,
                     relative->dr + (d * it->heads + h) * it->head_size, false);
    }
}

typedef struct backward_keys {
    key_block keys;                /* rows, transposed; values on their way */
    float values_transposed[TILE]; /* [padded, KEYS] */
    float dk[TILE], dv[TILE];      /* [KEYS, padded] */
} backward_keys;

typedef struct backward_queries {
    int64_t first, count, query; /* query: the first one's among all */
    int64_t head, batch;
    const float *q, *dout; /* [count, padded] */
    float p[BACKWARD_QUERIES * KEYS], ds[BACKWARD_QUERIES * KEYS];
    visible seen;
} backward_queries;

/* p = 2^(score - lse), ds = p (dp - D), both 0 where the key is not seen; with factors of
 * dropout (NULL: none) p is also multiplied by these, and so is dp. */
SIMD void score_gradients(const rpi_kernel_attention *it, const backward_queries *at, int64_t r,
                          int64_t block, int vectors, const float *factors, float *p,
                          float *dp) {
    rpi_key_range seen = at->seen.keys[r];
    bool all = sees_all(seen, block);
    vf lse = vf_set(it->lse[at->query + r] * LOG2_E);
    vf delta = vf_set(*delta_of(it, at->query + r));
    for (int v = 0; v < vectors; v++) {
        vf e = vf_exp2(vf_sub(vf_load(p + v * RPI_LANES), lse));
        vf kept = factors ? vf_load(factors + v * RPI_LANES) : vf_set(1);
        vf ds = vf_mul(e, vf_sub(vf_mul(kept, vf_load(dp + v * RPI_LANES)), delta));
        e = vf_mul(e, kept);
        if (!all) {
            vm lanes = lanes_seen(seen, block, v, lane_numbers());
            e = vf_select(lanes, e, vf_zero());
            ds = vf_select(lanes, ds, vf_zero());
        }
        vf_store(p + v * RPI_LANES, e);
        vf_store(dp + v * RPI_LANES, ds);
    }
    for (int v = vectors; v < KEY_VECTORS; v++) {
        vf_store(p + v * RPI_LANES, vf_zero());
        vf_store(dp + v * RPI_LANES, vf_zero());
    }
}

SIMD void backward_strip(const rpi_kernel_attention *it, const backward_keys *keys,
                         backward_queries *at, int64_t r, int64_t rows) {
    int64_t padded = rpi_attention_padded(it);
    float *p = at->p + r * KEYS, *ds = at->ds + r * KEYS;
    int vectors = vectors_seen(&at->seen, r, rows, keys->keys.first);
    if (vectors == 0) {
        memset(p, 0, (size_t)(rows * KEYS) * sizeof *p);
        memset(ds, 0, (size_t)(rows * KEYS) * sizeof *ds);
        return;
    }
    gemm_tiles product = {.rows = rows,
                          .vectors = vectors,
                          .k = padded,
                          .a = at->q + r * padded,
                          .a_row = padded,
                          .a_k = 1,
                          .b = keys->keys.transposed,
                          .b_row = KEYS,
                          .c = p,
                          .c_row = KEYS,
                          .from_zero = true};
    gemm(&product);
    if (it->relative)
        add_distance_scores(it, relative_row(it, QV, at->query + r), at->head,
                            at->first + r + rows - 1, rows, keys->keys.first, vectors, p);
    product.a = at->dout + r * padded;
    product.b = keys->values_transposed;
    product.c = ds;
    gemm(&product);
    float factors[STRIP * KEYS];
    bool drops = it->dropout.probability > 0;
    if (drops)
        draw_mask(it, at->batch, at->head, at->first + r, rows, keys->keys.first, vectors,
                  factors);
    for (int64_t i = 0; i < rows; i++)
        score_gradients(it, at, r + i, keys->keys.first, vectors,
                        drops ? factors + i * KEYS : NULL, p + i * KEYS, ds + i * KEYS);
    gemm(&(gemm_tiles){.rows = rows,
                       .vectors = padded / RPI_LANES,
                       .k = vectors * RPI_LANES,
                       .a = ds,
                       .a_row = KEYS,
                       .a_k = 1,
                       .b = keys->keys.rows,
                       .b_row = padded,
                       .c = scratch_row(it, DQ, at->query + r),
                       .c_row = padded});
}

/* dk += ds^T q, dv += p^T dout, over the queries [first, last) of the block. */
SIMD void add_key_gradients(const rpi_kernel_attention *it, backward_keys *keys,
                            const backward_queries *at, int64_t first, int64_t last) {
    int64_t padded = rpi_attention_padded(it);
    gemm_tiles product = {.rows = KEYS,
                          .vectors = padded / RPI_LANES,
                          .k = last - first,
                          .a = at->ds + first * KEYS,
                          .a_row = 1,
                          .a_k = KEYS,
                          .b = at->q + first * padded,
                          .b_row = padded,
                          .c = keys->dk,
                          .c_row = padded};
    gemm(&product);
    product.a = at->p + first * KEYS;
    product.b = at->dout + first * padded;
    product.c = keys->dv;
    gemm(&product);
}

enum { SHIFTED_QUERIES = 32, SHIFTED_DISTANCES = KEYS + SHIFTED_QUERIES };

/* Of up to 32 queries from r on: ds by distance, then what q + v and the rows of distances get
 * of it. */
SIMD void add_shifted(const rpi_kernel_attention *it, int64_t block, backward_queries *at,
                      int64_t r, int64_t rows) {
    int64_t padded = rpi_attention_padded(it);
    int64_t first = first_distance(it, at->first + r + rows - 1, block);
    float by_distance[SHIFTED_QUERIES * SHIFTED_DISTANCES] = {0};
    for (int64_t i = 0; i < rows; i++)
        memcpy(by_distance + i * SHIFTED_DISTANCES + rows - 1 - i, at->ds + (r + i) * KEYS,
               KEYS * sizeof *by_distance);
    gemm_tiles product = {.rows = rows,
                          .vectors = padded / RPI_LANES,
                          .k = SHIFTED_DISTANCES,
                          .a = by_distance,
                          .a_row = SHIFTED_DISTANCES,
                          .a_k = 1,
                          .b = distance_rows(it, at->head) + first * padded,
                          .b_row = padded,
                          .c = relative_row(it, DQV, at->query + r),
                          .c_row = padded};
    gemm(&product);
    product.rows = SHIFTED_DISTANCES;
    product.k = rows;
    product.a_row = 1;
    product.a_k = SHIFTED_DISTANCES;
    product.b = relative_row(it, QV, at->query + r);
    product.c = distance_gradients(it, at->batch, at->head) + first * padded;
    gemm(&product);
}

/* One block of queries of one head with one block of keys. */
SIMD void backward_block(const rpi_kernel_attention *it, int64_t b, int64_t h,
                         backward_keys *keys, backward_queries *at) {
    int64_t first = 0, last = at->count, block = keys->keys.first;
    while (first < last && vectors_seen(&at->seen, first, 1, block) == 0) first++;
    while (first < last && vectors_seen(&at->seen, last - 1, 1, block) == 0) last--;
    if (first == last) return;
    at->batch = b;
    at->head = h;
    at->query = (b * it->heads + h) * it->q_length + at->first;
    at->q = scratch_row(it, Q, at->query);
    at->dout = scratch_row(it, DOUT, at->query);
    for (int64_t r = first; r < last; r += STRIP)
        backward_strip(it, keys, at, r, smaller(STRIP, last - r));
    add_key_gradients(it, keys, at, first, last);
    for (int64_t r = first; it->relative && r < last; r += SHIFTED_QUERIES)
        add_shifted(it, block, at, r, smaller(SHIFTED_QUERIES, last - r));
}

SIMD void begin_keys(const rpi_kernel_attention *it, int64_t b, int64_t kv,
                     backward_keys *keys) {
    int64_t padded = rpi_attention_padded(it);
    load_keys(it, b, kv, &keys->keys);
    transpose(keys->keys.values, padded, KEYS, padded, keys->values_transposed, KEYS);
    memset(keys->dk, 0, (size_t)(KEYS * padded) * sizeof(float));
    memset(keys->dv, 0, (size_t)(KEYS * padded) * sizeof(float));
}

/* The queries held scale / ln 2; what is left of it for dk is ln 2. */
SIMD void end_keys(const rpi_kernel_attention *it, int64_t b, int64_t kv,
                   const backward_keys *keys) {
    int64_t padded = rpi_attention_padded(it), first = keys->keys.first;
    rows_of_head dk = head_at(it->dk, b, first, kv), dv = head_at(it->dv, b, first, kv);
    for (int64_t j = 0; j < smaller(KEYS, it->k_length - first); j++)
        EACH_VECTOR(c, live, it->head_size) {
            vf k = vf_mul(vf_load(keys->dk + j * padded + c), vf_set((float)LN_2));
            row_store(row_below(dk, j), c, k, live);
            row_store(row_below(dv, j), c, vf_load(keys->dv + j * padded + c), live);
        }
}

/* Units are key heads. */
RPI_SIMD_BODY(attention_backward)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_attention *it = args;
    int64_t size = smaller(BACKWARD_QUERIES, it->q_length);
    int64_t group = it->heads / it->kv_heads;
    backward_keys keys;
    backward_queries at;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t b = unit / it->kv_heads, kv = unit % it->kv_heads;
        if (it->relative)
            memset(distance_gradients(it, b, kv), 0,
                   (size_t)(rpi_attention_distances(it) * rpi_attention_padded(it)) *
                       sizeof(float));
        for (keys.keys.first = 0; keys.keys.first < it->k_length; keys.keys.first += KEYS) {
            begin_keys(it, b, kv, &keys);
            for (at.first = 0; at.first < it->q_length; at.first += size) {
                at.count = smaller(size, it->q_length - at.first);
                find_visible(it, b, at.first, at.count, &at.seen);
                for (int64_t h = kv * group; h < (kv + 1) * group; h++)
                    backward_block(it, b, h, &keys, &at);
            }
            end_keys(it, b, kv, &keys);
        }
    }
}
