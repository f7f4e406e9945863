/* What the forward and the backward pass of attention share. Working memory is on the stack. */
#ifndef RPI_ENGINE_SIMD_ATTENTION_H
#define RPI_ENGINE_SIMD_ATTENTION_H

#include "engine/backends/cpu/kernels/kernel_attention.h"
#include "engine/backends/cpu/kernels/simd_dropout.h"
#include "engine/backends/cpu/kernels/simd_gemm.h"
#include "engine/backends/cpu/kernels/simd_math.h"

/* Scores are kept in units of log 2: scale / ln 2 is multiplied into the queries, and 2^x is
 * cheaper than e^x. Blocks of keys start at multiples of 64, so a query's sums are the same
 * whichever queries stand beside it. */
enum {
    KEYS = RPI_ATTENTION_KEYS,
    KEY_VECTORS = KEYS / RPI_LANES,
    TILE = KEYS * RPI_ATTENTION_HEAD_SIZE, /* a block of keys or values */
    QUERIES = RPI_ATTENTION_QUERIES,       /* of the largest block, forward */
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

/* ---- dropout ---- */

/* Factors [rows, KEYS] of a block's keys for queries from `first` on: each draw serves two
 * queries. */
SIMD void draw_mask(const rpi_kernel_attention *it, int64_t b, int64_t h, int64_t first,
                    int64_t rows, int64_t block, int vectors, float *factors) {
    uint32_t threshold = rpi_dropout_threshold(it->dropout.probability);
    int64_t drawn = -1; /* the pair whose numbers are at hand */
    philox random;
    for (int64_t r = 0; r < rows; r++) {
        int64_t query = rpi_attention_query(it, first + r), odd = query % 2;
        if (query - odd != drawn) {
            drawn = query - odd;
            random = draw_group(&it->dropout, rpi_attention_mask_group(it, b, h, drawn, block));
        }
        for (int v = 0; v < vectors; v++)
            vf_store(factors + r * KEYS + v * RPI_LANES,
                     dropout_factor(&random, (int)odd * KEY_VECTORS + v, threshold));
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

/* ---- keys ---- */

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

#endif
