/* Products of small matrices that lie in cache, for kernels that multiply tiles.
 *
 * c [rows, 16 vectors] = (c, 0 or c scaled by row) + a b. An element's sum runs over k in
 * order, one fused multiply-add each, whatever the cut into register tiles: the bits depend on
 * nothing else. */
#ifndef RPI_ENGINE_SIMD_GEMM_H
#define RPI_ENGINE_SIMD_GEMM_H

#include "engine/backends/cpu/kernels/simd.h"

/* Registers: ROWS x VECTORS of c, VECTORS of b, one of a. 16 of 8 floats or 32 of 16. */
#if defined(__AVX512F__)
enum { GEMM_ROWS = 6, GEMM_VECTORS = 4 };
#else
enum { GEMM_ROWS = 6, GEMM_VECTORS = 1 };
#endif

typedef struct gemm_tiles {
    int64_t rows, vectors, k; /* of c: rows, columns / 16 */
    const float *a;           /* element (r, k) at a[r a_row + k a_k] */
    int64_t a_row, a_k;
    const float *b; /* [k, 16 vectors], rows b_row apart */
    int64_t b_row;
    float *c;
    int64_t c_row;
    const float *scale; /* [rows]: c is multiplied by it first; NULL: by 1 */
    bool from_zero;     /* c holds nothing yet */
} gemm_tiles;

SIMD void gemm_tile(const gemm_tiles *it, int64_t row, int64_t vector, const int rows,
                    const int vectors) {
    const float *a = it->a + row * it->a_row, *b = it->b + vector * RPI_LANES;
    float *c = it->c + row * it->c_row + vector * RPI_LANES;
    vf sum[GEMM_ROWS][GEMM_VECTORS];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            sum[r][v] = it->from_zero ? vf_zero() : vf_load(c + r * it->c_row + v * RPI_LANES);
            if (it->scale) sum[r][v] = vf_mul(sum[r][v], vf_set(it->scale[row + r]));
        }
    for (int64_t k = 0; k < it->k; k++) {
        vf right[GEMM_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) right[v] = vf_load(b + k * it->b_row + v * RPI_LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            vf left = vf_set(a[r * it->a_row + k * it->a_k]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) sum[r][v] = vf_fma(left, right[v], sum[r][v]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            vf_store(c + r * it->c_row + v * RPI_LANES, sum[r][v]);
}

/* Row r of every width, each its own code. */
SIMD void gemm_rows(const gemm_tiles *it, int64_t row, int64_t vector, const int vectors) {
    switch (it->rows - row) {
    case 1: gemm_tile(it, row, vector, 1, vectors); break;
    case 2: gemm_tile(it, row, vector, 2, vectors); break;
    case 3: gemm_tile(it, row, vector, 3, vectors); break;
    case 4: gemm_tile(it, row, vector, 4, vectors); break;
    case 5: gemm_tile(it, row, vector, 5, vectors); break;
    default: gemm_tile(it, row, vector, 6, vectors);
    }
}

static void __attribute__((unused, noinline)) gemm(const gemm_tiles *it) {
    for (int64_t vector = 0; vector < it->vectors; vector += GEMM_VECTORS)
        for (int64_t row = 0; row < it->rows; row += GEMM_ROWS) {
#if defined(__AVX512F__)
            switch (it->vectors - vector) {
            case 1: gemm_rows(it, row, vector, 1); break;
            case 2: gemm_rows(it, row, vector, 2); break;
            case 3: gemm_rows(it, row, vector, 3); break;
            default: gemm_rows(it, row, vector, 4);
            }
#else
            gemm_rows(it, row, vector, 1);
#endif
        }
}

/* Four by four: to[c][r] = from[r][c]. */
SIMD void transpose4(const float *from, int64_t from_row, float *to, int64_t to_row) {
    __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + from_row);
    __m128 c = _mm_loadu_ps(from + 2 * from_row), d = _mm_loadu_ps(from + 3 * from_row);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + to_row, b);
    _mm_storeu_ps(to + 2 * to_row, c);
    _mm_storeu_ps(to + 3 * to_row, d);
}

/* to[c][r] = from[r][c]; rows and cols are multiples of 4. */
SIMD void transpose(const float *from, int64_t from_row, int64_t rows, int64_t cols, float *to,
                    int64_t to_row) {
    for (int64_t c = 0; c < cols; c += 4)
        for (int64_t r = 0; r < rows; r += 4)
            transpose4(from + r * from_row + c, from_row, to + c * to_row + r, to_row);
}

#endif
