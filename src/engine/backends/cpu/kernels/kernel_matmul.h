/* Matrix products of bf16 on processors with AMX or AVX512-BF16: c = or += a b, summed in f32.
 *
 * Both factors are f32 or bf16 and lie either way round; f32 is rounded to bf16 (to nearest,
 * ties to even) as it is packed, so that neither a rounded nor a packed copy of a weight is
 * kept. Both instruction sets take numbers below 2^-126 for zero. Each element of c is one sum
 * over k, in an order that depends on the sizes and on which of the two there is: not on the
 * number of threads. */
#ifndef RPI_ENGINE_KERNEL_MATMUL_H
#define RPI_ENGINE_KERNEL_MATMUL_H

#include "engine/backends/cpu/kernels/kernel.h"

#include <stddef.h>

/* Rows of a matrix that are pixels, and columns that are channels, of images which lie as
 * images x blocks x height x width x 16 channels. The rows walk a grid, image by image; place
 * (i, j) of it is pixel ((i stride + up) / divisor, (j stride + left) / divisor), or zeros
 * where there is none or a rest. */
enum { RPI_MATMUL_BLOCK = 16 };
typedef struct rpi_matmul_pixels {
    int64_t rows, cols;            /* of the grid */
    int64_t blocks, height, width; /* of an image */
    int64_t stride, up, left, divisor;
} rpi_matmul_pixels;

/* c: m x n. a: m x k, or where it is transposed k x m rows; b: k x n, or n x k rows. */
typedef struct rpi_kernel_matmul {
    int64_t m, n, k;
    rpi_kernel_rows a, b;
    bool a_transposed, b_transposed;
    rpi_kernel_rows c; /* f32; or bf16, rounded once: k is RPI_MATMUL_DEPTH at most, the window
                          one pixel, and nothing is accumulated then */
    bool accumulate;   /* onto c */
    const float *bias; /* [n], added to every row behind all else; NULL: none. c is plain rows
                          of f32 then */
    /* NULL: plain rows. Strides of rows are not looked at where they are pixels; n is a
     * multiple of 16 where c's rows are. */
    const rpi_matmul_pixels *a_pixels, *b_pixels, *c_pixels;
    /* A convolution is a sum of such products, one for each place of a window x window window
     * (0: 1): b is `tap` elements further in each, and a's grid is moved by `step` pixels for
     * each place of the window. */
    int64_t window, tap, step;
    void *workspace; /* rpi_kernel_matmul_workspace(run) bytes, aligned to RPI_ALIGNMENT */
} rpi_kernel_matmul;

/* How products are made: as they are defined, slowly; of plain rows by AVX512-BF16; or all of
 * them by AMX. */
typedef enum rpi_matmul_form {
    RPI_MATMUL_SCALAR,
    RPI_MATMUL_AVX512,
    RPI_MATMUL_AMX,
    RPI_MATMUL_FORMS
} rpi_matmul_form;

/* The best that the processor has, the system lets this process use, and REDPOLL_ISA allows:
 * what rpi_kernel_matmul_run takes where run->isa is AVX-512. */
rpi_matmul_form rpi_kernel_matmul_form(void);
size_t rpi_kernel_matmul_workspace(const rpi_kernel_run *run);
void rpi_kernel_matmul_run(const rpi_kernel_run *run, const rpi_kernel_matmul *args);
/* By no better form than `most`: for tests and measurements. */
void rpi_kernel_matmul_run_by(const rpi_kernel_run *run, const rpi_kernel_matmul *args,
                              rpi_matmul_form most);

enum { RPI_MATMUL_DEPTH = 768 }; /* of k at a time: half of a large L2 */

/* ---- inside ---- */

enum {
    RPI_MATMUL_GRAIN = 32, /* rows or columns of c of which threads get whole ones */
    RPI_MATMUL_ROWS = 512, /* of a that are packed at once, */
    RPI_MATMUL_COLS = 256, /* and of b */
    RPI_MATMUL_PACKED = (RPI_MATMUL_ROWS + RPI_MATMUL_COLS) * RPI_MATMUL_DEPTH,
    /* AVX512-BF16: the panels of a and of b, and rows of a that are packed at once at most. */
    RPI_MATMUL_ROW_GRAIN = 8,
    RPI_MATMUL_COL_GRAIN = 48,
    RPI_MATMUL_MOST_ROWS = 1536
};

/* Where row `row` begins, and how many elements further the next 16 columns do; NULL: zeros. */
static inline const void *rpi_matmul_row(const rpi_kernel_rows *rows,
                                         const rpi_matmul_pixels *pixels, int64_t row) {
    const int64_t size = rows->dtype == RP_BF16 ? 2 : 4;
    if (!pixels) return (const char *)rows->data + row * rows->stride * size;
    const int64_t line = row / pixels->cols, image = line / pixels->rows;
    int64_t y = (line - image * pixels->rows) * pixels->stride + pixels->up;
    int64_t x = (row - line * pixels->cols) * pixels->stride + pixels->left;
    if (y < 0 || x < 0) return NULL;
    if (pixels->divisor != 1) {
        if (y % pixels->divisor || x % pixels->divisor) return NULL;
        y /= pixels->divisor;
        x /= pixels->divisor;
    }
    if (y >= pixels->height || x >= pixels->width) return NULL;
    int64_t at = (image * pixels->blocks * pixels->height + y) * pixels->width + x;
    return (const char *)rows->data + at * RPI_MATMUL_BLOCK * size;
}

static inline int64_t rpi_matmul_block_step(const rpi_matmul_pixels *pixels) {
    return pixels ? pixels->height * pixels->width * RPI_MATMUL_BLOCK : RPI_MATMUL_BLOCK;
}

/* The product of one place of the window. `moved` is where a's grid goes. */
static inline rpi_kernel_matmul rpi_matmul_at(const rpi_kernel_matmul *it, int64_t place,
                                              rpi_matmul_pixels *moved) {
    rpi_kernel_matmul at = *it;
    if (place == 0) return at;
    const int64_t size = it->b.dtype == RP_BF16 ? 2 : 4;
    *moved = *it->a_pixels;
    moved->up += place / it->window * it->step;
    moved->left += place % it->window * it->step;
    at.a_pixels = moved;
    at.b.data = (char *)it->b.data + place * it->tap * size;
    at.accumulate = true;
    return at;
}

/* Rows [first, end) and columns [left, right) of c; `packed` has RPI_MATMUL_PACKED elements. */
typedef struct rpi_matmul_part {
    int64_t first, end, left, right;
    uint16_t *packed;
} rpi_matmul_part;

void rpi_matmul_part_amx(const rpi_kernel_matmul *it, const rpi_matmul_part *part);
void rpi_matmul_part_avx512(const rpi_kernel_matmul *it, const rpi_matmul_part *part);

#endif
