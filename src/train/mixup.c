#include "train/mixup.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

rp_status rpi_mixup_open(double alpha, const rpi_data_shape *shape, int64_t most,
                         rpi_mixup *out) {
    *out = (rpi_mixup){0};
    if (alpha == 0) return RP_OK;
    rpi_mixup made = {.alpha = alpha,
                      .pixels = (int64_t)shape->channels * shape->height * shape->width};
    rp_status status = rpi_alloc_array((size_t)(most * made.pixels), sizeof(float),
                                       "blended pictures", &made.images);
    if (status == RP_OK)
        status = rpi_alloc_array((size_t)most, sizeof(int32_t), "labels", &made.labels);
    if (status == RP_OK)
        *out = made;
    else
        rpi_mixup_close(&made);
    return status;
}

void rpi_mixup_close(rpi_mixup *m) {
    rpi_free(m->images);
    rpi_free(m->labels);
    *m = (rpi_mixup){0};
}

/* In (0, 1]. */
static double uniform(rpi_rng *rng) {
    return ((double)rpi_rng_u32(rng) + 1) * 0x1p-32;
}

/* By Jöhnk's method. The result is rounded, so that C libraries whose powers differ in the last
 * bit agree. */
double rpi_mixup_share(double alpha, uint64_t seed, int64_t step) {
    rpi_rng rng = rpi_rng_make(seed, RPI_RNG_MIXUP, (uint64_t)step);
    for (;;) {
        double x = pow(uniform(&rng), 1 / alpha), y = pow(uniform(&rng), 1 / alpha);
        if (x + y > 0 && x + y <= 1) return rint(x / (x + y) * 0x1p16) * 0x1p-16;
    }
}

void rpi_mixup_blend(rpi_mixup *m, uint64_t seed, int64_t step, rpi_source_batch *batch) {
    if (m->alpha == 0) return;
    const float *images = batch->inputs[0];
    const int32_t *labels = batch->inputs[1];
    m->share = (float)rpi_mixup_share(m->alpha, seed, step);
    for (int64_t i = 0; i < batch->count; i++) {
        int64_t other = i ? i - 1 : batch->count - 1;
        const float *a = images + i * m->pixels, *b = images + other * m->pixels;
        float *to = m->images + i * m->pixels;
        for (int64_t p = 0; p < m->pixels; p++) to[p] = m->share * a[p] + (1 - m->share) * b[p];
        m->labels[i] = labels[other];
    }
    batch->inputs[0] = m->images;
}
