/* Plain rows on processors with AVX512-BF16 and no AMX. What kernel_sgemm_simd.c does with
 * floats this does with words, pairs of k of one row or column: a block of a stays packed in
 * the L2 cache; columns of b are packed beside it, STEP of k at a time, and multiplied by all
 * rows of the block. A packed factor is panels of ROWS rows or COLS columns, each of which lies
 * word by word of k, with zeros for what is missing. */
#include "engine/backends/cpu/kernels/kernel_matmul.h"
#include "engine/backends/cpu/kernels/simd_bf16.h"
#include "engine/backends/cpu/kernels/simd_outlook.h"

/* Registers: ROWS x VECTORS of c, VECTORS of b, one of a. STEP: of k in one sum, of which the
 * panel of b fits the L1 cache. BLOCK words of a are packed at once, for an L2 of 1 MB. */
enum { LANES = 16, ROWS = RPI_MATMUL_ROW_GRAIN, COLS = RPI_MATMUL_COL_GRAIN };
enum { VECTORS = COLS / LANES, STEP = 256, BLOCK = RPI_MATMUL_MOST_ROWS * STEP / 2 };
_Static_assert(2 * BLOCK + COLS * STEP <= RPI_MATMUL_PACKED, "both fit the workspace");

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t round_up(int64_t count, int64_t unit) {
    return (count + unit - 1) / unit * unit;
}

static int64_t words_of(int64_t k_count) {
    return (k_count + 1) / 2;
}

/* ---- packing ---- */

/* A factor; `across` are its rows in c's sense for a, its columns for b. */
typedef struct factor {
    const char *data;
    int64_t stride, size; /* bytes from row to row, of an element */
    bool k_is_row;        /* k says which row of memory it is, else which column */
    bool is_bf16;
} factor;

static factor factor_of(const rpi_kernel_rows *rows, bool k_is_row) {
    const bool is_bf16 = rows->dtype == RP_BF16;
    const int64_t size = is_bf16 ? 2 : 4;
    return (factor){rows->data, rows->stride * size, size, k_is_row, is_bf16};
}

static const char *at(const factor *it, int64_t row, int64_t col) {
    return it->data + row * it->stride + col * it->size;
}

/* 16 words of one k behind another for 16 rows or columns: into a panel of b, or into two
 * neighbours of a. */
static inline void put(uint32_t *panel, int64_t panel_words, int width, __m512i words) {
    if (width == ROWS) {
        _mm256_storeu_si256((__m256i *)panel, _mm512_castsi512_si256(words));
        _mm256_storeu_si256((__m256i *)(panel + panel_words),
                            _mm512_extracti64x4_epi64(words, 1));
    } else {
        _mm512_storeu_si512(panel, words);
    }
}

/* k runs along memory: `rows` rows of it, at most 16. Those that follow are asked for. */
static inline void pack_along(const factor *it, int64_t row, int64_t rows, int64_t more,
                              int64_t k, int64_t k_count, uint32_t *panel, const int width) {
    const int64_t panel_words = words_of(k_count) * width;
    for (int64_t depth = 0; depth < k_count; depth += 2 * LANES) {
        const int64_t left = least(k_count - depth, 2 * LANES);
        __m512i words[LANES];
        for (int i = 0; i < LANES; i++)
            words[i] = i < rows ? bf16_along(at(it, row + i, k + depth), it->is_bf16, left)
                                : _mm512_setzero_si512();
        for (int64_t i = LANES; i < LANES + more; i++) {
            _mm_prefetch(at(it, row + i, k + depth), _MM_HINT_T0);
            if (!it->is_bf16) _mm_prefetch(at(it, row + i, k + depth + LANES), _MM_HINT_T0);
        }
        bf16_transpose(words);
        for (int64_t i = 0; i < words_of(left); i++)
            put(panel + (depth / 2 + i) * width, panel_words, width, words[i]);
    }
}

