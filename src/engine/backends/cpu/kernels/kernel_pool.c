#include "engine/backends/cpu/kernels/kernel_pool.h"

#include <string.h>

/* ---- the definition ---- */

/* One channel of a window: `corner` is the element of tap 0, inside the plane or not. */
typedef struct window {
    int64_t plane, corner;
    rpi_pool_taps rows, columns;
} window;

static int64_t element_of(const rpi_kernel_max_pool *it, const window *w, int tap) {
    return w->corner + (tap / it->side * it->width + tap % it->side) * it->block;
}

static int largest(const rpi_kernel_max_pool *it, const window *w) {
    int from = w->rows.first * it->side + w->columns.first;
    float best = rpi_kernel_get(it->x, w->plane, element_of(it, w, from));
    for (int r = w->rows.first; r < w->rows.end; r++)
        for (int s = w->columns.first; s < w->columns.end; s++) {
            const int tap = r * it->side + s;
            const float here = rpi_kernel_get(it->x, w->plane, element_of(it, w, tap));
            if (here <= best || best != best) continue;
            best = here;
            from = tap;
        }
    return from;
}

/* As bits: a conversion would quieten a NaN that signals. */
static void copy(const rpi_kernel_max_pool *it, int64_t plane, int64_t from, int64_t to) {
    from += plane * it->x.stride;
    to += plane * it->y.stride;
    if (it->x.dtype == RP_F32)
        memcpy((float *)it->y.data + to, (const float *)it->x.data + from, sizeof(float));
    else if (it->y.dtype == RP_F32)
        ((uint32_t *)it->y.data)[to] = (uint32_t)((const uint16_t *)it->x.data)[from] << 16;
    else
        ((uint16_t *)it->y.data)[to] = ((const uint16_t *)it->x.data)[from];
}

/* Units are rows of windows. */
void rpi_max_pool_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_max_pool *it = args;
    const int64_t row = it->out_width * it->block;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t plane = unit / it->out_height, i = unit % it->out_height;
        const int64_t top = i * it->stride - it->padding;
        for (int64_t at = 0; at < row; at++) {
            const int64_t left = at / it->block * it->stride - it->padding;
            const window w = {plane, (top * it->width + left) * it->block + at % it->block,
                              rpi_pool_taps_of(it, top, it->height),
                              rpi_pool_taps_of(it, left, it->width)};
            const int tap = largest(it, &w);
            copy(it, plane, element_of(it, &w, tap), i * row + at);
            if (it->where) it->where[unit * row + at] = (uint8_t)tap;
        }
    }
}

void rpi_kernel_max_pool_forward(const rpi_kernel_run *run, const rpi_kernel_max_pool *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(max_pool);
    const bool is_blocked = it->block == 8 || it->block == 16;
    const rpi_kernel_run how = {run->threads, is_blocked ? run->isa : RPI_ISA_SCALAR};
    rpi_kernel_parallel(&how, it->planes * it->out_height, 1, bodies, it);
}
