/* A lane of a vector is a channel of the block. */
#include "engine/backends/cpu/kernels/kernel_batch_norm.h"

#include "engine/backends/cpu/kernels/simd.h"
#include "engine/backends/cpu/kernels/simd_image_norm.h"

/* Sums run in chains, so that they do not wait for each addition, and image by image, so that
 * long ones lose little. Blocks are taken some at a time: what they have in an image lies
 * together, GROUP of them at most and as many as fit a large L2 cache. */
enum { CHAINS = 4, GROUP = 16, GROUP_BYTES = 1 << 19 };

typedef struct sums {
    vf first, second;
} sums;

typedef struct group {
    const rpi_kernel_batch_norm *it;
    int64_t first, end; /* blocks */
} group;

SIMD vf load(simd_row row, int64_t pixel) {
    return row_load(row, pixel * RPI_LANES, RPI_LANES);
}

/* Nothing where there is no such matrix. */
SIMD simd_row plane(const rpi_kernel_batch_norm *it, rpi_kernel_rows m, int64_t n,
                    int64_t block) {
    return m.data ? row_of(m, n * it->blocks + block) : (simd_row){0};
}

SIMD int64_t group_size(const rpi_kernel_batch_norm *it) {
    const int64_t bytes = it->images * it->pixels * RPI_LANES * (int64_t)sizeof(float);
    const int64_t size = GROUP_BYTES / bytes;
    return size < 1 ? 1 : size > GROUP ? GROUP : size;
}

SIMD sums add_chains(const vf first[CHAINS], const vf second[CHAINS]) {
    return (sums){vf_add(vf_add(first[0], first[2]), vf_add(first[1], first[3])),
                  vf_add(vf_add(second[0], second[2]), vf_add(second[1], second[3]))};
}

/* ---- forward ---- */

SIMD void measure_pixel(simd_row x, int64_t pixel, vf shift, vf *d_sum, vf *square) {
    const vf d = vf_sub(load(x, pixel), shift);
    *d_sum = vf_add(*d_sum, d);
    *square = vf_fma(d, d, *square);
}

/* Of d = x - shift over an image: d and d^2. */
SIMD sums measure_row(simd_row x, int64_t pixels, vf shift) {
    vf d_sum[CHAINS], square[CHAINS];
    int64_t p = 0;
    for (int v = 0; v < CHAINS; v++) d_sum[v] = square[v] = vf_zero();
    for (; p + CHAINS <= pixels; p += CHAINS)
        for (int v = 0; v < CHAINS; v++) measure_pixel(x, p + v, shift, &d_sum[v], &square[v]);
    for (int v = 0; v < CHAINS; v++)
        if (p + v < pixels) measure_pixel(x, p + v, shift, &d_sum[v], &square[v]);
    return add_chains(d_sum, square);
}

SIMD sums measure_plane(simd_row x, int64_t pixels, vf shift) {
    return x.bf16 ? measure_row(x, pixels, shift) : measure_row(as_floats(x), pixels, shift);
}

/* Near the mean: that of the first image, or 0 where it is not finite. */
SIMD vf shift_of(const rpi_kernel_batch_norm *it, int64_t block) {
    const sums first = measure_plane(plane(it, it->x, 0, block), it->pixels, vf_zero());
    const vf mean = vf_div(first.first, vf_set((float)it->pixels));
    return vf_select(vf_lt(vf_abs(mean), vf_set(0x1p127f)), mean, vf_zero());
}

SIMD void measure(const group *of) {
    const rpi_kernel_batch_norm *it = of->it;
    const vf count = vf_set((float)(it->images * it->pixels));
    vf shift[GROUP];
    sums all[GROUP];
    for (int64_t b = of->first; b < of->end; b++) {
        shift[b - of->first] = shift_of(it, b);
        all[b - of->first] = (sums){vf_zero(), vf_zero()};
    }
    for (int64_t n = 0; n < it->images; n++)
        for (int64_t b = of->first; b < of->end; b++) {
            sums *sum = &all[b - of->first];
            const sums one =
                measure_plane(plane(it, it->x, n, b), it->pixels, shift[b - of->first]);
            *sum = (sums){vf_add(sum->first, one.first), vf_add(sum->second, one.second)};
        }
    for (int64_t b = of->first; b < of->end; b++) {
        const vf d = vf_div(all[b - of->first].first, count);
        const vf variance = vf_fnma(d, d, vf_div(all[b - of->first].second, count));
        vf_store(it->mean + b * RPI_LANES, vf_add(shift[b - of->first], d));
        vf_store(it->variance + b * RPI_LANES, vf_max(vf_zero(), variance)); /* NaN stays */
    }
}

