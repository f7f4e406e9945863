#include "engine/backends/cpu/kernels/kernel_attention.h"

#include "engine/backends/cpu/kernels/simd_dropout.h"
#include "engine/backends/cpu/kernels/simd_gemm.h"
#include "engine/backends/cpu/kernels/simd_math.h"

#include <math.h>

/* Scores are kept in units of log 2: scale / ln 2 is multiplied into the queries, and 2^x is
 * cheaper than e^x. Blocks of keys start at multiples of 64, so a query's sums are the same
 * whichever queries stand beside it. Working memory is on the stack. */
enum {
    KEYS = RPI_ATTENTION_KEYS,
    KEY_VECTORS = KEYS / RPI_LANES,
    TILE = KEYS * RPI_ATTENTION_HEAD_SIZE, /* a block of keys or values */
    BACKWARD_QUERIES = 128,
    QUERIES = RPI_ATTENTION_QUERIES, /* of the largest block, forward */
    QUERY_TILE = RPI_ATTENTION_TILE, /* queries of a block times head_size, at most */
    STRIP = GEMM_ROWS,
    FETCH_AHEAD = 8, /* rows */
};
#define LOG2_E 1.44269504f
#define LN_2   0.693147181

/* Rows of one head lie pages apart, where the processor fetches nothing ahead by itself. A
 * prefetch of what is not there does no harm. */
SIMD void fetch_row(const rpi_kernel_attention *it, simd_row row) {
    enum { LINE = 64 };
    int64_t bytes = it->head_size * (row.bf16 ? 2 : 4);
    for (int64_t at = 0; at < bytes; at += LINE)
        _mm_prefetch((const char *)row.data + at, _MM_HINT_T0);
}

/* to [rows, padded] = factor from, with zeros for what is missing up to `all` rows. True: all
 * numbers. */
SIMD bool pack(const rpi_kernel_attention *it, rows_of_head from, int64_t rows, int64_t all,
               float factor, float *to) {
    int64_t padded = rpi_attention_padded(it);
    vf finite = vf_zero();
    for (int64_t r = 0; r < rows; r++) {
        simd_row row = row_below(from, r);
        fetch_row(it, row_below(from, r + FETCH_AHEAD));
        EACH_VECTOR(c, live, it->head_size) {
            vf x = vf_mul(row_load(row, c, live), vf_set(factor));
            vf_store(to + r * padded + c, x);
            finite = vf_fma(x, vf_zero(), finite);
        }
    }
    memset(to + rows * padded, 0, (size_t)((all - rows) * padded) * sizeof *to);
    return vf_sum(finite) == 0;
}

SIMD int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- masks ---- */

/* What the queries of a block see: each its range of keys, and the span of all. */
typedef struct visible {
    rpi_key_range keys[QUERIES];
    rpi_key_range any;
} visible;

SIMD void find_visible(const rpi_kernel_attention *it, int64_t b, int64_t first, int64_t count,
                       visible *out) {
    out->any = (rpi_key_range){it->k_length, 0};
    for (int64_t i = 0; i < count; i++) {
        rpi_key_range keys = rpi_attention_keys(it, b, first + i);
        out->keys[i] = keys;
        if (keys.first >= keys.last) continue;
        if (keys.first < out->any.first) out->any.first = keys.first;
        if (keys.last > out->any.last) out->any.last = keys.last;
    }
}

SIMD bool sees_all(rpi_key_range keys, int64_t block) {
    return keys.first <= block && keys.last >= block + KEYS;
}

/* Lanes first to last - 1, counted from the block's start. */
SIMD vm lanes_seen(rpi_key_range keys, int64_t block, int vector, vf lane) {
    vf at = vf_add(lane, vf_set((float)(vector * RPI_LANES)));
    int64_t first = keys.first - block, last = keys.last - block;
    /* far ends are brought near, so that they are exact */
    float low = (float)(first < 0 ? 0 : smaller(first, KEYS));
    float high = (float)(last < 0 ? 0 : smaller(last, KEYS));
    return vm_and(vf_le(vf_set(low), at), vf_lt(at, vf_set(high)));
}

