/* A block of a, some rows by some k, stays packed in the L2 cache; columns of b are packed
 * beside it, RPI_SGEMM_DEPTH of k at a time, and multiplied by all rows of the block. A packed
 * factor is panels of ROWS rows or COLS columns, each of which lies k by k, with zeros for
 * what is missing: one panel of b stays in the L1 cache while those of a pass by. */
#include "engine/backends/cpu/kernels/kernel_sgemm.h"

#include "engine/backends/cpu/kernels/simd.h"
#include "engine/backends/cpu/kernels/simd_gemm.h"
#include "engine/backends/cpu/kernels/simd_outlook.h"

/* Registers: ROWS x VECTORS of c, VECTORS of b, one of a. 16 of 8 floats or 32 of 16. BLOCK
 * elements of a are packed at once: processors without AVX-512 have smaller L2 caches. */
#if defined(__AVX512F__)
enum { ROWS = 12, VECTORS = 2, STEP = 4, BLOCK = RPI_SGEMM_A };
#else
enum { ROWS = 6, VECTORS = 1, STEP = 2, BLOCK = RPI_SGEMM_A / 4 };
#endif
enum { COLS = VECTORS * RPI_LANES, DEPTH = RPI_SGEMM_DEPTH };

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t round_up(int64_t count, int64_t unit) {
    return (count + unit - 1) / unit * unit;
}

/* ---- packing ---- */

/* The columns of sixteen rows of sixteen. */
#if defined(__AVX512F__)
SIMD vf every_fourth(const float *x, int64_t stride) { /* 4 elements of rows 0, 4, 8, 12 */
    vf it = _mm512_castps128_ps512(_mm_loadu_ps(x));
    it = _mm512_mask_broadcast_f32x4(it, 0x00f0, _mm_loadu_ps(x + 4 * stride));
    it = _mm512_mask_broadcast_f32x4(it, 0x0f00, _mm_loadu_ps(x + 8 * stride));
    return _mm512_mask_broadcast_f32x4(it, 0xf000, _mm_loadu_ps(x + 12 * stride));
}