/* The channels of a block. */
typedef struct channels {
    vf mean, inverse, factor, shift; /* factor = scale inverse */
} channels;

SIMD channels channels_of(const rpi_kernel_batch_norm *it, int64_t block) {
    const int64_t c = block * RPI_LANES;
    const vf variance = vf_load(it->variance + c);
    const vf inverse = vf_div(vf_set(1), vf_sqrt(vf_add(variance, vf_set(it->epsilon))));
    return (channels){vf_load(it->mean + c), inverse, vf_mul(vf_load(it->scale + c), inverse),
                      vf_load(it->shift + c)};
}

SIMD void normalise_row(const channels *of, simd_row x, simd_row addend, simd_row y,
                        int64_t pixels, const bool adds, const bool relu) {
    for (int64_t p = 0; p < pixels; p++) {
        vf value = vf_fma(vf_sub(load(x, p), of->mean), of->factor, of->shift);
        if (adds) value = vf_add(value, load(addend, p));
        row_store(y, p * RPI_LANES, relu ? vf_max(vf_zero(), value) : value, RPI_LANES);
    }
}

SIMD void normalise_plane(const rpi_kernel_batch_norm *it, const channels *of, int64_t n,
                          int64_t block, const bool adds, const bool relu) {
    const simd_row x = plane(it, it->x, n, block), y = plane(it, it->y, n, block);
    const simd_row addend = plane(it, it->addend, n, block);
    if (x.bf16 || y.bf16 || addend.bf16)
        normalise_row(of, x, addend, y, it->pixels, adds, relu);
    else
        normalise_row(of, as_floats(x), as_floats(addend), as_floats(y), it->pixels, adds,
                      relu);
}

SIMD void normalise(const group *of, const bool adds, const bool relu) {
    const rpi_kernel_batch_norm *it = of->it;
    channels all[GROUP];
    for (int64_t b = of->first; b < of->end; b++) all[b - of->first] = channels_of(it, b);
    for (int64_t n = 0; n < it->images; n++)
        for (int64_t b = of->first; b < of->end; b++)
            normalise_plane(it, &all[b - of->first], n, b, adds, relu);
}

RPI_SIMD_BODY(batch_norm_forward)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_batch_norm *it = args;
    const int64_t size = group_size(it);
    for (; begin < end; begin += size) {
        const group of = {it, begin, begin + size < end ? begin + size : end};
        measure(&of);
        if (it->adds)
            it->relu ? normalise(&of, true, true) : normalise(&of, true, false);
        else
            it->relu ? normalise(&of, false, true) : normalise(&of, false, false);
    }
}

/* ---- backward ---- */

SIMD planes planes_of(const rpi_kernel_batch_norm *it, int64_t n, int64_t block) {
    return (planes){plane(it, it->x, n, block), plane(it, it->y, n, block),
                    plane(it, it->dy, n, block), plane(it, it->dx, n, block),
                    plane(it, it->daddend, n, block)};
}

/* dy, or 0 where relu is closed; d = x - mean. */
SIMD vf gradient(const channels *of, const planes *at, int64_t pixel, vf d, const opening how) {
    const vf g = load(at->dy, pixel);
    if (how == OPEN) return g;
    const vf y = how == OPEN_BY_Y ? load(at->y, pixel) : vf_fma(d, of->factor, of->shift);
    return vf_select(vf_le(y, vf_zero()), vf_zero(), g);
}

SIMD void sum_pixel(const channels *of, const planes *at, int64_t pixel, const opening how,
                    const bool keeps, vf *g_sum, vf *product) {
    const vf d = vf_sub(load(at->x, pixel), of->mean);
    const vf g = gradient(of, at, pixel, d, how);
    if (keeps) row_store(at->daddend, pixel * RPI_LANES, g, RPI_LANES);
    *g_sum = vf_add(*g_sum, g);
    *product = vf_fma(g, d, *product);
}

