/* A lane of a vector is a channel of the block. */
#include "engine/backends/cpu/kernels/kernel_pool.h"

#include "engine/backends/cpu/kernels/simd.h"

/* A row of windows: `top` is the row of the plane in which they start, `rows` are the taps
 * inside it. */
typedef struct line {
    simd_row x, y;  /* of the plane, and of the row's windows */
    uint8_t *where; /* of the row's windows, or NULL */
    int64_t top;
    rpi_pool_taps rows;
} line;

/* What goes to bf16 came from there. */
SIMD void store_exact(simd_row y, int64_t i, vf x, const int64_t live) {
    if (y.bf16)
        vf_store_upper_n((uint16_t *)y.data + i, x, live);
    else
        vf_store_n((float *)y.data + i, x, live);
}

SIMD void pool_window(const rpi_kernel_max_pool *it, const line *of, int64_t j,
                      const rpi_pool_taps columns, const int64_t block) {
    const int64_t left = j * it->stride - it->padding;
    const int64_t corner = (of->top * it->width + left) * block, step = it->width * block;
    const int first = of->rows.first * it->side + columns.first;
    vf best = row_load(of->x, corner + of->rows.first * step + columns.first * block, block);
    vi from = vi_set((uint32_t)first);
    for (int r = of->rows.first; r < of->rows.end; r++)
        for (int s = columns.first; s < columns.end; s++) {
            const vf here = row_load(of->x, corner + r * step + s * block, block);
            const vm larger = vm_and(vf_not_le(here, best), vf_le(best, best)); /* no NaN yet */
            best = vf_select(larger, here, best);
            from = vi_select(larger, vi_set((uint32_t)(r * it->side + s)), from);
        }
    store_exact(of->y, j * block, best, block);
    if (of->where) vi_store_bytes_n(of->where + j * block, from, block);
}

/* The first and the last windows of a row may reach over the edge of the plane. */
SIMD void pool_line(const rpi_kernel_max_pool *it, const line *of, const int64_t block) {
    const rpi_pool_taps all = {0, it->side};
    for (int64_t j = 0; j < it->out_width; j++) {
        const int64_t left = j * it->stride - it->padding;
        if (left >= 0 && left + it->side <= it->width)
            pool_window(it, of, j, all, block);
        else
            pool_window(it, of, j, rpi_pool_taps_of(it, left, it->width), block);
    }
}

SIMD void pool(const rpi_kernel_max_pool *it, line of, const int64_t block) {
    if (of.x.bf16) {
        of.x.bf16 = true;
        pool_line(it, &of, block);
    } else {
        of.x.bf16 = of.y.bf16 = false;
        pool_line(it, &of, block);
    }
}

/* Units are rows of windows. */
RPI_SIMD_BODY(max_pool)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_max_pool *it = args;
    const int64_t row = it->out_width * it->block;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t plane = unit / it->out_height, i = unit % it->out_height;
        const int64_t top = i * it->stride - it->padding;
        const line of = {row_of(it->x, plane), row_from(row_of(it->y, plane), i * row),
                         it->where ? it->where + unit * row : NULL, top,
                         rpi_pool_taps_of(it, top, it->height)};
        if (it->block == RPI_LANES)
            pool(it, of, RPI_LANES);
        else
            pool(it, of, RPI_LANES / 2);
    }
}
