#include "engine/backends/cpu/kernels/kernel_group_norm.h"

#include <math.h>

/* ---- the definition ---- */

/* A channel of an image. */
typedef struct channel {
    const rpi_kernel_group_norm *it;
    int64_t row, lane; /* of its elements in a row: `lane` and every block-th on */
    double mean, inverse, scale, shift;
} channel;

static channel channel_at(const rpi_kernel_group_norm *it, int64_t n, int64_t c) {
    const int64_t group = n * it->groups + c / (it->channels / it->groups);
    return (channel){.it = it,
                     .row = n * rpi_group_norm_blocks(it) + c / it->block,
                     .lane = c % it->block,
                     .mean = it->mean[group],
                     .inverse = it->inverse[group],
                     .scale = it->scale[c],
                     .shift = it->shift[c]};
}

static double get(const channel *of, rpi_kernel_rows m, int64_t p) {
    return (double)rpi_kernel_get(m, of->row, p * of->it->block + of->lane);
}

static void put(const channel *of, rpi_kernel_rows m, int64_t p, double value) {
    rpi_kernel_put(m, of->row, p * of->it->block + of->lane, value);
}

static double normal(const channel *of, int64_t p) {
    return (get(of, of->it->x, p) - of->mean) * of->inverse;
}

static void measure(const rpi_kernel_group_norm *it, int64_t n, int64_t group) {
    const int64_t size = it->channels / it->groups, first = group * size;
    const double count = (double)(size * it->pixels);
    double sum = 0, squares = 0;
    for (int64_t c = first; c < first + size; c++) {
        const channel of = channel_at(it, n, c);
        for (int64_t p = 0; p < it->pixels; p++) sum += get(&of, it->x, p);
    }
    const double mean = sum / count;
    for (int64_t c = first; c < first + size; c++) {
        const channel of = channel_at(it, n, c);
        for (int64_t p = 0; p < it->pixels; p++) {
            const double d = get(&of, it->x, p) - mean;
            squares += d * d;
        }
    }
    it->mean[n * it->groups + group] = (float)mean;
    it->inverse[n * it->groups + group] =
        (float)(1 / sqrt(squares / count + (double)it->epsilon));
}

static void forward(const channel *of) {
    const rpi_kernel_group_norm *it = of->it;
    for (int64_t p = 0; p < it->pixels; p++) {
        double y = of->scale * normal(of, p) + of->shift;
        if (it->adds) y += get(of, it->addend, p);
        put(of, it->y, p, it->relu && y < 0 ? 0 : y);
    }
}

/* What pads the last block of a part stays 0. */
static void pad(const rpi_kernel_group_norm *it, const rpi_group_norm_part *part,
                rpi_kernel_rows m) {
    if (!m.data) return;
    for (int64_t c = it->channels; c < part->end_block * it->block; c++)
        for (int64_t p = 0; p < it->pixels; p++)
            rpi_kernel_put(m, part->image * rpi_group_norm_blocks(it) + c / it->block,
                           p * it->block + c % it->block, 0);
}

void rpi_group_norm_forward_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_group_norm *it = args;
    const int64_t size = it->channels / it->groups;
    for (int64_t unit = begin; unit < end; unit++) {
        const rpi_group_norm_part part = rpi_group_norm_part_at(it, unit);
        for (int64_t g = part.first_group; g < part.end_group; g++) {
            measure(it, part.image, g);
            for (int64_t c = g * size; c < (g + 1) * size; c++) {
                const channel of = channel_at(it, part.image, c);
                forward(&of);
            }
        }
        pad(it, &part, it->y);
    }
}

static double gradient(const channel *of, int64_t p) {
    const rpi_kernel_group_norm *it = of->it;
    const double dy = get(of, it->dy, p);
    if (!it->relu) return dy;
    const double y = it->adds ? get(of, it->y, p) : of->scale * normal(of, p) + of->shift;
    return y <= 0 ? 0 : dy;
}

/* sum g and sum g z of a channel in an image */
static void sum_channel(const channel *of, double *out_sum, double *out_product) {
    const rpi_kernel_group_norm *it = of->it;
    *out_sum = *out_product = 0;
    for (int64_t p = 0; p < it->pixels; p++) {
        const double g = gradient(of, p);
        *out_sum += g;
        *out_product += g * normal(of, p);
        if (it->daddend.data) put(of, it->daddend, p, g);
    }
}

static void write_channel(const channel *of, double sum, double product) {
    for (int64_t p = 0; p < of->it->pixels; p++)
        put(of, of->it->dx, p,
            of->inverse * (of->scale * gradient(of, p) - sum - normal(of, p) * product));
}

static void backward(const rpi_kernel_group_norm *it, int64_t n, int64_t group) {
    const int64_t size = it->channels / it->groups, first = group * size;
    const double count = (double)(size * it->pixels);
    const rpi_group_norm_sums sums = rpi_group_norm_sums_of(it, n);
    double sum = 0, product = 0;
    for (int64_t c = first; c < first + size; c++) {
        const channel of = channel_at(it, n, c);
        double one, other;
        sum_channel(&of, &one, &other);
        sums.first[c] = (float)one;
        sums.second[c] = (float)other;
        sum += of.scale * one;
        product += of.scale * other;
    }
    for (int64_t c = first; it->dx.data && c < first + size; c++) {
        const channel of = channel_at(it, n, c);
        write_channel(&of, sum / count, product / count);
    }
}

void rpi_group_norm_backward_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_group_norm *it = args;
    for (int64_t unit = begin; unit < end; unit++) {
        const rpi_group_norm_part part = rpi_group_norm_part_at(it, unit);
        for (int64_t g = part.first_group; g < part.end_group; g++) backward(it, part.image, g);
        pad(it, &part, it->dx);
        pad(it, &part, it->daddend);
    }
}

static void add_up(const rpi_kernel_group_norm *it, const float *sums, int64_t c, bool adds,
                   float *target) {
    if (!target) return;
    double sum = adds ? (double)target[c] : 0;
    for (int64_t n = 0; n < it->images; n++) sum += (double)sums[n * it->channels + c];
    target[c] = (float)sum;
}

/* Units are channels. */
void rpi_group_norm_weights_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_group_norm *it = args;
    const rpi_group_norm_sums sums = rpi_group_norm_sums_of(it, 0);
    for (int64_t c = begin; c < end; c++) {
        add_up(it, sums.first, c, it->sums_to_dshift, it->dshift);
        add_up(it, sums.second, c, it->sums_to_dscale, it->dscale);
    }
}

/* ---- calls ---- */

static int64_t part_count(const rpi_kernel_group_norm *it) {
    if (it->channels == 0 || it->pixels == 0) return 0;
    return it->images * (rpi_group_norm_blocks(it) / rpi_group_norm_span(it));
}

void rpi_kernel_group_norm_forward(const rpi_kernel_run *run, const rpi_kernel_group_norm *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(group_norm_forward);
    rpi_kernel_parallel(run, part_count(it), 1, bodies, it);
}

void rpi_kernel_group_norm_backward(const rpi_kernel_run *run,
                                    const rpi_kernel_group_norm *it) {
    enum { GRAIN = 16 };
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(group_norm_backward);
    static const rpi_kernel_body weights[] = RPI_KERNEL_BODIES(group_norm_weights);
    if (part_count(it) == 0) return;
    rpi_kernel_parallel(run, part_count(it), 1, bodies, it);
    if (it->dscale || it->dshift) rpi_kernel_parallel(run, it->channels, GRAIN, weights, it);
}