/* Of an image: g, which is kept where it is the addend's, and g d. */
SIMD sums sum_row(const channels *of, planes at, int64_t pixels, const opening how,
                  const bool keeps) {
    vf g_sum[CHAINS], product[CHAINS];
    int64_t p = 0;
    for (int v = 0; v < CHAINS; v++) g_sum[v] = product[v] = vf_zero();
    for (; p + CHAINS <= pixels; p += CHAINS)
        for (int v = 0; v < CHAINS; v++)
            sum_pixel(of, &at, p + v, how, keeps, &g_sum[v], &product[v]);
    for (int v = 0; v < CHAINS; v++)
        if (p + v < pixels) sum_pixel(of, &at, p + v, how, keeps, &g_sum[v], &product[v]);
    return add_chains(g_sum, product);
}

SIMD sums sum_plane(const channels *of, const planes *at, int64_t pixels, const opening how,
                    const bool keeps) {
    return has_bf16(at) ? sum_row(of, *at, pixels, how, keeps)
                        : sum_row(of, all_floats(at), pixels, how, keeps);
}

/* dx = factor (g - first - d second) */
SIMD void write_row(const channels *of, const sums *rest, planes at, int64_t pixels,
                    const opening how) {
    for (int64_t p = 0; p < pixels; p++) {
        const vf d = vf_sub(load(at.x, p), of->mean);
        const vf g = vf_sub(gradient(of, &at, p, d, how), rest->first);
        row_store(at.dx, p * RPI_LANES, vf_mul(of->factor, vf_fnma(d, rest->second, g)),
                  RPI_LANES);
    }
}

SIMD void write_plane(const channels *of, const sums *rest, const planes *at, int64_t pixels,
                      const opening how) {
    if (has_bf16(at))
        write_row(of, rest, *at, pixels, how);
    else
        write_row(of, rest, all_floats(at), pixels, how);
}

/* The second time g comes from daddend where that is as exact as dy. */
SIMD void write_again(const rpi_kernel_batch_norm *it, const channels *of, const sums *rest,
                      planes at, const opening how, const bool keeps) {
    if (keeps && (it->daddend.dtype == RP_F32 || it->dy.dtype == RP_BF16)) {
        at.dy = at.daddend;
        write_plane(of, rest, &at, it->pixels, OPEN);
    } else {
        write_plane(of, rest, &at, it->pixels, how);
    }
}

SIMD void differentiate(const group *at, const opening how, const bool keeps) {
    const rpi_kernel_batch_norm *it = at->it;
    const vf count = vf_set((float)(it->images * it->pixels));
    channels of[GROUP];
    sums all[GROUP];
    for (int64_t b = at->first; b < at->end; b++) {
        of[b - at->first] = channels_of(it, b);
        all[b - at->first] = (sums){vf_zero(), vf_zero()};
    }
    for (int64_t n = 0; n < it->images; n++)
        for (int64_t b = at->first; b < at->end; b++) {
            const planes here = planes_of(it, n, b);
            sums *sum = &all[b - at->first];
            const sums one = sum_plane(&of[b - at->first], &here, it->pixels, how, keeps);
            *sum = (sums){vf_add(sum->first, one.first), vf_add(sum->second, one.second)};
        }
    for (int64_t b = at->first; b < at->end; b++) {
        const vf inverse = of[b - at->first].inverse;
        sums *sum = &all[b - at->first];
        vf_store(it->dshift + b * RPI_LANES, sum->first);
        vf_store(it->dscale + b * RPI_LANES, vf_mul(sum->second, inverse));
        *sum = (sums){vf_div(sum->first, count),
                      vf_div(vf_mul(sum->second, vf_mul(inverse, inverse)), count)};
    }
    for (int64_t n = 0; n < it->images; n++)
        for (int64_t b = at->first; b < at->end; b++)
            write_again(it, &of[b - at->first], &all[b - at->first], planes_of(it, n, b), how,
                        keeps);
}

static void differentiate_by(const group *at, const opening how) {
    const bool keeps = at->it->daddend.data != NULL;
    switch (how) {
    case OPEN: keeps ? differentiate(at, OPEN, true) : differentiate(at, OPEN, false); break;
    case OPEN_BY_X: differentiate(at, OPEN_BY_X, false); break;
    case OPEN_BY_Y:
        keeps ? differentiate(at, OPEN_BY_Y, true) : differentiate(at, OPEN_BY_Y, false);
    }
}

RPI_SIMD_BODY(batch_norm_backward)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_batch_norm *it = args;
    const int64_t size = group_size(it);
    const opening how = !it->relu ? OPEN : it->adds ? OPEN_BY_Y : OPEN_BY_X;
    for (; begin < end; begin += size)
        differentiate_by(&(group){it, begin, begin + size < end ? begin + size : end}, how);
}
