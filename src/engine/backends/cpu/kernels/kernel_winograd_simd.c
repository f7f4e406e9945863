#include "engine/backends/cpu/kernels/kernel_winograd.h"

#include "engine/backends/cpu/kernels/simd.h"

#include <string.h>

enum {
    BLOCK = RPI_WINOGRAD_BLOCK,
    TILE = RPI_WINOGRAD_TILE,
    SIDE = RPI_WINOGRAD_SIDE,
    POINTS = RPI_WINOGRAD_POINTS,
    PANEL = RPI_WINOGRAD_PANEL,
    WINDOW = 3,
};

/* ---- transforms of one dimension: element i at from[i stride] ---- */

SIMD vf times(float factor, vf x, vf y) { /* factor x + y */
    return vf_fma(vf_set(factor), x, y);
}

/* B^T: 6 of 6 */
SIMD void transform_input(const vf *from, int stride, vf *to, int to_stride) {
    vf d0 = from[0], d1 = from[stride], d2 = from[2 * stride], d3 = from[3 * stride];
    vf d4 = from[4 * stride], d5 = from[5 * stride];
    vf even = vf_sub(d4, d2), odd = vf_sub(d3, d1);
    to[0] = times(4, d0, times(-5, d2, d4));
    to[to_stride] = times(-4, vf_add(d1, d2), vf_add(d3, d4));
    to[2 * to_stride] = times(4, vf_sub(d1, d2), vf_sub(d4, d3));
    to[3 * to_stride] = times(2, odd, even);
    to[4 * to_stride] = times(-2, odd, even);
    to[5 * to_stride] = times(4, d1, times(-5, d3, d5));
}

/* A^T: 4 of 6 */
SIMD void transform_output(const vf *from, int stride, vf *to, int to_stride) {
    vf m1 = from[stride], m2 = from[2 * stride], m3 = from[3 * stride], m4 = from[4 * stride];
    vf a = vf_add(m1, m2), b = vf_sub(m1, m2), c = vf_add(m3, m4), d = vf_sub(m3, m4);
    to[0] = vf_add(vf_add(from[0], a), c);
    to[to_stride] = times(2, d, b);
    to[2 * to_stride] = times(4, c, a);
    to[3 * to_stride] = vf_add(times(8, d, b), from[5 * stride]);
}

/* G: 6 of 3 */
SIMD void transform_weight(const vf *from, int stride, vf *to, int to_stride) {
    vf g0 = from[0], g1 = from[stride], g2 = from[2 * stride];
    vf ends = vf_add(g0, g2), far = times(4, g2, g0);
    to[0] = vf_mul(vf_set(1.0f / 4), g0);
    to[to_stride] = vf_mul(vf_set(-1.0f / 6), vf_add(ends, g1));
    to[2 * to_stride] = vf_mul(vf_set(-1.0f / 6), vf_sub(ends, g1));
    to[3 * to_stride] = vf_mul(vf_set(1.0f / 24), times(2, g1, far));
    to[4 * to_stride] = vf_mul(vf_set(1.0f / 24), times(-2, g1, far));
    to[5 * to_stride] = g2;
}

/* A: 6 of 4 */
SIMD void transform_gradient(const vf *from, int stride, vf *to, int to_stride) {
    vf y0 = from[0], y1 = from[stride], y2 = from[2 * stride], y3 = from[3 * stride];
    vf even = vf_add(y0, y2), odd = vf_add(y1, y3);
    vf far_even = times(4, y2, y0), far_odd = times(8, y3, vf_add(y1, y1));
    to[0] = y0;
    to[to_stride] = vf_add(even, odd);
    to[2 * to_stride] = vf_sub(even, odd);
    to[3 * to_stride] = vf_add(far_even, far_odd);
    to[4 * to_stride] = vf_sub(far_even, far_odd);
    to[5 * to_stride] = y3;
}

/* G^T: 3 of 6 */
SIMD void transform_weight_back(const vf *from, int stride, vf *to, int to_stride) {
    vf u1 = from[stride], u2 = from[2 * stride], u3 = from[3 * stride], u4 = from[4 * stride];
    vf near = vf_add(u1, u2), far = vf_add(u3, u4);
    vf sixth = vf_set(1.0f / 6);
    vf middle = vf_mul(sixth, vf_sub(u2, u1));
    to[0] = vf_fma(vf_set(1.0f / 4), from[0],
                   vf_sub(vf_mul(vf_set(1.0f / 24), far), vf_mul(sixth, near)));
    to[to_stride] = times(1.0f / 12, vf_sub(u3, u4), middle);
    to[2 * to_stride] = vf_fma(sixth, vf_sub(far, near), from[5 * stride]);
}