/* Each k is a row of memory: two rows are a word of every panel. */
static inline void pack_across(const factor *it, int64_t col, int64_t count, int64_t k,
                               int64_t k_count, uint32_t *packed, const int width) {
    enum { AHEAD = 8 };
    const int64_t panel_words = words_of(k_count) * width;
    for (int64_t depth = 0; depth < k_count; depth += 2) {
        const char *x = at(it, k + depth, col);
        const char *y = depth + 1 < k_count ? x + it->stride : NULL;
        uint32_t *to = packed + depth / 2 * width;
        for (int64_t i = 0; i < count; i += LANES) {
            const int64_t left = count - i, shift = i * it->size;
            const __mmask16 live = left < LANES ? (__mmask16)((1u << left) - 1u) : 0xffff;
            if (depth + AHEAD + 1 < k_count) {
                _mm_prefetch(x + AHEAD * it->stride + shift, _MM_HINT_T0);
                _mm_prefetch(x + (AHEAD + 1) * it->stride + shift, _MM_HINT_T0);
            }
            put(to + (width == ROWS ? i / ROWS * panel_words : i), panel_words, width,
                bf16_woven(x + shift, y ? y + shift : NULL, it->is_bf16, live));
        }
    }
}

/* [first, first + count) across and [k, k + k_count), in panels of `width`; of a, whose panels
 * are made by twos, to an even number of them. */
static inline void pack(const factor *it, int64_t first, int64_t count, int64_t k,
                        int64_t k_count, uint32_t *packed, const int width) {
    enum { GROUP = 192 }; /* of panels at a time: all want the same places of the L1 cache */
    const int64_t words = words_of(k_count);
    for (int64_t i = 0; it->k_is_row && i < count; i += GROUP)
        pack_across(it, first + i, least(count - i, GROUP), k, k_count, packed + i * words,
                    width);
    if (it->k_is_row) return;
    for (int64_t i = 0; i < count; i += LANES) {
        const int64_t left = count - i;
        uint32_t *panel = packed + (width == ROWS ? i * words : i);
        pack_along(it, first + i, least(left, LANES),
                   least(left > LANES ? left - LANES : 0, LANES), k, k_count, panel, width);
    }
}

static void __attribute__((noinline))
pack_a(const rpi_kernel_matmul *it, int64_t first, int64_t count, int64_t k, int64_t k_count,
       uint32_t *packed) {
    const factor a = factor_of(&it->a, it->a_transposed);
    pack(&a, first, count, k, k_count, packed, ROWS);
}

/* At most COLS columns; vectors of them that are missing are not multiplied. */
static void __attribute__((noinline))
pack_b(const rpi_kernel_matmul *it, int64_t first, int64_t count, int64_t k, int64_t k_count,
       uint32_t *packed) {
    const factor b = factor_of(&it->b, !it->b_transposed);
    pack(&b, first, count, k, k_count, packed, COLS);
}

/* ---- products ---- */

/* ROWS x COLS of c, or what is there of them, from a panel of each factor. */
typedef struct tile {
    int64_t words, rows, cols;
    const uint32_t *a, *b;
    float *c;
    int64_t stride;
    bool adds;
    const float *bias;
    outlook *next;
} tile;

enum { STRETCH = 16 }; /* of words, between two looks ahead */

static inline void finish(const tile *it, int64_t row, int vector, __m512 sum) {
    const int64_t left = it->cols - vector * LANES;
    const __mmask16 live = left >= LANES ? 0xffff : (__mmask16)((1u << left) - 1u);
    float *c = it->c + row * it->stride + vector * LANES;
    if (it->adds) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(live, c), sum);
    if (it->bias)
        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(live, it->bias + vector * LANES));
    _mm512_mask_storeu_ps(c, live, sum);
}

