/* Lane l of a vector is of channel l % block of its block of channels: sums are made lane by
 * lane and folded into the channels' at the end of an image. */
#include "engine/backends/cpu/kernels/kernel_group_norm.h"

#include "engine/backends/cpu/kernels/simd.h"
#include "engine/backends/cpu/kernels/simd_image_norm.h"

#include <math.h>

/* Sums run in chains, so that they do not wait for each addition. */
enum { CHAINS = 4, STEP = CHAINS * RPI_LANES };

typedef rpi_kernel_group_norm norm;
typedef rpi_group_norm_part part;

/* Nothing where there is no such matrix. */
SIMD simd_row plane(const norm *it, rpi_kernel_rows m, int64_t n, int64_t block) {
    return row_of(m, n * rpi_group_norm_blocks(it) + block);
}

SIMD simd_row plane_if_any(const norm *it, rpi_kernel_rows m, int64_t n, int64_t block) {
    return m.data ? plane(it, m, n, block) : (simd_row){0};
}

SIMD int64_t plane_size(const norm *it) {
    return it->pixels * it->block;
}

SIMD vf add_chains(const vf chain[CHAINS]) {
    return vf_add(vf_add(chain[0], chain[2]), vf_add(chain[1], chain[3]));
}

/* Channels of a block that are none of its padding. */
SIMD int64_t live_of(const norm *it, int64_t block) {
    const int64_t left = it->channels - block * it->block;
    return left < it->block ? left : it->block;
}

/* ---- between channels, groups and lanes; lanes of the padding are 0 ---- */

SIMD vf lanes_of_channels(const norm *it, const float *values, int64_t block) {
    const int64_t live = live_of(it, block);
    float lanes[RPI_LANES];
    values += block * it->block;
    if (it->block == 1) return vf_set(*values);
    if (it->block == RPI_LANES) return vf_load_n(values, live);
    for (int64_t l = 0; l < RPI_LANES; l++)
        lanes[l] = l % it->block < live ? values[l % it->block] : 0;
    return vf_load(lanes);
}

SIMD vf lanes_of_groups(const norm *it, const float *values, int64_t block) {
    const int64_t size = it->channels / it->groups, live = live_of(it, block);
    const int64_t first = block * it->block;
    float lanes[RPI_LANES];
    if (size % it->block == 0) return vf_set(values[first / size]);
    for (int64_t l = 0; l < RPI_LANES; l++)
        lanes[l] = l % it->block < live ? values[(first + l % it->block) / size] : 0;
    return vf_load(lanes);
}

SIMD void store_channels(const norm *it, vf sums, int64_t block, float *values) {
    float lanes[RPI_LANES];
    values += block * it->block;
    if (it->block == RPI_LANES) {
        vf_store_n(values, sums, live_of(it, block));
        return;
    }
    vf_store(lanes, sums);
    for (int64_t half = RPI_LANES / 2; half >= it->block; half /= 2)
        for (int64_t l = 0; l < half; l++) lanes[l] += lanes[l + half];
    for (int64_t l = 0; l < live_of(it, block); l++) values[l] = lanes[l];
}

/* The mean over a group's elements of what its channels' sums are of. */
SIMD double mean_of_group(const norm *it, const float *sums, int64_t group) {
    const int64_t size = it->channels / it->groups;
    double sum = 0;
    for (int64_t c = group * size; c < (group + 1) * size; c++) sum += (double)sums[c];
    return sum / (double)(size * it->pixels);
}

/* ---- forward ---- */

/* x, or (x - mean)^2 */
SIMD vf sample(simd_row x, int64_t i, int64_t live, vf mean, const bool squared, vf sum) {
    vf value = row_load(x, i, live);
    if (!squared) return vf_add(sum, value);
    value = vf_sub(value, mean);
    if (live < RPI_LANES) value = vf_first(value, live);
    return vf_fma(value, value, sum);
}

SIMD vf sum_row(simd_row x, int64_t count, vf mean, const bool squared) {
    vf sum[CHAINS];
    int64_t i = 0;
    for (int v = 0; v < CHAINS; v++) sum[v] = vf_zero();
    for (; i + STEP <= count; i += STEP)
        for (int v = 0; v < CHAINS; v++)
            sum[v] = sample(x, i + v * RPI_LANES, RPI_LANES, mean, squared, sum[v]);
    for (int v = 0; v < CHAINS; v++)
        if (i + v * RPI_LANES < count)
            sum[v] =
                sample(x, i + v * RPI_LANES, count - i - v * RPI_LANES, mean, squared, sum[v]);
    return add_chains(sum);
}

SIMD void sum_channels(const norm *it, const part *of, const bool squared, float *sums) {
    const float *means = it->mean + of->image * it->groups;
    for (int64_t b = of->first_block; b < of->end_block; b++) {
        const simd_row x = plane(it, it->x, of->image, b);
        const vf mean = squared ? lanes_of_groups(it, means, b) : vf_zero();
        const vf sum = x.bf16 ? sum_row(x, plane_size(it), mean, squared)
                              : sum_row(as_floats(x), plane_size(it), mean, squared);
        store_channels(it, sum, b, sums);
    }
}

