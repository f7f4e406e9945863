#include "codec/topk_kernels.h"

#include <string.h>

static void group_max(const float *y, size_t count, size_t groups, uint32_t *max) {
    memset(max, 0, groups * sizeof *max);
    for (size_t i = 0; i < count; i += groups) {
        size_t n = count - i < groups ? count - i : groups;
        for (size_t g = 0; g < n; g++) {
            uint32_t magnitude = rpi_magnitude(y + i + g);
            max[g] = magnitude > max[g] ? magnitude : max[g];
        }
    }
}

/* Signed, since few instruction sets compare unsigned numbers; magnitudes are below 2^31. */
static size_t count_at_least(const void *values, size_t count, uint32_t least) {
    const char *at = values;
    int32_t found = 0, below = (int32_t)least - 1;
    for (size_t i = 0; i < count; i++)
        found += (int32_t)rpi_magnitude(at + sizeof(float) * i) > below;
    return (size_t)found;
}

static size_t collect(const float *y, size_t count, uint32_t least, uint32_t *magnitude,
                      uint16_t *index) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t this = rpi_magnitude(y + i);
        if (this < least) continue;
        magnitude[found] = this;
        index[found++] = (uint16_t)i;
    }
    return found;
}

const rpi_topk_kernels rpi_topk_scalar = {group_max, count_at_least, collect};