/* ---- tiles ---- */

typedef struct tile_place {
    int64_t image, top, left; /* of y */
} tile_place;

SIMD tile_place place_of(const rpi_winograd_call *call, int64_t tile) {
    return (tile_place){tile / (call->down * call->across),
                        tile / call->across % call->down * TILE, tile % call->across * TILE};
}

/* side x side pixels from (top, left) on of one block of channels; zeros outside. */
SIMD void load_pixels(const float *plane, int64_t height, int64_t width, int64_t top,
                      int64_t left, int side, vf *pixels) {
    bool inside = top >= 0 && left >= 0 && top + side <= height && left + side <= width;
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) {
            int64_t row = top + i, col = left + j;
            bool is_there = inside || (row >= 0 && row < height && col >= 0 && col < width);
            pixels[i * side + j] =
                is_there ? vf_load(plane + (row * width + col) * BLOCK) : vf_zero();
        }
}

/* Asks for the four rows of four pixels from (top, left) on: those of the tile below that no
 * other tile has, or behind the last row, of the next plane. */
SIMD void ask_for(const float *plane, int64_t width, int64_t top, int64_t left,
                  const int writes) {
    const char *at =
        (const char *)plane + (top * width + left) * BLOCK * (int64_t)sizeof(float);
    for (int i = 0; i < TILE; i++, at += width * BLOCK * (int64_t)sizeof(float))
        for (int j = 0; j < TILE; j++) {
            if (writes)
                __builtin_prefetch(at + j * BLOCK * (int)sizeof(float), 1);
            else
                __builtin_prefetch(at + j * BLOCK * (int)sizeof(float));
        }
}

SIMD void store_points(const vf *points, float *to, int64_t step) {
    for (int p = 0; p < POINTS; p++) vf_store(to + p * step, points[p]);
}

/* Tiles are walked image by image and in it block by block of channels, as they lie. */
SIMD int64_t end_of_image(const rpi_winograd_call *call, int64_t tile, int64_t end) {
    const int64_t tiles = call->down * call->across;
    const int64_t next = (call->first + tile) / tiles * tiles + tiles - call->first;
    return next < end ? next : end;
}

/* B^T d B */
SIMD void put_input(const rpi_winograd_call *call, const float *x, int64_t tile,
                    int64_t block) {
    const rpi_winograd_shape *s = &call->shape;
    const tile_place at = place_of(call, call->first + tile);
    const int64_t blocks = s->channels / BLOCK;
    const float *plane = x + (at.image * blocks + block) * s->height * s->width * BLOCK;
    const int64_t top = at.top - s->padding, left = at.left - s->padding;
    vf d[POINTS], half[POINTS], out[POINTS];
    ask_for(plane, s->width, top + SIDE, left, 0);
    load_pixels(plane, s->height, s->width, top, left, SIDE, d);
    for (int j = 0; j < SIDE; j++) transform_input(d + j, SIDE, half + j, SIDE);
    for (int i = 0; i < SIDE; i++) transform_input(half + i * SIDE, 1, out + i * SIDE, 1);
    store_points(out, call->inputs + tile * call->input_row + block * BLOCK, call->input_step);
}

SIMD void put_inputs(const rpi_winograd_call *call, const float *x, int64_t begin,
                     int64_t end) {
    for (int64_t next; begin < end; begin = next) {
        next = end_of_image(call, begin, end);
        for (int64_t block = 0; block < call->shape.channels / BLOCK; block++)
            for (int64_t tile = begin; tile < next; tile++) put_input(call, x, tile, block);
    }
}

RPI_SIMD_BODY(winograd_inputs)(const void *args, int64_t begin, int64_t end) {
    const rpi_winograd_call *call = args;
    put_inputs(call, call->it->x, begin, end);
}

/* A dy A^T */
SIMD void put_gradient(const rpi_winograd_call *call, const float *dy, int64_t tile,
                       int64_t block) {
    const tile_place at = place_of(call, call->first + tile);
    const int64_t blocks = call->shape.filters / BLOCK;
    const float *plane = dy + (at.image * blocks + block) * call->rows * call->cols * BLOCK;
    vf y[TILE * TILE], half[SIDE * TILE], out[POINTS];
    ask_for(plane, call->cols, at.top + TILE, at.left, 0);
    load_pixels(plane, call->rows, call->cols, at.top, at.left, TILE, y);
    for (int j = 0; j < TILE; j++) transform_gradient(y + j, TILE, half + j, TILE);
    for (int i = 0; i < SIDE; i++) transform_gradient(half + i * TILE, 1, out + i * SIDE, 1);
    store_points(out, call->outputs + tile * call->output_row + block * BLOCK,
                 call->output_step);
}