SIMD vf lane_numbers(void) {
    static const float lane[RPI_LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return vf_load(lane);
}

SIMD void mask_scores(rpi_key_range keys, int64_t block, int vectors, float *scores) {
    if (sees_all(keys, block)) return;
    for (int v = 0; v < vectors; v++) {
        vm seen = lanes_seen(keys, block, v, lane_numbers());
        vf s = vf_select(seen, vf_load(scores + v * RPI_LANES), vf_set(-INFINITY));
        vf_store(scores + v * RPI_LANES, s);
    }
}

/* ---- dropout ---- */

/* Factors [rows, KEYS] of a block's keys for queries from `first` on: each draw serves two
 * queries. */
SIMD void draw_mask(const rpi_kernel_attention *it, int64_t b, int64_t h, int64_t first,
                    int64_t rows, int64_t block, int vectors, float *factors) {
    uint32_t threshold = rpi_dropout_threshold(it->dropout.probability);
    for (int64_t pair = first / 2 * 2; pair < first + rows; pair += 2) {
        philox random =
            draw_group(&it->dropout, rpi_attention_mask_group(it, b, h, pair, block));
        for (int odd = 0; odd < 2; odd++) {
            int64_t r = pair + odd - first;
            if (r < 0 || r >= rows) continue;
            for (int v = 0; v < vectors; v++)
                vf_store(factors + r * KEYS + v * RPI_LANES,
                         dropout_factor(&random, odd * KEY_VECTORS + v, threshold));
        }
    }
}

/* ---- distances ---- */

/* Rows are packed with the largest distance first: that of query i and key j is row
 * k_length - 1 - distance, and a query's go up with the keys. */
SIMD float *distance_rows(const rpi_kernel_attention *it, int64_t h) {
    return it->relative->packed +
           2 * h * rpi_attention_distances(it) * rpi_attention_padded(it);
}

/* [padded, distances] */
SIMD float *distance_columns(const rpi_kernel_attention *it, int64_t h) {
    return distance_rows(it, h) + rpi_attention_distances(it) * rpi_attention_padded(it);
}

/* The row of the last of some queries (its number) and of a block's first key. */
SIMD int64_t first_distance(const rpi_kernel_attention *it, int64_t last_query, int64_t block) {
    return it->k_length - 1 - (last_query + it->q_offset) + block;
}

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

/* to = from + factor bias, rows of one head as pack() lays them. */
SIMD void add_bias(const rpi_kernel_attention *it, const float *bias, int64_t h, int64_t rows,
                   float factor, const float *from, float *to) {
    int64_t padded = rpi_attention_padded(it);
    EACH_VECTOR(c, live, it->head_size) {
        vf add = vf_mul(vf_load_n(bias + h * it->head_size + c, live), vf_set(factor));
        for (int64_t r = 0; r < rows; r++)
            vf_store(to + r * padded + c, vf_add(vf_load(from + r * padded + c), add));
    }
}

enum { STRIP_DISTANCES = KEYS + RPI_LANES }; /* those of a strip's queries and a block's keys */

/* scores [rows, KEYS] += (q + v) . r: each query's are the products of one row of a matrix by
 * distances, from another place on. */
SIMD void add_distance_scores(const rpi_kernel_attention *it, const float *qv, int64_t h,
                              int64_t last_query, int64_t rows, int64_t block, int vectors,
                              float *scores) {
    float by_distance[STRIP * STRIP_DISTANCES];
    gemm(&(gemm_tiles){.rows = rows,
                       .vectors = vectors + 1,
                       .k = rpi_attention_padded(it),
                       .a = qv,
                       .a_row = rpi_attention_padded(it),
                       .a_k = 1,
                       .b = distance_columns(it, h) + first_distance(it, last_query, block),
                       .b_row = rpi_attention_distances(it),
                       .c = by_distance,
                       .c_row = STRIP_DISTANCES,
                       .from_zero = true});
    for (int64_t r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            float *s = scores + r * KEYS + v * RPI_LANES;
            const float *more =
                by_distance + r * STRIP_DISTANCES + rows - 1 - r + v * RPI_LANES;
            vf_store(s, vf_add(vf_load(s), vf_load(more)));
        }
}

/* ---- forward ---- */

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

typedef struct key_block {
    int64_t first;
    bool finite;            /* the values are */
    float rows[TILE];       /* keys, on their way */
    float transposed[TILE]; /* keys [padded, KEYS] */
    float values[TILE];     /* [KEYS, padded] */
} key_block;

SIMD void load_keys(const rpi_kernel_attention *it, int64_t b, int64_t kv, key_block *keys) {
    int64_t count = smaller(KEYS, it->k_length - keys->first);
    int64_t padded = rpi_attention_padded(it);
    (void)pack(it, head_at(it->k, b, keys->first, kv), count, KEYS, 1, keys->rows);
    transpose(keys->rows, padded, KEYS, padded, keys->transposed, KEYS);
    keys->finite = pack(it, head_at(it->v, b, keys->first, kv), count, KEYS, 1, keys->values);
}

/* How many vectors of a block's keys the queries [first, first + rows) see: those behind the
 * diagonal need no work. Not seen at all: 0. */
SIMD int vectors_seen(const visible *seen, int64_t first, int64_t rows, int64_t block) {
    int64_t last = 0;
    for (int64_t r = first; r < first + rows; r++) {
        rpi_key_range keys = seen->keys[r];
        if (keys.first < block + KEYS && keys.first < keys.last && keys.last > last)
            last = keys.last;
    }
    int64_t keys = smaller(last - block, KEYS);
    return keys > 0 ? (int)((keys + RPI_LANES - 1) / RPI_LANES) : 0;
}

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

/* ---- backward ---- */

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
