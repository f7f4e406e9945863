/* A lane of a vector is a channel of the block. */
#include "engine/backends/cpu/kernels/kernel_batch_norm.h"

#include "engine/backends/cpu/kernels/simd.h"

/* Sums run in chains, so that they do not wait for each addition, and image by image, so that
 * long ones lose little. */
enum { CHAINS = 4 };

typedef struct sums {
    vf first, second;
} sums;

SIMD vf load(simd_row row, int64_t pixel) {
    return row_load(row, pixel * RPI_LANES, RPI_LANES);
}

SIMD simd_row plane(const rpi_kernel_batch_norm *it, rpi_kernel_rows m, int64_t n,
                    int64_t block) {
    return row_of(m, n * it->blocks + block);
}

/* ---- forward ---- */

/* Of d = x - shift over an image: d and d^2. */
SIMD sums measure_plane(simd_row x, int64_t pixels, vf shift) {
    vf d_sum[CHAINS], square[CHAINS];
    for (int v = 0; v < CHAINS; v++) d_sum[v] = square[v] = vf_zero();
    for (int64_t p = 0; p < pixels; p += CHAINS)
        for (int v = 0; v < CHAINS && p + v < pixels; v++) {
            const vf d = vf_sub(load(x, p + v), shift);
            d_sum[v] = vf_add(d_sum[v], d);
            square[v] = vf_fma(d, d, square[v]);
        }
    return (sums){vf_add(vf_add(d_sum[0], d_sum[2]), vf_add(d_sum[1], d_sum[3])),
                  vf_add(vf_add(square[0], square[2]), vf_add(square[1], square[3]))};
}

/* Near the mean: that of the first image, or 0 where it is not finite. */
SIMD vf shift_of(const rpi_kernel_batch_norm *it, int64_t block) {
    const sums first = measure_plane(plane(it, it->x, 0, block), it->pixels, vf_zero());
    const vf mean = vf_div(first.first, vf_set((float)it->pixels));
    return vf_select(vf_lt(vf_abs(mean), vf_set(0x1p127f)), mean, vf_zero());
}

SIMD void measure(const rpi_kernel_batch_norm *it, int64_t block, vf *out_mean,
                  vf *out_variance) {
    const vf shift = shift_of(it, block), count = vf_set((float)(it->images * it->pixels));
    sums all = {vf_zero(), vf_zero()};
    for (int64_t n = 0; n < it->images; n++) {
        const sums one = measure_plane(plane(it, it->x, n, block), it->pixels, shift);
        all.first = vf_add(all.first, one.first);
        all.second = vf_add(all.second, one.second);
    }
    const vf d = vf_div(all.first, count);
    const vf variance = vf_fnma(d, d, vf_div(all.second, count));
    *out_mean = vf_add(shift, d);
    *out_variance = vf_max(vf_zero(), variance); /* NaN stays */
}

SIMD vf inverse_of(const rpi_kernel_batch_norm *it, vf variance) {
    return vf_div(vf_set(1), vf_sqrt(vf_add(variance, vf_set(it->epsilon))));
}

RPI_SIMD_BODY(batch_norm_forward)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_batch_norm *it = args;
    for (int64_t block = begin; block < end; block++) {
        const int64_t c = block * RPI_LANES;
        vf mean, variance;
        measure(it, block, &mean, &variance);
        vf_store(it->mean + c, mean);
        vf_store(it->variance + c, variance);
        const vf factor = vf_mul(vf_load(it->scale + c), inverse_of(it, variance));
        const vf shift = vf_load(it->shift + c);
        for (int64_t n = 0; n < it->images; n++) {
            const simd_row x = plane(it, it->x, n, block), y = plane(it, it->y, n, block);
            for (int64_t p = 0; p < it->pixels; p++) {
                const vf value = vf_fma(vf_sub(load(x, p), mean), factor, shift);
                row_store(y, p * RPI_LANES, it->relu ? vf_max(vf_zero(), value) : value,
                          RPI_LANES);
            }
        }
    }
}

/* ---- backward ---- */

/* The channels of a block. */
typedef struct channels {
    vf mean, factor, shift;
    bool relu;
} channels;

/* dy, or 0 where relu is closed; d = x - mean. */
SIMD vf gradient(const channels *of, simd_row dy, int64_t pixel, vf d) {
    const vf g = load(dy, pixel);
    if (!of->relu) return g;
    return vf_select(vf_le(vf_fma(d, of->factor, of->shift), vf_zero()), vf_zero(), g);
}

/* Of an image: g, and g d. */
SIMD sums sum_plane(const channels *of, simd_row x, simd_row dy, int64_t pixels) {
    vf g_sum[CHAINS], product[CHAINS];
    for (int v = 0; v < CHAINS; v++) g_sum[v] = product[v] = vf_zero();
    for (int64_t p = 0; p < pixels; p += CHAINS)
        for (int v = 0; v < CHAINS && p + v < pixels; v++) {
            const vf d = vf_sub(load(x, p + v), of->mean), g = gradient(of, dy, p + v, d);
            g_sum[v] = vf_add(g_sum[v], g);
            product[v] = vf_fma(g, d, product[v]);
        }
    return (sums){vf_add(vf_add(g_sum[0], g_sum[2]), vf_add(g_sum[1], g_sum[3])),
                  vf_add(vf_add(product[0], product[2]), vf_add(product[1], product[3]))};
}

/* dx = factor (g - first - d second) */
SIMD void write_plane(const channels *of, const sums *rest, simd_row x, simd_row dy,
                      simd_row dx, int64_t pixels) {
    for (int64_t p = 0; p < pixels; p++) {
        const vf d = vf_sub(load(x, p), of->mean);
        const vf g = vf_sub(gradient(of, dy, p, d), rest->first);
        row_store(dx, p * RPI_LANES, vf_mul(of->factor, vf_fnma(d, rest->second, g)),
                  RPI_LANES);
    }
}

RPI_SIMD_BODY(batch_norm_backward)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_batch_norm *it = args;
    const vf count = vf_set((float)(it->images * it->pixels));
    for (int64_t block = begin; block < end; block++) {
        const int64_t c = block * RPI_LANES;
        const vf inverse = inverse_of(it, vf_load(it->variance + c));
        const channels of = {vf_load(it->mean + c), vf_mul(vf_load(it->scale + c), inverse),
                             vf_load(it->shift + c), it->relu};
        sums all = {vf_zero(), vf_zero()};
        for (int64_t n = 0; n < it->images; n++) {
            const sums one = sum_plane(&of, plane(it, it->x, n, block),
                                       plane(it, it->dy, n, block), it->pixels);
            all.first = vf_add(all.first, one.first);
            all.second = vf_add(all.second, one.second);
        }
        vf_store(it->dshift + c, all.first);
        vf_store(it->dscale + c, vf_mul(all.second, inverse));
        const sums rest = {vf_div(all.first, count),
                           vf_div(vf_mul(all.second, vf_mul(inverse, inverse)), count)};
        for (int64_t n = 0; n < it->images; n++)
            write_plane(&of, &rest, plane(it, it->x, n, block), plane(it, it->dy, n, block),
                        plane(it, it->dx, n, block), it->pixels);
    }
}