RPI_SIMD_BODY(winograd_gradients)(const void *args, int64_t begin, int64_t end) {
    const rpi_winograd_call *call = args;
    put_inputs(call, call->of_weight->x, begin, end);
    for (int64_t next; begin < end; begin = next) {
        next = end_of_image(call, begin, end);
        for (int64_t block = 0; block < call->shape.filters / BLOCK; block++)
            for (int64_t tile = begin; tile < next; tile++)
                put_gradient(call, call->of_weight->dy, tile, block);
    }
}

SIMD void store_pixels(const rpi_winograd_call *call, tile_place at, int64_t block,
                       const vf *pixels) {
    const rpi_kernel_winograd *it = call->it;
    vf bias = it->bias ? vf_load(it->bias + block * BLOCK) : vf_zero();
    float *plane = it->y + (at.image * (call->shape.filters / BLOCK) + block) * call->rows *
                               call->cols * BLOCK;
    ask_for(plane, call->cols, at.top + TILE, at.left, 1);
    for (int i = 0; i < TILE && at.top + i < call->rows; i++)
        for (int j = 0; j < TILE && at.left + j < call->cols; j++) {
            float *y = plane + ((at.top + i) * call->cols + at.left + j) * BLOCK;
            vf value = vf_add(pixels[i * TILE + j], bias);
            vf_store(y, it->accumulate ? vf_add(vf_load(y), value) : value);
        }
}

SIMD void put_output(const rpi_winograd_call *call, int64_t tile, int64_t block) {
    vf m[POINTS], half[TILE * SIDE], y[TILE * TILE];
    const float *from = call->outputs + tile * call->output_row + block * BLOCK;
    for (int p = 0; p < POINTS; p++) m[p] = vf_load(from + p * call->output_step);
    for (int j = 0; j < SIDE; j++) transform_output(m + j, SIDE, half + j, SIDE);
    for (int i = 0; i < TILE; i++) transform_output(half + i * SIDE, 1, y + i * TILE, 1);
    store_pixels(call, place_of(call, call->first + tile), block, y);
}

RPI_SIMD_BODY(winograd_outputs)(const void *args, int64_t begin, int64_t end) {
    const rpi_winograd_call *call = args;
    for (int64_t next; begin < end; begin = next) {
        next = end_of_image(call, begin, end);
        for (int64_t block = 0; block < call->shape.filters / BLOCK; block++)
            for (int64_t tile = begin; tile < next; tile++) put_output(call, tile, block);
    }
}

/* ---- weights ---- */

/* Panel of filters at a point: [channels, width]. */
SIMD float *panel_at(const rpi_winograd_call *call, int64_t point, int64_t filter,
                     int64_t *out_width) {
    int64_t first = filter / PANEL * PANEL, left = call->shape.filters - first;
    *out_width = left < PANEL ? left : PANEL;
    return call->weights + point * call->weight_step +
           (first - call->first_panel * PANEL) * call->shape.channels;
}

/* 8 x 8 in either half of the lanes. */
#if defined(__AVX512F__)
SIMD void transpose_halves(vf r[8]) {
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    const __m512i high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    __m512d pairs[8], fours[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm512_castps_pd(_mm512_unpacklo_ps(r[i], r[i + 1]));
        pairs[i + 1] = _mm512_castps_pd(_mm512_unpackhi_ps(r[i], r[i + 1]));
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            fours[i + 2 * j] = _mm512_unpacklo_pd(pairs[i + j], pairs[i + j + 2]);
            fours[i + 2 * j + 1] = _mm512_unpackhi_pd(pairs[i + j], pairs[i + j + 2]);
        }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_castpd_ps(_mm512_permutex2var_pd(fours[i], low, fours[i + 4]));
        r[i + 4] = _mm512_castpd_ps(_mm512_permutex2var_pd(fours[i], high, fours[i + 4]));
    }
}
#else
SIMD void transpose_of_8(__m256 r[8]) {
    __m256d pairs[8];
    __m256 fours[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_castps_pd(_mm256_unpacklo_ps(r[i], r[i + 1]));
        pairs[i + 1] = _mm256_castps_pd(_mm256_unpackhi_ps(r[i], r[i + 1]));
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            fours[i + 2 * j] =
                _mm256_castpd_ps(_mm256_unpacklo_pd(pairs[i + j], pairs[i + j + 2]));
            fours[i + 2 * j + 1] =
                _mm256_castpd_ps(_mm256_unpackhi_pd(pairs[i + j], pairs[i + j + 2]));
        }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
    }
}
SIMD void transpose_halves(vf r[8]) {
    __m256 low[8], high[8];
    for (int i = 0; i < 8; i++) low[i] = r[i].low, high[i] = r[i].high;
    transpose_of_8(low);
    transpose_of_8(high);
    for (int i = 0; i < 8; i++) r[i] = vf_of(low[i], high[i]);
}
#endif