/* Around the mean, which costs a second pass and no digits. */
SIMD void measure(const norm *it, const part *of) {
    float *sums = rpi_group_norm_sums_of(it, of->image).first;
    const int64_t first = of->image * it->groups;
    sum_channels(it, of, false, sums);
    for (int64_t g = of->first_group; g < of->end_group; g++)
        it->mean[first + g] = (float)mean_of_group(it, sums, g);
    sum_channels(it, of, true, sums);
    for (int64_t g = of->first_group; g < of->end_group; g++)
        it->inverse[first + g] =
            (float)(1 / sqrt(mean_of_group(it, sums, g) + (double)it->epsilon));
}

/* The channels of a block. */
typedef struct channels {
    vf mean, inverse, factor, shift; /* factor = scale inverse */
} channels;

SIMD channels channels_of(const norm *it, int64_t n, int64_t block) {
    const vf inverse = lanes_of_groups(it, it->inverse + n * it->groups, block);
    return (channels){lanes_of_groups(it, it->mean + n * it->groups, block), inverse,
                      vf_mul(lanes_of_channels(it, it->scale, block), inverse),
                      lanes_of_channels(it, it->shift, block)};
}

SIMD void normalise_row(const channels *of, simd_row x, simd_row addend, simd_row y,
                        int64_t count, const bool adds, const bool relu) {
    EACH_VECTOR(i, live, count) {
        vf value = vf_fma(vf_sub(row_load(x, i, live), of->mean), of->factor, of->shift);
        if (adds) value = vf_add(value, row_load(addend, i, live));
        row_store(y, i, relu ? vf_max(vf_zero(), value) : value, live);
    }
}

SIMD void normalise(const norm *it, const part *of, const bool adds, const bool relu) {
    for (int64_t b = of->first_block; b < of->end_block; b++) {
        const channels c = channels_of(it, of->image, b);
        const simd_row x = plane(it, it->x, of->image, b), y = plane(it, it->y, of->image, b);
        const simd_row addend = plane_if_any(it, it->addend, of->image, b);
        if (x.bf16 || y.bf16 || addend.bf16)
            normalise_row(&c, x, addend, y, plane_size(it), adds, relu);
        else
            normalise_row(&c, as_floats(x), as_floats(addend), as_floats(y), plane_size(it),
                          adds, relu);
    }
}

RPI_SIMD_BODY(group_norm_forward)(const void *args, int64_t begin, int64_t end) {
    const norm *it = args;
    for (int64_t unit = begin; unit < end; unit++) {
        const part of = rpi_group_norm_part_at(it, unit);
        measure(it, &of);
        if (it->addend.data)
            it->relu ? normalise(it, &of, true, true) : normalise(it, &of, true, false);
        else
            it->relu ? normalise(it, &of, false, true) : normalise(it, &of, false, false);
    }
}

/* ---- backward ---- */

SIMD planes planes_of(const norm *it, int64_t n, int64_t block) {
    return (planes){plane(it, it->x, n, block), plane_if_any(it, it->y, n, block),
                    plane(it, it->dy, n, block), plane_if_any(it, it->dx, n, block),
                    plane_if_any(it, it->daddend, n, block)};
}

/* dy, or 0 where relu is closed; d = x - mean. */
SIMD vf gradient(const channels *of, const planes *at, int64_t i, int64_t live, vf d,
                 const opening how) {
    const vf g = row_load(at->dy, i, live);
    if (how == OPEN) return g;
    const vf y = how == OPEN_BY_Y ? row_load(at->y, i, live) : vf_fma(d, of->factor, of->shift);
    return vf_select(vf_le(y, vf_zero()), vf_zero(), g);
}

/* Lanes past a row add 0: there g is. */
SIMD void sum_vector(const channels *of, const planes *at, int64_t i, int64_t live,
                     const opening how, const bool keeps, vf *g_sum, vf *product) {
    const vf d = vf_sub(row_load(at->x, i, live), of->mean);
    const vf g = gradient(of, at, i, live, d, how);
    if (keeps) row_store(at->daddend, i, g, live);
    *g_sum = vf_add(*g_sum, g);
    *product = vf_fma(g, d, *product);
}

typedef struct pair {
    vf first, second;
} pair;

/* Of an image: g, which is kept where it is the addend's, and g d. */
SIMD pair sum_planes(const channels *of, planes at, int64_t count, const opening how,
                     const bool keeps) {
    vf g_sum[CHAINS], product[CHAINS];
    int64_t i = 0;
    for (int v = 0; v < CHAINS; v++) g_sum[v] = product[v] = vf_zero();
    for (; i + STEP <= count; i += STEP)
        for (int v = 0; v < CHAINS; v++)
            sum_vector(of, &at, i + v * RPI_LANES, RPI_LANES, how, keeps, &g_sum[v],
                       &product[v]);
    for (int v = 0; v < CHAINS; v++)
        if (i + v * RPI_LANES < count)
            sum_vector(of, &at, i + v * RPI_LANES, count - i - v * RPI_LANES, how, keeps,
                       &g_sum[v], &product[v]);
    return (pair){add_chains(g_sum), add_chains(product)};
}