static inline __attribute__((always_inline)) void multiply(const tile *it, const int vectors) {
    const uint32_t *a = it->a, *b = it->b;
    __m512 sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) sum[r][v] = _mm512_setzero_ps();
    for (int64_t word = 0, row = 0; word < it->words; row++) {
        const int64_t end = least(it->words, word + STRETCH);
        if (row < it->rows)
            for (int v = 0; v < vectors; v++)
                __builtin_prefetch(it->c + row * it->stride + v * LANES, 1);
        look_ahead(it->next);
        for (; word < end; word++, a += ROWS, b += COLS) {
            __m512bh right[VECTORS];
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++)
                right[v] = (__m512bh)_mm512_loadu_si512(b + v * LANES);
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; r++) {
                const __m512bh left = (__m512bh)_mm512_set1_epi32((int)a[r]);
#pragma GCC unroll 3
                for (int v = 0; v < vectors; v++)
                    sum[r][v] = _mm512_dpbf16_ps(sum[r][v], left, right[v]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            if (r < it->rows) finish(it, r, v, sum[r][v]);
}

static void make_tile(const tile *it) {
    if (it->cols > 2 * LANES)
        multiply(it, 3);
    else if (it->cols > LANES)
        multiply(it, 2);
    else
        multiply(it, 1);
}

/* Rows of a and k of them that are packed; the panels of one STEP of k lie together. */
typedef struct block {
    const rpi_kernel_matmul *it;
    int64_t first, rows, k, k_count;
    int64_t right; /* the end of the columns */
    uint32_t *a, *b;
} block;

/* The words of so much of a; panels are made by twos. */
static int64_t packed_words(int64_t rows, int64_t k_count) {
    return round_up(rows, LANES) * words_of(k_count);
}

/* What is packed behind these columns and this k. */
static outlook outlook_of(const block *at, int64_t left, int64_t k) {
    const rpi_kernel_matmul *it = at->it;
    const int64_t size = it->b.dtype == RP_BF16 ? 2 : 4;
    k += STEP;
    if (k >= at->k_count) {
        k = 0;
        left += COLS;
    }
    if (left >= at->right) return (outlook){.rows = 0};
    const int64_t depth = least(at->k_count - k, STEP), first = at->k + k;
    const int64_t cols = least(at->right - left, COLS);
    const int64_t row = it->b_transposed ? left : first, col = it->b_transposed ? first : left;
    outlook next = {.row = (const char *)it->b.data + (row * it->b.stride + col) * size,
                    .stride = it->b.stride * size,
                    .bytes = (it->b_transposed ? depth : cols) * size,
                    .rows = it->b_transposed ? cols : depth};
    spread_outlook(&next, round_up(at->rows, ROWS) / ROWS *
                              ((words_of(depth) + STRETCH - 1) / STRETCH));
    return next;
}

/* Columns [left, left + COLS) of the block, of a STEP of k from `k` on, counted in it. */
static void make_columns(const block *at, int64_t left, int64_t k) {
    const rpi_kernel_matmul *it = at->it;
    const int64_t cols = least(at->right - left, COLS), depth = least(at->k_count - k, STEP);
    const uint32_t *a = at->a + packed_words(at->rows, k);
    const bool is_last = at->k + k + depth == it->k;
    outlook next = outlook_of(at, left, k);
    pack_b(it, left, cols, at->k + k, depth, at->b);
    for (int64_t row = 0; row < at->rows; row += ROWS) {
        const tile one = {.words = words_of(depth),
                          .rows = least(at->rows - row, ROWS),
                          .cols = cols,
                          .a = a + row * words_of(depth),
                          .b = at->b,
                          .c = (float *)it->c.data + (at->first + row) * it->c.stride + left,
                          .stride = it->c.stride,
                          .adds = it->accumulate || at->k + k > 0,
                          .bias = is_last && it->bias ? it->bias + left : NULL,
                          .next = &next};
        make_tile(&one);
    }
}

static void make_block(const block *at, int64_t left) {
    for (int64_t k = 0; k < at->k_count; k += STEP)
        pack_a(at->it, at->first, at->rows, at->k + k, least(at->k_count - k, STEP),
               at->a + packed_words(at->rows, k));
    for (; left < at->right; left += COLS)
        for (int64_t k = 0; k < at->k_count; k += STEP) make_columns(at, left, k);
}

void rpi_matmul_part_avx512(const rpi_kernel_matmul *it, const rpi_matmul_part *part) {
    const int64_t count = part->end - part->first;
    const int64_t blocks = (count + RPI_MATMUL_MOST_ROWS - 1) / RPI_MATMUL_MOST_ROWS;
    const int64_t rows = round_up((count + blocks - 1) / blocks, LANES);
    const int64_t depth = BLOCK / rows / words_of(STEP) * STEP;
    uint32_t *packed = (uint32_t *)(void *)part->packed;
    for (int64_t first = part->first; first < part->end; first += rows)
        for (int64_t k = 0; k < it->k; k += depth) {
            const block one = {.it = it,
                               .first = first,
                               .rows = least(part->end - first, rows),
                               .k = k,
                               .k_count = least(it->k - k, depth),
                               .right = part->right,
                               .a = packed,
                               .b = packed + BLOCK};
            make_block(&one, part->left);
        }
}