/* The weights of 16 windows, `stride` floats apart: one window a lane. The ninth are the last
 * of a second transpose, of which nothing else is computed. */
SIMD void load_windows(const float *from, int64_t stride, vf g[WINDOW * WINDOW]) {
    vf last[8];
    for (int i = 0; i < 8; i++, from += stride) {
        g[i] = vf_of(_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8 * stride));
        last[i] = vf_of(_mm256_loadu_ps(from + 1), _mm256_loadu_ps(from + 8 * stride + 1));
    }
    transpose_halves(g);
    transpose_halves(last);
    g[8] = last[7];
}

SIMD void store_eight(float *to, __m256 x, bool accumulate) {
    _mm256_storeu_ps(to, accumulate ? _mm256_add_ps(_mm256_loadu_ps(to), x) : x);
}

SIMD void store_windows(vf w[WINDOW * WINDOW], float *to, int64_t stride, bool accumulate) {
    float ninth[RPI_LANES];
    vf_store(ninth, w[8]);
    transpose_halves(w);
    for (int lane = 0; lane < RPI_LANES; lane++, to += stride) {
        store_eight(to, lane < 8 ? vf_low(w[lane]) : vf_high(w[lane - 8]), accumulate);
        to[8] = accumulate ? to[8] + ninth[lane] : ninth[lane];
    }
}

SIMD void turn(vf g[WINDOW * WINDOW]) {
    for (int i = 0; i < WINDOW * WINDOW / 2; i++) {
        vf first = g[i];
        g[i] = g[WINDOW * WINDOW - 1 - i];
        g[WINDOW * WINDOW - 1 - i] = first;
    }
}

/* G g G^T of a channel and 16 filters. */
SIMD void put_weight(const rpi_winograd_call *call, int64_t c, int64_t filter) {
    const rpi_winograd_shape *s = &call->shape;
    const int64_t window = WINDOW * WINDOW;
    vf g[WINDOW * WINDOW], half[SIDE * WINDOW], u[POINTS];
    int64_t width;
    if (call->it->turned) {
        load_windows(call->it->weight + (c * s->filters + filter) * window, window, g);
        turn(g);
    } else {
        load_windows(call->it->weight + (filter * s->channels + c) * window,
                     s->channels * window, g);
    }
    for (int j = 0; j < WINDOW; j++) transform_weight(g + j, WINDOW, half + j, WINDOW);
    for (int i = 0; i < SIDE; i++) transform_weight(half + i * WINDOW, 1, u + i * SIDE, 1);
    float *panel = panel_at(call, 0, filter, &width);
    store_points(u, panel + c * width + filter % PANEL, call->weight_step);
}

/* G^T du G of a channel and 16 filters. */
SIMD void deliver(const rpi_winograd_call *call, int64_t c, int64_t filter) {
    const int64_t window = WINDOW * WINDOW, channels = call->shape.channels;
    vf u[POINTS], half[WINDOW * SIDE], w[WINDOW * WINDOW];
    int64_t width;
    const float *panel = panel_at(call, 0, filter, &width);
    for (int p = 0; p < POINTS; p++)
        u[p] = vf_load(panel + c * width + filter % PANEL + p * call->weight_step);
    for (int j = 0; j < SIDE; j++) transform_weight_back(u + j, SIDE, half + j, SIDE);
    for (int i = 0; i < WINDOW; i++)
        transform_weight_back(half + i * SIDE, 1, w + i * WINDOW, 1);
    store_windows(w, call->of_weight->dw + (filter * channels + c) * window, channels * window,
                  call->of_weight->accumulate);
}

/* Units are blocks of channels of panels of filters, so that all 36 matrices are walked as they
 * lie. */
SIMD void walk_weights(const rpi_winograd_call *call, int64_t begin, int64_t end,
                       void (*const visit)(const rpi_winograd_call *, int64_t, int64_t)) {
    const int64_t blocks = call->shape.channels / BLOCK;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = (call->first_panel + unit / blocks) * PANEL;
        const int64_t c = unit % blocks * BLOCK;
        const int64_t left = call->shape.filters - first;
        for (int64_t i = 0; i < BLOCK; i++)
            for (int64_t f = 0; f < PANEL && f < left; f += RPI_LANES)
                visit(call, c + i, first + f);
    }
}