/* dx = factor g + second (x - mean) + first */
SIMD void write_plane(const channels *of, const pair *rest, planes at, int64_t count,
                      const opening how) {
    EACH_VECTOR(i, live, count) {
        const vf d = vf_sub(row_load(at.x, i, live), of->mean);
        const vf g = gradient(of, &at, i, live, d, how);
        row_store(at.dx, i, vf_fma(g, of->factor, vf_fma(d, rest->second, rest->first)), live);
    }
}

SIMD void write_by(const channels *of, const pair *rest, planes at, int64_t count,
                   const opening how) {
    if (has_bf16(&at))
        write_plane(of, rest, at, count, how);
    else
        write_plane(of, rest, all_floats(&at), count, how);
}

/* The second time g comes from daddend where that is as exact as dy. */
SIMD void write_again(const norm *it, const channels *of, const pair *rest, planes at,
                      const opening how, const bool keeps) {
    if (keeps && (it->daddend.dtype == RP_F32 || it->dy.dtype == RP_BF16)) {
        at.dy = at.daddend;
        write_by(of, rest, at, plane_size(it), OPEN);
    } else {
        write_by(of, rest, at, plane_size(it), how);
    }
}

/* What is the same in all of a group: - inverse mean(scale g), - inverse^2 mean(scale g z). */
SIMD void find_rest(const norm *it, const part *of, const rpi_group_norm_sums *all) {
    const int64_t size = it->channels / it->groups;
    const double count = (double)(size * it->pixels);
    for (int64_t g = of->first_group; g < of->end_group; g++) {
        const double inverse = (double)it->inverse[of->image * it->groups + g];
        double sum = 0, product = 0;
        for (int64_t c = g * size; c < (g + 1) * size; c++) {
            sum += (double)it->scale[c] * (double)all->first[c];
            product += (double)it->scale[c] * (double)all->second[c];
        }
        all->first_rest[g] = (float)(-inverse * sum / count);
        all->second_rest[g] = (float)(-inverse * inverse * product / count);
    }
}

SIMD void differentiate(const norm *it, const part *of, const opening how, const bool keeps) {
    const rpi_group_norm_sums all = rpi_group_norm_sums_of(it, of->image);
    for (int64_t b = of->first_block; b < of->end_block; b++) {
        const channels c = channels_of(it, of->image, b);
        const planes at = planes_of(it, of->image, b);
        const pair one = has_bf16(&at)
                             ? sum_planes(&c, at, plane_size(it), how, keeps)
                             : sum_planes(&c, all_floats(&at), plane_size(it), how, keeps);
        store_channels(it, one.first, b, all.first);
        store_channels(it, vf_mul(one.second, c.inverse), b, all.second);
    }
    if (!it->dx.data) return;
    find_rest(it, of, &all);
    for (int64_t b = of->first_block; b < of->end_block; b++) {
        const channels c = channels_of(it, of->image, b);
        const pair rest = {lanes_of_groups(it, all.first_rest, b),
                           lanes_of_groups(it, all.second_rest, b)};
        write_again(it, &c, &rest, planes_of(it, of->image, b), how, keeps);
    }
}

static void differentiate_by(const norm *it, const part *of, const opening how) {
    const bool keeps = it->daddend.data != NULL;
    switch (how) {
    case OPEN:
        keeps ? differentiate(it, of, OPEN, true) : differentiate(it, of, OPEN, false);
        break;
    case OPEN_BY_X: differentiate(it, of, OPEN_BY_X, false); break;
    case OPEN_BY_Y:
        keeps ? differentiate(it, of, OPEN_BY_Y, true)
              : differentiate(it, of, OPEN_BY_Y, false);
    }
}

RPI_SIMD_BODY(group_norm_backward)(const void *args, int64_t begin, int64_t end) {
    const norm *it = args;
    const opening how = !it->relu ? OPEN : it->adds ? OPEN_BY_Y : OPEN_BY_X;
    for (int64_t unit = begin; unit < end; unit++) {
        const part of = rpi_group_norm_part_at(it, unit);
        differentiate_by(it, &of, how);
    }
}

/* Image by image, in order. */
SIMD void add_up(const norm *it, const float *sums, int64_t c, int64_t live, bool adds,
                 float *target) {
    if (!target) return;
    vf sum = adds ? vf_load_n(target + c, live) : vf_zero();
    for (int64_t n = 0; n < it->images; n++)
        sum = vf_add(sum, vf_load_n(sums + n * it->channels + c, live));
    vf_store_n(target + c, sum, live);
}

RPI_SIMD_BODY(group_norm_weights)(const void *args, int64_t begin, int64_t end) {
    const norm *it = args;
    const rpi_group_norm_sums all = rpi_group_norm_sums_of(it, 0);
    EACH_VECTOR(i, live, end - begin) {
        add_up(it, all.first, begin + i, live, it->sums_to_dshift, it->dshift);
        add_up(it, all.second, begin + i, live, it->sums_to_dscale, it->dscale);
    }
}
