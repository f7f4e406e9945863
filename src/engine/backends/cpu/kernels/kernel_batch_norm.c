#include "engine/backends/cpu/kernels/kernel_batch_norm.h"

#include <math.h>

enum { BLOCK = RPI_BATCH_NORM_BLOCK };

/* ---- the definition ---- */

/* A channel: of the elements that its block has in an image it is `lane` and every 16th on. */
typedef struct channel {
    const rpi_kernel_batch_norm *it;
    int64_t block, lane;
    double mean, inverse, scale, shift;
} channel;

static double get(const channel *of, rpi_kernel_rows m, int64_t n, int64_t p) {
    return (double)rpi_kernel_get(m, n * of->it->blocks + of->block, p * BLOCK + of->lane);
}

static void put(const channel *of, rpi_kernel_rows m, int64_t n, int64_t p, double value) {
    rpi_kernel_put(m, n * of->it->blocks + of->block, p * BLOCK + of->lane, value);
}

static double normal(const channel *of, int64_t n, int64_t p) {
    return (get(of, of->it->x, n, p) - of->mean) * of->inverse;
}

static channel channel_at(const rpi_kernel_batch_norm *it, int64_t block, int64_t lane) {
    const int64_t c = block * BLOCK + lane;
    return (channel){.it = it,
                     .block = block,
                     .lane = lane,
                     .mean = it->mean[c],
                     .inverse = 1 / sqrt((double)it->variance[c] + (double)it->epsilon),
                     .scale = it->scale[c],
                     .shift = it->shift[c]};
}

static void measure(const rpi_kernel_batch_norm *it, int64_t block, int64_t lane) {
    const channel of = {.it = it, .block = block, .lane = lane};
    const double count = (double)(it->images * it->pixels);
    double sum = 0, squares = 0;
    for (int64_t n = 0; n < it->images; n++)
        for (int64_t p = 0; p < it->pixels; p++) sum += get(&of, it->x, n, p);
    const double mean = sum / count;
    for (int64_t n = 0; n < it->images; n++)
        for (int64_t p = 0; p < it->pixels; p++) {
            const double d = get(&of, it->x, n, p) - mean;
            squares += d * d;
        }
    it->mean[block * BLOCK + lane] = (float)mean;
    it->variance[block * BLOCK + lane] = (float)(squares / count);
}

static void forward(const channel *of) {
    const rpi_kernel_batch_norm *it = of->it;
    for (int64_t n = 0; n < it->images; n++)
        for (int64_t p = 0; p < it->pixels; p++) {
            double y = of->scale * normal(of, n, p) + of->shift;
            if (it->adds) y += get(of, it->addend, n, p);
            put(of, it->y, n, p, it->relu && y < 0 ? 0 : y);
        }
}

static double gradient(const channel *of, int64_t n, int64_t p) {
    const rpi_kernel_batch_norm *it = of->it;
    const double dy = get(of, it->dy, n, p);
    if (!it->relu) return dy;
    const double y = it->adds ? get(of, it->y, n, p) : of->scale * normal(of, n, p) + of->shift;
    return y <= 0 ? 0 : dy;
}

static void backward(const channel *of) {
    const rpi_kernel_batch_norm *it = of->it;
    const double count = (double)(it->images * it->pixels);
    double dshift = 0, dscale = 0;
    for (int64_t n = 0; n < it->images; n++)
        for (int64_t p = 0; p < it->pixels; p++) {
            const double g = gradient(of, n, p);
            dshift += g;
            dscale += g * normal(of, n, p);
            if (it->daddend.data) put(of, it->daddend, n, p, g);
        }
    for (int64_t n = 0; n < it->images; n++)
        for (int64_t p = 0; p < it->pixels; p++) {
            const double rest = (dshift + normal(of, n, p) * dscale) / count;
            put(of, it->dx, n, p, of->scale * of->inverse * (gradient(of, n, p) - rest));
        }
    it->dshift[of->block * BLOCK + of->lane] = (float)dshift;
    it->dscale[of->block * BLOCK + of->lane] = (float)dscale;
}

/* Units are blocks. */
void rpi_batch_norm_forward_scalar(const void *args, int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block++)
        for (int64_t lane = 0; lane < BLOCK; lane++) {
            measure(args, block, lane);
            const channel of = channel_at(args, block, lane);
            forward(&of);
        }
}

void rpi_batch_norm_backward_scalar(const void *args, int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block++)
        for (int64_t lane = 0; lane < BLOCK; lane++) {
            const channel of = channel_at(args, block, lane);
            backward(&of);
        }
}

void rpi_kernel_batch_norm_forward(const rpi_kernel_run *run, const rpi_kernel_batch_norm *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(batch_norm_forward);
    if (it->images * it->pixels > 0) rpi_kernel_parallel(run, it->blocks, 1, bodies, it);
}

void rpi_kernel_batch_norm_backward(const rpi_kernel_run *run,
                                    const rpi_kernel_batch_norm *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(batch_norm_backward);
    if (it->images * it->pixels > 0) rpi_kernel_parallel(run, it->blocks, 1, bodies, it);
}