RPI_SIMD_BODY(winograd_weights)(const void *args, int64_t begin, int64_t end) {
    walk_weights(args, begin, end, put_weight);
}

RPI_SIMD_BODY(winograd_deliver)(const void *args, int64_t begin, int64_t end) {
    walk_weights(args, begin, end, deliver);
}

/* ---- products: units are points x panels ---- */

/* Registers: rows x vectors of c, vectors of b, one of a; DEPTH of k at a time, of which what b
 * has in a panel fits the L1 cache. */
#if defined(__AVX512F__)
enum { ROWS = 12 };
#else
enum { ROWS = 2 };
#endif
enum { DEPTH = 256, VECTORS = PANEL / RPI_LANES };

typedef struct product {
    int64_t rows, width, k; /* of c [rows, width]; width: PANEL, or half of it */
    const float *a;         /* element (r, k) at a[r a_row + k a_k] */
    int64_t a_row, a_k;
    const float *b;
    int64_t b_row;
    float *c;
    int64_t c_row;
    bool from_zero; /* c holds nothing yet */
} product;

/* An element's sum runs over k in order, whatever the cut. */
SIMD void make_tile(const product *it, int64_t row, int64_t k, int64_t end, const int rows,
                    const int vectors) {
    const float *a = it->a + row * it->a_row;
    float *c = it->c + row * it->c_row;
    const bool from_zero = it->from_zero && k == 0;
    vf sum[ROWS][VECTORS];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[r][v] = from_zero ? vf_zero() : vf_load(c + r * it->c_row + v * RPI_LANES);
    for (; k < end; k++) {
        vf right[VECTORS];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            right[v] = vf_load(it->b + k * it->b_row + v * RPI_LANES);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            const vf left = vf_set(a[r * it->a_row + k * it->a_k]);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) sum[r][v] = vf_fma(left, right[v], sum[r][v]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            vf_store(c + r * it->c_row + v * RPI_LANES, sum[r][v]);
}

/* The rest of the rows in powers of two, each its own code. */
SIMD void make_rows(const product *it, int64_t k, int64_t end, const int vectors) {
    int64_t row = 0;
    for (; row + ROWS <= it->rows; row += ROWS) make_tile(it, row, k, end, ROWS, vectors);
#if defined(__AVX512F__)
    if (row + 8 <= it->rows) make_tile(it, row, k, end, 8, vectors), row += 8;
    if (row + 4 <= it->rows) make_tile(it, row, k, end, 4, vectors), row += 4;
    if (row + 2 <= it->rows) make_tile(it, row, k, end, 2, vectors), row += 2;
#endif
    if (row < it->rows) make_tile(it, row, k, end, 1, vectors);
}

static void __attribute__((noinline)) multiply(const product *it) {
    for (int64_t k = 0; k < it->k; k += DEPTH) {
        const int64_t end = it->k < k + DEPTH ? it->k : k + DEPTH;
        if (it->width == PANEL)
            make_rows(it, k, end, VECTORS);
        else
            make_rows(it, k, end, 1);
    }
}

RPI_SIMD_BODY(winograd_multiply)(const void *args, int64_t begin, int64_t end) {
    const rpi_winograd_call *call = args;
    const rpi_winograd_shape *s = &call->shape;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t point = unit / call->panels, width;
        int64_t filter = (call->first_panel + unit % call->panels) * PANEL;
        const float *panel = panel_at(call, point, filter, &width);
        multiply(&(product){.rows = call->tiles,
                            .width = width,
                            .k = s->channels,
                            .a = call->inputs + point * call->input_step,
                            .a_row = call->input_row,
                            .a_k = 1,
                            .b = panel,
                            .b_row = width,
                            .c = call->outputs + point * call->output_step + filter,
                            .c_row = call->output_row,
                            .from_zero = true});
    }
}

/* Onto the sums of the tiles before. */
RPI_SIMD_BODY(winograd_sum)(const void *args, int64_t begin, int64_t end) {
    const rpi_winograd_call *call = args;
    const rpi_winograd_shape *s = &call->shape;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t point = unit / call->panels, width;
        int64_t filter = (call->first_panel + unit % call->panels) * PANEL;
        float *panel = panel_at(call, point, filter, &width);
        multiply(&(product){.rows = s->channels,
                            .width = width,
                            .k = call->tiles,
                            .a = call->inputs + point * call->input_step,
                            .a_row = 1,
                            .a_k = call->input_row,
                            .b = call->outputs + point * call->output_step + filter,
                            .b_row = call->output_row,
                            .c = panel,
                            .c_row = width,
                            .from_zero = call->first == 0});
    }
}
