/* Tiles of 16 rows of 64 bytes. A tile of a holds 16 rows of 32 k; one of b 16 pairs of k of 16
 * columns; one of c 16 x 16 sums. Factors are packed into such tiles, one behind the other
 * along k; rows, columns and k that are missing are zeros. Two tiles of a and two of b make
 * four of c, which stay in registers along k. */
#include "engine/backends/cpu/kernels/kernel_matmul.h"

#include "engine/backends/cpu/kernels/simd_bf16.h"

#include <string.h>

enum { EDGE = 16, PAIRS = 16, DEPTH = 2 * PAIRS, TILE = EDGE * DEPTH, ROW_BYTES = 64 };

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ---- packing ---- */

/* A factor; `across` are its rows in c's sense for a, its columns for b. */
typedef struct factor {
    rpi_kernel_rows rows;
    const rpi_matmul_pixels *pixels; /* NULL: plain */
    bool k_is_row;                   /* k says which row of memory it is, else which column */
    bool k_along_rows;               /* how tiles want it: as a's, else as b's */
    bool is_bf16;
    int64_t size, step; /* bytes of an element; elements from one 16 columns to the next */
} factor;

static factor factor_of(const rpi_kernel_matmul *it, bool is_a) {
    factor made = {.rows = is_a ? it->a : it->b,
                   .pixels = is_a ? it->a_pixels : it->b_pixels,
                   .k_is_row = is_a ? it->a_transposed : !it->b_transposed,
                   .k_along_rows = is_a};
    made.is_bf16 = made.rows.dtype == RP_BF16;
    made.size = made.is_bf16 ? 2 : 4;
    made.step = rpi_matmul_block_step(made.pixels);
    return made;
}

/* Columns from `col` on, a multiple of 16, of a row. */
static const void *at_column(const factor *it, const void *row, int64_t col) {
    return (const char *)row + col / EDGE * it->step * it->size;
}

/* The first `count` elements of a row from this column on, of at most 32, as bf16. */
static __m512i load_along(const factor *it, const void *row, int64_t col, int64_t count) {
    const __mmask32 mask = count >= DEPTH ? 0xffffffffu : (1u << count) - 1u;
    const void *x = at_column(it, row, col);
    if (it->step == EDGE) return bf16_along(x, it->is_bf16, count);
    if (it->is_bf16) {
        const __m256i low = _mm256_maskz_loadu_epi16((__mmask16)mask, x);
        const __m256i high =
            _mm256_maskz_loadu_epi16((__mmask16)(mask >> 16), (const uint16_t *)x + it->step);
        return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    __m512 low = _mm512_maskz_loadu_ps((__mmask16)mask, x);
    __m512 high = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), (const float *)x + it->step);
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* 16 elements of two rows, interleaved; a row of NULL is zeros. */
static __m512i load_pair(const factor *it, const void *const rows[2], int64_t col,
                         __mmask16 mask) {
    return bf16_woven(rows[0] ? at_column(it, rows[0], col) : NULL,
                      rows[1] ? at_column(it, rows[1], col) : NULL, it->is_bf16, mask);
}

static void store_tile(const __m512i words[EDGE], uint16_t *tile) {
    for (int i = 0; i < EDGE; i++) _mm512_store_si512(tile + i * DEPTH, words[i]);
}

/* Where rows [first, first + count) begin: as rpi_matmul_row, without its divisions for each.
 */
static void find_rows(const rpi_kernel_rows *rows, const rpi_matmul_pixels *pixels,
                      int64_t first, int64_t count, const void **out) {
    if (!pixels || pixels->divisor != 1) {
        for (int64_t n = 0; n < count; n++) out[n] = rpi_matmul_row(rows, pixels, first + n);
        return;
    }
    const int64_t line = first / pixels->cols, size = rows->dtype == RP_BF16 ? 2 : 4;
    int64_t j = first - line * pixels->cols, image = line / pixels->rows;
    int64_t i = line - image * pixels->rows;
    for (int64_t n = 0; n < count; n++) {
        const int64_t y = i * pixels->stride + pixels->up,
                      x = j * pixels->stride + pixels->left;
        const bool is_there = y >= 0 && x >= 0 && y < pixels->height && x < pixels->width;
        const int64_t at = (image * pixels->blocks * pixels->height + y) * pixels->width + x;
        out[n] = is_there ? (const char *)rows->data + at * EDGE * size : NULL;
        if (++j < pixels->cols) continue;
        j = 0;
        if (++i < pixels->rows) continue;
        i = 0;
        image++;
    }
}

