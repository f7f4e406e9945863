#include "engine/backends/cpu/kernels/kernel_dropout.h"

#include "redpoll/rng.h"

/* FNV-1a. */
uint32_t rpi_dropout_tensor(const char *name) {
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

static uint32_t random16(const rpi_dropout_mask *mask, uint64_t element) {
    uint64_t slot = element / 16 % 8, block = element / 128 * 16 + element % 16;
    const uint32_t key[2] = {(uint32_t)mask->seed, (uint32_t)(mask->seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)block, mask->step, mask->tensor,
                                 RPI_DROPOUT_PURPOSE + (uint32_t)(block >> 32)};
    uint32_t word[4];
    rp_philox4x32(counter, key, word);
    return slot % 2 ? word[slot / 2] >> 16 : word[slot / 2] & 0xffff;
}

float rpi_dropout_factor(const rpi_dropout_mask *mask, uint64_t element) {
    uint32_t threshold = rpi_dropout_threshold(mask->probability);
    return random16(mask, element) < threshold ? 0 : rpi_dropout_scale(threshold);
}

/* Units are groups of 128 elements. */
void rpi_dropout_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_dropout *it = args;
    for (int64_t i = begin * RPI_DROPOUT_GROUP; i < end * RPI_DROPOUT_GROUP && i < it->count;
         i++) {
        float y = rpi_kernel_get(it->x, 0, i) *
                  rpi_dropout_factor(&it->mask, (uint64_t)(it->first + i));
        if (it->residual.data) y += rpi_kernel_get(it->residual, 0, i);
        rpi_kernel_put(it->y, 0, i, y);
    }
}

void rpi_kernel_dropout_apply(const rpi_kernel_run *run, const rpi_kernel_dropout *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(dropout);
    int64_t groups = (it->count + RPI_DROPOUT_GROUP - 1) / RPI_DROPOUT_GROUP;
    rpi_kernel_parallel(run, groups, 16, bodies, it);
}