SIMD void turn(const float *x, int64_t stride, vf columns[RPI_LANES]) {
#    pragma GCC unroll 4
    for (int i = 0; i < RPI_LANES; i += 4, x += 4) {
        vf a = every_fourth(x, stride), b = every_fourth(x + stride, stride);
        vf c = every_fourth(x + 2 * stride, stride), d = every_fourth(x + 3 * stride, stride);
        __m512d ab = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
        __m512d cd = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
        columns[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
        columns[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
        ab = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
        cd = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
        columns[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
        columns[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
    }
}

/* Of four rows: column 4 q + i is quarter q of turned[i]. */
SIMD void turn_four(const float *x, int64_t stride, vf turned[4]) {
    vf a = vf_load(x), b = vf_load(x + stride);
    vf c = vf_load(x + 2 * stride), d = vf_load(x + 3 * stride);
    __m512d ab = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
    __m512d cd = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
    turned[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
    turned[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
    ab = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
    cd = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
    turned[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
    turned[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
}

/* The same as turn() with one read of every row. It has more shuffles, and is quicker where
 * rows drive each other out of the cache between reads. Rows from `live` on, a multiple of
 * four, are not read; what columns have in their place is undefined. */
SIMD void turn_lines(const float *x, int64_t stride, vf columns[RPI_LANES], const int live) {
    enum { EVEN = 0x88, ODD = 0xdd }; /* quarters of the first factor, then of the second */
    vf rows[4][4];
#    pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        turn_four(x + (4 * i < live ? 4 * i : 0) * stride, stride, rows[i]);
#    pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        vf low = _mm512_shuffle_f32x4(rows[0][i], rows[1][i], EVEN);
        vf high = _mm512_shuffle_f32x4(rows[2][i], rows[3][i], EVEN);
        columns[i] = _mm512_shuffle_f32x4(low, high, EVEN);
        columns[8 + i] = _mm512_shuffle_f32x4(low, high, ODD);
        low = _mm512_shuffle_f32x4(rows[0][i], rows[1][i], ODD);
        high = _mm512_shuffle_f32x4(rows[2][i], rows[3][i], ODD);
        columns[4 + i] = _mm512_shuffle_f32x4(low, high, EVEN);
        columns[12 + i] = _mm512_shuffle_f32x4(low, high, ODD);
    }
}
#else
SIMD void turn(const float *x, int64_t stride, vf columns[RPI_LANES]) {
    float turned[RPI_LANES * RPI_LANES];
    transpose(x, stride, RPI_LANES, RPI_LANES, turned, RPI_LANES);
    for (int i = 0; i < RPI_LANES; i++) columns[i] = vf_load(turned + i * RPI_LANES);
}

SIMD void turn_lines(const float *x, int64_t stride, vf columns[RPI_LANES], const int live) {
    (void)live;
    turn(x, stride, columns);
}
#endif

/* Where there are fewer rows, or elements of them; the others are zeros. */
SIMD void turn_some(const float *x, int64_t stride, int64_t rows, int64_t left,
                    vf columns[RPI_LANES]) {
    float some[RPI_LANES * RPI_LANES];
    for (int i = 0; i < RPI_LANES; i++)
        vf_store(some + i * RPI_LANES, i < rows ? vf_load_n(x + i * stride, left) : vf_zero());
    turn(some, RPI_LANES, columns);
}

/* A factor; `across` are its rows in c's sense for a, its columns for b. */
typedef struct factor {
    const float *data;
    int64_t stride;
    bool k_is_row; /* k says which row of memory it is, else which column */
} factor;

/* Do rows so far apart want the same places of the L1 cache, and drive each other out? */
static bool shares_places(int64_t stride) {
    enum { PERIOD = 4096 / sizeof(float) };
    return stride % PERIOD == 0 && rpi_sgemm_l1_is_narrow();
}

/* In the L2 cache, or the L1. */
SIMD void ask_for(const float *x, const bool in_l2) {
    if (in_l2)
        __builtin_prefetch(x, 0, 2);
    else
        __builtin_prefetch(x);
}

/* k runs along memory: the first `live` of `rows` rows of it, at most 16, are as many of
 * `width` columns. Rows that follow are asked for meanwhile. */
SIMD void pack_along(const float *x, int64_t stride, int64_t rows, int64_t k_count,
                     float *panel, const int width, const int live, const bool shares) {
    const int64_t more = least(rows - live, live);
    EACH_VECTOR(k, left, k_count) {
        vf columns[RPI_LANES];
        if (rows < RPI_LANES || left < RPI_LANES)
            turn_some(x + k, stride, least(rows, live), left, columns);
        else if (shares)
            turn_lines(x + k, stride, columns, live);
        else
            turn(x + k, stride, columns);
        for (int64_t i = 0; i < more; i++) ask_for(x + (live + i) * stride + k, shares);
        for (int i = 0; i < left; i++) vf_store_n(panel + (k + i) * width, columns[i], live);
    }
}

/* Each k is a row of memory, of which every panel gets its columns: of some panels at a time,
 * because they lie so that all want the same places of the L1 cache. */
SIMD void pack_across(const float *x, int64_t stride, int64_t count, int64_t k_count,
                      float *packed, const int width, int64_t ahead) {
    enum { LINE = 64 / sizeof(float) };
    for (int64_t k = 0; k < k_count; k++, x += stride, packed += width) {
        float *to = packed;
        for (int64_t i = 0; k + ahead < k_count && i < count; i += LINE)
            __builtin_prefetch(x + ahead * stride + i);
        for (int64_t i = 0; i < count; i += width, to += k_count * width)
            for (int v = 0; v < width; v += RPI_LANES) {
                const int64_t live = least(count - i - v, width - v);
                vf_store_n(to + v, live > 0 ? vf_load_n(x + i + v, live) : vf_zero(),
                           width - v);
            }
    }
}

/* [first, first + count) across and [k, k + k_count), in panels of `width`. */
SIMD void pack(const factor *it, int64_t first, int64_t count, int64_t k, int64_t k_count,
               float *packed, const int width) {
    enum { NARROW = 48, WIDE = 384, NARROW_AHEAD = 24, WIDE_AHEAD = 6 };
    const bool narrow = rpi_sgemm_l1_is_narrow();
    const int64_t group = narrow ? NARROW : WIDE, ahead = narrow ? NARROW_AHEAD : WIDE_AHEAD;
    for (int64_t i = 0; it->k_is_row && i < count; i += group)
        pack_across(it->data + k * it->stride + first + i, it->stride, least(count - i, group),
                    k_count, packed + i * k_count, width, ahead);
    if (it->k_is_row) return;
    for (int64_t p = 0; p < count; p += width)
        for (int v = 0; v < width; v += RPI_LANES) {
            const int live = width - v < RPI_LANES ? width - v : RPI_LANES;
            const float *x = it->data + (first + p + v) * it->stride + k;
            float *panel = packed + p * k_count + v;
            if (shares_places(it->stride))
                pack_along(x, it->stride, count - p - v, k_count, panel, width, live, true);
            else
                pack_along(x, it->stride, count - p - v, k_count, panel, width, live, false);
        }
}

static void __attribute__((noinline))
pack_a(const rpi_kernel_sgemm *it, int64_t first, int64_t count, int64_t k, int64_t k_count,
       float *packed) {
    const factor a = {it->a.data, it->a.stride, it->a_transposed};
    pack(&a, first, count, k, k_count, packed, ROWS);
}

static void __attribute__((noinline))
pack_b(const rpi_kernel_sgemm *it, int64_t first, int64_t count, int64_t k, int64_t k_count,
       float *packed) {
    const factor b = {it->b.data, it->b.stride, !it->b_transposed};
    pack(&b, first, count, k, k_count, packed, COLS);
}

/* ---- products ---- */

enum { STRETCH = 16 }; /* of k, between two looks ahead */

/* ROWS x COLS of c, or what is there of them, from a panel of each factor. */
typedef struct tile {
    int64_t k_count, rows, cols;
    const float *a, *b;
    float *c;
    int64_t stride;
    bool adds;
    const float *bias;
    outlook *next;
} tile;

SIMD void finish(const tile *it, float *c, vf sum, int vector, const bool whole) {
    const int64_t live = whole ? RPI_LANES : it->cols - vector * RPI_LANES;
    c += vector * RPI_LANES;
    if (live <= 0) return;
    if (it->adds) sum = vf_add(vf_load_n(c, live), sum);
    if (it->bias) sum = vf_add(sum, vf_load_n(it->bias + vector * RPI_LANES, live));
    vf_store_n(c, sum, live);
}

SIMD void multiply(const tile *it, const int rows, const bool whole) {
    const float *a = it->a, *b = it->b;
    vf sum[ROWS][VECTORS];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++) sum[r][v] = vf_zero();
    for (int64_t k = 0, row = 0; k < it->k_count; row++) {
        const int64_t end = least(it->k_count, k + STRETCH);
        if (row < it->rows)
            for (int v = 0; v < VECTORS; v++)
                __builtin_prefetch(it->c + row * it->stride + v * RPI_LANES, 1);
        look_ahead(it->next);
        for (; k < end; k++, a += ROWS, b += COLS) {
            vf right[VECTORS];
#pragma GCC unroll 2
            for (int v = 0; v < VECTORS; v++) right[v] = vf_load(b + v * RPI_LANES);
#pragma GCC unroll 12
            for (int r = 0; r < rows; r++) {
                vf left = vf_set(a[r]);
#pragma GCC unroll 2
                for (int v = 0; v < VECTORS; v++) sum[r][v] = vf_fma(left, right[v], sum[r][v]);
            }
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++)
            if (whole || r < it->rows) finish(it, it->c + r * it->stride, sum[r][v], v, whole);
}

static void make_tile(const tile *it) {
    if (it->rows == ROWS && it->cols == COLS)
        multiply(it, ROWS, true);
    else if (it->rows > 2 * STEP)
        multiply(it, 3 * STEP, false);
    else if (it->rows > STEP)
        multiply(it, 2 * STEP, false);
    else
        multiply(it, STEP, false);
}

/* Rows of a and k of them that are packed; the panels of one DEPTH of k lie together. */
typedef struct block {
    const rpi_kernel_sgemm *it;
    int64_t first, rows, k, k_count;
    int64_t right; /* the end of the columns */
    float *a, *b;  /* packed: the rows, and RPI_SGEMM_COLS columns */
} block;

/* What is packed behind these columns and this k. */
static outlook outlook_of(const block *at, int64_t left, int64_t k) {
    const rpi_kernel_sgemm *it = at->it;
    k += DEPTH;
    if (k >= at->k_count) {
        k = 0;
        left += RPI_SGEMM_COLS;
    }
    if (left >= at->right) return (outlook){.rows = 0};
    const int64_t depth = least(at->k_count - k, DEPTH), first = at->k + k;
    const int64_t cols = least(at->right - left, RPI_SGEMM_COLS);
    const int64_t row = it->b_transposed ? left : first, col = it->b_transposed ? first : left;
    outlook next = {.row = (const char *)it->b.data +
                           (row * it->b.stride + col) * (int64_t)sizeof(float),
                    .stride = it->b.stride * (int64_t)sizeof(float),
                    .bytes = (it->b_transposed ? depth : cols) * (int64_t)sizeof(float),
                    .rows = it->b_transposed ? cols : depth};
    const int64_t stretches = (at->rows + ROWS - 1) / ROWS * ((cols + COLS - 1) / COLS) *
                              ((depth + STRETCH - 1) / STRETCH);
    spread_outlook(&next, stretches);
    return next;
}

/* Columns [left, left + cols) of the block, of `depth` of k from `k` on, counted in it. */
static void make_columns(const block *at, int64_t left, int64_t k) {
    const rpi_kernel_sgemm *it = at->it;
    const int64_t cols = least(at->right - left, RPI_SGEMM_COLS);
    const int64_t depth = least(at->k_count - k, DEPTH);
    const float *a = at->a + round_up(at->rows, ROWS) * k;
    const bool is_last = at->k + k + depth == it->k;
    outlook next = outlook_of(at, left, k);
    pack_b(it, left, cols, at->k + k, depth, at->b);
    for (int64_t col = 0; col < cols; col += COLS)
        for (int64_t row = 0; row < at->rows; row += ROWS) {
            const tile one = {.k_count = depth,
                              .rows = least(at->rows - row, ROWS),
                              .cols = least(cols - col, COLS),
                              .a = a + row * depth,
                              .b = at->b + col * depth,
                              .c = (float *)it->c.data + (at->first + row) * it->c.stride +
                                   left + col,
                              .stride = it->c.stride,
                              .adds = it->accumulate || at->k + k > 0,
                              .bias = is_last && it->bias ? it->bias + left + col : NULL,
                              .next = &next};
            make_tile(&one);
        }
}

static void make_block(const block *at, int64_t left) {
    const int64_t rows = round_up(at->rows, ROWS);
    for (int64_t k = 0; k < at->k_count; k += DEPTH)
        pack_a(at->it, at->first, at->rows, at->k + k, least(at->k_count - k, DEPTH),
               at->a + rows * k);
    for (; left < at->right; left += RPI_SGEMM_COLS)
        for (int64_t k = 0; k < at->k_count; k += DEPTH) make_columns(at, left, k);
}

static void make_part(const rpi_kernel_sgemm *it, const rpi_sgemm_part *part) {
    const rpi_partition_part *area = &part->area;
    const int64_t count = area->end - area->first;
    const int64_t blocks = (count + BLOCK / DEPTH - 1) / (BLOCK / DEPTH);
    const int64_t rows = round_up((count + blocks - 1) / blocks, ROWS);
    const int64_t depth = BLOCK / rows / DEPTH * DEPTH;
    for (int64_t first = area->first; first < area->end; first += rows)
        for (int64_t k = 0; k < it->k; k += depth) {
            const block at = {.it = it,
                              .first = first,
                              .rows = least(area->end - first, rows),
                              .k = k,
                              .k_count = least(it->k - k, depth),
                              .right = area->right,
                              .a = part->packed,
                              .b = part->packed + RPI_SGEMM_A};
            make_block(&at, area->left);
        }
}

RPI_SIMD_BODY(sgemm)(const void *args, int64_t begin, int64_t end) {
    const rpi_sgemm_work *work = args;
    for (int64_t i = begin; i < end; i++) {
        const rpi_sgemm_part part = rpi_sgemm_part_of(work, i);
        make_part(work->it, &part);
    }
}
