/* Attention, forward. */
#include "engine/backends/cpu/kernels/simd_attention.h"

#include <math.h>

enum { QUERY_TILE = RPI_ATTENTION_TILE }; /* queries of a block times head_size, at most */

/* Units are heads. */
RPI_SIMD_BODY(attention_distances)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_attention *it = args;
    int64_t padded = rpi_attention_padded(it), count = rpi_attention_distances(it);
    for (int64_t h = begin; h < end; h++) {
        float *rows = distance_rows(it, h);
        for (int64_t p = 0; p < it->k_length; p++) {
            const float *from =
                it->relative->r + ((it->k_length - 1 - p) * it->heads + h) * it->head_size;
            EACH_VECTOR(c, live, it->head_size)
            vf_store(rows + p * padded + c, vf_load_n(from + c, live));
        }
        memset(rows + it->k_length * padded, 0,
               (size_t)((count - it->k_length) * padded) * sizeof *rows);
        transpose(rows, padded, count, padded, distance_columns(it, h), count);
    }
}

SIMD void mask_scores(rpi_key_range keys, int64_t block, int vectors, float *scores) {
    if (sees_all(keys, block)) return;
    for (int v = 0; v < vectors; v++) {
        vm seen = lanes_seen(keys, block, v, lane_numbers());
        vf s = vf_select(seen, vf_load(scores + v * RPI_LANES), vf_set(-INFINITY));
        vf_store(scores + v * RPI_LANES, s);
    }
}

typedef struct forward_block {
    const rpi_kernel_attention *it;
    int64_t padded, count;      /* queries */
    int64_t batch, head, first; /* of the queries */
    float q[QUERY_TILE];        /* times scale / ln 2; with distances q + u */
    float qv[QUERY_TILE];       /* with distances: q + v, likewise */
    float out[QUERY_TILE];      /* not yet divided by the sum */
    float top[QUERIES];         /* the largest score so far */
    vf sum[QUERIES];            /* of 2^(score - top), by lane */
    visible seen;
} forward_block;

/* Scores become 2^(score - top); factor: by how much what was summed before shrinks. */
SIMD void exponentials(forward_block *block, const key_block *keys, int64_t first, int rows,
                       int vectors, float *scores, float *factor) {
    float before[RPI_LANES] = {0}, now[RPI_LANES] = {0};
    for (int r = 0; r < rows; r++) {
        float *s = scores + r * KEYS;
        mask_scores(block->seen.keys[first + r], keys->first, vectors, s);
        vf most = vf_set(-INFINITY);
        for (int v = 0; v < vectors; v++) most = vf_max(vf_load(s + v * RPI_LANES), most);
        float top = vf_max_of(most);
        before[r] = block->top[first + r];
        if (before[r] > top) top = before[r];
        block->top[first + r] = top;
        now[r] = top == -INFINITY ? 0 : top;
    }
    vf_store(factor, vf_exp2(vf_sub(vf_load(before), vf_load(now))));
    for (int r = 0; r < rows; r++) {
        vf sum = vf_mul(block->sum[first + r], vf_set(factor[r]));
        for (int v = 0; v < vectors; v++) {
            float *s = scores + r * KEYS + v * RPI_LANES;
            vf p = vf_exp2(vf_sub(vf_load(s), vf_set(now[r])));
            vf_store(s, p);
            sum = vf_add(sum, p);
        }
        block->sum[first + r] = sum;
    }
}

/* out += p v. Where a value is no number, it may only meet queries that see it. */
SIMD void add_values(forward_block *block, const key_block *keys, int64_t first, int rows,
                     int vectors, const float *p, const float *factor) {
    gemm_tiles product = {.rows = rows,
                          .vectors = block->padded / RPI_LANES,
                          .k = vectors * RPI_LANES,
                          .a = p,
                          .a_row = KEYS,
                          .a_k = 1,
                          .b = keys->values,
                          .b_row = block->padded,
                          .c = block->out + first * block->padded,
                          .c_row = block->padded,
                          .scale = factor};
    if (keys->finite) {
        gemm(&product);
        return;
    }
    for (int r = 0; r < rows; r++) {
        rpi_key_range seen = block->seen.keys[first + r];
        int64_t from = seen.first > keys->first ? seen.first - keys->first : 0;
        int64_t to = smaller(seen.last - keys->first, KEYS);
        product.rows = 1;
        product.k = to > from ? to - from : 0;
        product.a = p + r * KEYS + from;
        product.b = keys->values + from * block->padded;
        product.c = block->out + (first + r) * block->padded;
        product.scale = factor + r;
        gemm(&product);
    }
}