/* What lies further on will be wanted soon: rows are too many for the processor to see where
 * they lead. */
static void expect(const factor *it, const void *row, int64_t col) {
    const char *at = at_column(it, row, col);
    _mm_prefetch(at, _MM_HINT_T0);
    if (!it->is_bf16) _mm_prefetch(at + it->step * it->size, _MM_HINT_T0);
}

/* k runs along memory: a tile is 16 rows of it. */
static void pack_along(const factor *it, int64_t first, int64_t count, int64_t k,
                       int64_t k_count, uint16_t *tile) {
    enum { AHEAD = 4 * DEPTH };
    const void *rows[EDGE] = {NULL};
    __m512i words[EDGE];
    if (count > 0) find_rows(&it->rows, it->pixels, first, least(count, EDGE), rows);
    for (int64_t depth = 0; depth < k_count; depth += DEPTH, tile += TILE) {
        for (int i = 0; i < EDGE; i++) {
            words[i] = rows[i]
                           ? load_along(it, rows[i], k + depth, least(k_count - depth, DEPTH))
                           : _mm512_setzero_si512();
            if (rows[i] && depth + AHEAD < k_count) expect(it, rows[i], k + depth + AHEAD);
        }
        if (!it->k_along_rows) bf16_transpose(words);
        store_tile(words, tile);
    }
}

static void transpose_tile(uint16_t *tile) {
    __m512i words[EDGE];
    for (int i = 0; i < EDGE; i++) words[i] = _mm512_load_si512(tile + i * DEPTH);
    bf16_transpose(words);
    store_tile(words, tile);
}

/* Each k is a row of memory: two rows, all they hold, make a row of each of the tiles. */
static void pack_across(const factor *it, int64_t first, int64_t count, int64_t k,
                        int64_t k_count, int64_t tiles, uint16_t *packed) {
    const int64_t depths = (k_count + DEPTH - 1) / DEPTH;
    for (int64_t depth = 0; depth < depths; depth++, packed += TILE) {
        const void *rows[DEPTH] = {NULL};
        find_rows(&it->rows, it->pixels, k + depth * DEPTH,
                  least(k_count - depth * DEPTH, DEPTH), rows);
        for (int64_t i = 0; i < PAIRS; i++) {
            const void *const *pair = rows + 2 * i;
            for (int64_t t = 0; t < tiles; t++) {
                int64_t left = count - t * EDGE;
                __mmask16 mask = left >= EDGE ? 0xffff : left < 0 ? 0 : (1u << left) - 1u;
                _mm512_store_si512(packed + t * depths * TILE + i * DEPTH,
                                   load_pair(it, pair, first + t * EDGE, mask));
            }
        }
        for (int64_t t = 0; it->k_along_rows && t < tiles; t++)
            transpose_tile(packed + t * depths * TILE);
    }
}

/* [first, first + count) across, to whole pairs of tiles, and [k, k + k_count). */
static void pack(const factor *it, int64_t first, int64_t count, int64_t k, int64_t k_count,
                 uint16_t *packed) {
    const int64_t tiles = (count + 2 * EDGE - 1) / (2 * EDGE) * 2;
    const int64_t depths = (k_count + DEPTH - 1) / DEPTH;
    if (it->k_is_row) {
        pack_across(it, first, count, k, k_count, tiles, packed);
        return;
    }
    for (int64_t t = 0; t < tiles; t++)
        pack_along(it, first + t * EDGE, count - t * EDGE, k, k_count,
                   packed + t * depths * TILE);
}