/* Behind the sums: what is dropped has its part in them. */
SIMD void drop_weights(const forward_block *block, int64_t first, int rows, int64_t key,
                       int vectors, float *p) {
    float factors[STRIP * KEYS];
    draw_mask(block->it, block->batch, block->head, block->first + first, rows, key, vectors,
              factors);
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            int64_t at = r * KEYS + v * RPI_LANES;
            vf_store(p + at, vf_mul(vf_load(p + at), vf_load(factors + at)));
        }
}

SIMD void forward_strip(forward_block *block, const key_block *keys, int64_t first, int rows) {
    const rpi_kernel_attention *it = block->it;
    float scores[STRIP * KEYS], factor[RPI_LANES];
    int vectors = vectors_seen(&block->seen, first, rows, keys->first);
    if (vectors == 0) return;
    gemm(&(gemm_tiles){.rows = rows,
                       .vectors = vectors,
                       .k = block->padded,
                       .a = block->q + first * block->padded,
                       .a_row = block->padded,
                       .a_k = 1,
                       .b = keys->transposed,
                       .b_row = KEYS,
                       .c = scores,
                       .c_row = KEYS,
                       .from_zero = true});
    if (it->relative)
        add_distance_scores(it, block->qv + first * block->padded, block->head,
                            block->first + first + rows - 1, rows, keys->first, vectors,
                            scores);
    exponentials(block, keys, first, rows, vectors, scores, factor);
    if (it->dropout.probability > 0)
        drop_weights(block, first, rows, keys->first, vectors, scores);
    add_values(block, keys, first, rows, vectors, scores, factor);
}

SIMD void begin_block(forward_block *block, int64_t b, int64_t h, int64_t first) {
    const rpi_kernel_attention *it = block->it;
    (void)pack(it, head_at(it->q, b, first, h), block->count, block->count, it->scale * LOG2_E,
               block->q);
    block->batch = b;
    block->head = h;
    block->first = first;
    if (it->relative) {
        float factor = it->scale * LOG2_E;
        add_bias(it, it->relative->v, h, block->count, factor, block->q, block->qv);
        add_bias(it, it->relative->u, h, block->count, factor, block->q, block->q);
    }
    memset(block->out, 0, (size_t)(block->count * block->padded) * sizeof *block->out);
    for (int64_t i = 0; i < block->count; i++) {
        block->top[i] = -INFINITY;
        block->sum[i] = vf_zero();
    }
    find_visible(it, b, first, block->count, &block->seen);
}

SIMD void end_block(const forward_block *block, int64_t b, int64_t h, int64_t first) {
    const rpi_kernel_attention *it = block->it;
    rows_of_head out = head_at(it->out, b, first, h);
    for (int64_t i = 0; i < block->count; i++) {
        float sum = vf_sum(block->sum[i]), top = block->top[i];
        bool empty = block->seen.keys[i].first >= block->seen.keys[i].last;
        vf divisor = vf_set(empty ? 1 : sum);
        simd_row row = row_below(out, i);
        EACH_VECTOR(c, live, it->head_size)
        row_store(row, c, vf_div(vf_load(block->out + i * block->padded + c), divisor), live);
        if (!it->lse) continue;
        double shift = top == -INFINITY ? 0 : top * LN_2;
        it->lse[(b * it->heads + h) * it->q_length + first + i] =
            (float)(shift + log((double)sum));
    }
}

/* Units are blocks of queries of a key head; its heads share the packed keys only through the
 * cache. */
RPI_SIMD_BODY(attention_forward)(const void *args, int64_t begin, int64_t end) {
    const rpi_attention_call *call = args;
    const rpi_kernel_attention *it = call->it;
    int64_t size = call->queries, group = it->heads / it->kv_heads;
    int64_t blocks = (it->q_length + size - 1) / size;
    forward_block block;
    key_block keys;
    block.it = it;
    block.padded = rpi_attention_padded(it);
    for (int64_t unit = begin * group; unit < end * group; unit++) {
        int64_t shared = unit / group, first = shared % blocks * size;
        int64_t kv = shared / blocks % it->kv_heads, b = shared / blocks / it->kv_heads;
        int64_t h = kv * group + unit % group;
        block.count = smaller(size, it->q_length - first);
        begin_block(&block, b, h, first);
        keys.first = block.seen.any.first / KEYS * KEYS;
        for (; keys.first < block.seen.any.last; keys.first += KEYS) {
            load_keys(it, b, kv, &keys);
            for (int64_t r = 0; r < block.count; r += STRIP)
                forward_strip(&block, &keys, r, (int)smaller(STRIP, block.count - r));
        }
        end_block(&block, b, h, first);
    }
}