/* ---- products ---- */

typedef struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shapes;

/* All eight alike: 0 to 3 are c's, 4 and 5 a's, 6 and 7 b's. */
static void configure(void) {
    tile_shapes shapes = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shapes.row_bytes[i] = ROW_BYTES;
        shapes.rows[i] = EDGE;
    }
    /* The intrinsic of gcc 12 says that it reads 8 bytes of the 64: the others may not be
     * there. */
    __asm__ volatile("" ::"m"(shapes));
    _tile_loadconfig(&shapes);
}

/* 32 x 32 sums in registers, += the products of `depths` tiles along k. */
static void multiply(const uint16_t *a, const uint16_t *b, int64_t depths) {
    const uint16_t *a1 = a + depths * TILE, *b1 = b + depths * TILE;
    for (int64_t i = 0; i < depths; i++) {
        _tile_loadd(6, b + i * TILE, ROW_BYTES);
        _tile_loadd(4, a + i * TILE, ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b1 + i * TILE, ROW_BYTES);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a1 + i * TILE, ROW_BYTES);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

/* 32 x 32 of c: `stride` elements from row to row, `step` from 16 columns to the next. */
static void start_at(const float *c, int64_t stride, int64_t step) {
    const size_t bytes = (size_t)stride * sizeof *c;
    _tile_loadd(0, c, bytes);
    _tile_loadd(1, c + step, bytes);
    _tile_loadd(2, c + EDGE * stride, bytes);
    _tile_loadd(3, c + EDGE * stride + step, bytes);
}

static void start_at_zero(void) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

static void store(float *c, int64_t stride, int64_t step) {
    const size_t bytes = (size_t)stride * sizeof *c;
    _tile_stored(0, c, bytes);
    _tile_stored(1, c + step, bytes);
    _tile_stored(2, c + EDGE * stride, bytes);
    _tile_stored(3, c + EDGE * stride + step, bytes);
}

enum { SIDE = 2 * EDGE };

typedef struct block {
    const rpi_kernel_matmul *it;
    const void *const *starts;    /* of the rows of c */
    int64_t row, col, rows, cols; /* of c that are there, at most 32 each */
    bool adds;
} block;

/* 16 columns of a row of c: these, or so many times 16 further on. */
static void *row_of(const block *at, int64_t i, int64_t further) {
    const rpi_kernel_matmul *it = at->it;
    const int64_t size = it->c.dtype == RP_BF16 ? 2 : 4;
    return (char *)at->starts[i] +
           (at->col / EDGE + further) * rpi_matmul_block_step(it->c_pixels) * size;
}

/* Between c and a matrix of 32 x 32. */
static void move(const block *at, float *aside, bool to_c) {
    for (int64_t i = 0; i < at->rows; i++)
        for (int64_t col = 0; col < at->cols; col += EDGE) {
            const __mmask16 live = (__mmask16)((1u << least(at->cols - col, EDGE)) - 1u);
            float *c = row_of(at, i, col / EDGE), *other = aside + i * SIDE + col;
            _mm512_mask_storeu_ps(to_c ? c : other, live,
                                  _mm512_maskz_loadu_ps(live, to_c ? other : c));
        }
}

/* From a matrix of 32 x 32 to c, rounded. */
static void round_out(const block *at, const float *aside) {
    for (int64_t i = 0; i < at->rows; i++)
        for (int64_t col = 0; col < at->cols; col += EDGE) {
            const __mmask16 live = (__mmask16)((1u << least(at->cols - col, EDGE)) - 1u);
            const __m512 sums = _mm512_load_ps(aside + i * SIDE + col);
            _mm256_mask_storeu_epi16(row_of(at, i, col / EDGE), live,
                                     (__m256i)_mm512_cvtneps_pbh(sums));
        }
}

/* Rows of c that are pixels follow one another within an image, if it has no others. */
static bool is_whole(const block *at) {
    const rpi_matmul_pixels *pixels = at->it->c_pixels;
    if (at->rows < SIDE || at->cols < SIDE || at->it->c.dtype == RP_BF16) return false;
    if (!pixels) return true;
    const int64_t count = pixels->rows * pixels->cols;
    return count == pixels->height * pixels->width &&
           at->row / count == (at->row + SIDE - 1) / count;
}

static void expect_writing(const float *c, int64_t stride, int64_t step) {
    for (int i = 0; i < SIDE; i++) {
        __builtin_prefetch(c + i * stride, 1);
        __builtin_prefetch(c + i * stride + step, 1);
    }
}

static void make_block(const block *at, const uint16_t *a, const uint16_t *b, int64_t depths) {
    const rpi_matmul_pixels *pixels = at->it->c_pixels;
    float aside[SIDE * SIDE] __attribute__((aligned(ROW_BYTES)));
    float *c = aside;
    int64_t stride = SIDE, step = EDGE;
    const bool whole = is_whole(at);
    if (whole) {
        c = row_of(at, 0, 0);
        stride = pixels ? RPI_MATMUL_BLOCK : at->it->c.stride;
        step = rpi_matmul_block_step(pixels);
    } else if (at->adds) {
        move(at, aside, false);
    }
    if (at->adds) {
        start_at(c, stride, step);
    } else {
        start_at_zero();
        expect_writing(c, stride, step);
    }
    multiply(a, b, depths);
    store(c, stride, step);
    if (at->it->c.dtype == RP_BF16)
        round_out(at, aside);
    else if (!whole)
        move(at, aside, true);
}

/* Rows and columns of c whose factors are packed, for this part of k. */
static void make_area(const rpi_kernel_matmul *it, const rpi_matmul_part *area, bool adds,
                      int64_t depths) {
    const uint16_t *b = area->packed + RPI_MATMUL_ROWS * RPI_MATMUL_DEPTH;
    for (int64_t row = area->first; row < area->end; row += SIDE) {
        const void *starts[SIDE];
        find_rows(&it->c, it->c_pixels, row, least(area->end - row, SIDE), starts);
        for (int64_t col = area->left; col < area->right; col += SIDE) {
            block at = {.it = it,
                        .starts = starts,
                        .row = row,
                        .col = col,
                        .rows = least(area->end - row, SIDE),
                        .cols = least(area->right - col, SIDE),
                        .adds = adds};
            make_block(&at, area->packed + (row - area->first) / EDGE * depths * TILE,
                       b + (col - area->left) / EDGE * depths * TILE, depths);
        }
    }
}

static void make_rows(const rpi_kernel_matmul *it, const rpi_matmul_part *part, int64_t first,
                      int64_t k) {
    const factor a = factor_of(it, true), b = factor_of(it, false);
    const int64_t k_count = least(it->k - k, RPI_MATMUL_DEPTH);
    rpi_matmul_part area = *part;
    area.first = first;
    area.end = first + least(part->end - first, RPI_MATMUL_ROWS);
    pack(&a, first, area.end - first, k, k_count, part->packed);
    for (; area.left < part->right; area.left += RPI_MATMUL_COLS) {
        area.right = area.left + least(part->right - area.left, RPI_MATMUL_COLS);
        pack(&b, area.left, area.right - area.left, k, k_count,
             part->packed + RPI_MATMUL_ROWS * RPI_MATMUL_DEPTH);
        make_area(it, &area, it->accumulate || k > 0, (k_count + DEPTH - 1) / DEPTH);
    }
}

void rpi_matmul_part_amx(const rpi_kernel_matmul *it, const rpi_matmul_part *part) {
    const int64_t places = it->window ? it->window * it->window : 1;
    configure();
    for (int64_t row = part->first; row < part->end; row += RPI_MATMUL_ROWS)
        for (int64_t place = 0; place < places; place++) {
            rpi_matmul_pixels moved;
            const rpi_kernel_matmul at = rpi_matmul_at(it, place, &moved);
            for (int64_t k = 0; k < it->k; k += RPI_MATMUL_DEPTH) make_rows(&at, part, row, k);
        }
    _tile_release();
}
