/* How topk finds large elements. Magnitudes are the bits of a float without its sign: they are
 * in the order of what they stand for. All tables give the same results. */
#ifndef RPI_CODEC_TOPK_KERNELS_H
#define RPI_CODEC_TOPK_KERNELS_H

#include <stddef.h>
#include <stdint.h>

typedef struct rpi_topk_kernels {
    /* Element i is in group i mod `groups`, a multiple of 64. The largest magnitude of each. */
    void (*group_max)(const float *y, size_t count, size_t groups, uint32_t *max);
    /* How many of `count` floats, or of magnitudes, are at least so large. */
    size_t (*count)(const void *values, size_t count, uint32_t least);
    /* Magnitudes of at least `least` (1 to 2^31 - 1), in order, and where they are; how many.
     */
    size_t (*collect)(const float *y, size_t count, uint32_t least, uint32_t *magnitude,
                      uint16_t *index);
} rpi_topk_kernels;

extern const rpi_topk_kernels rpi_topk_scalar;
#if defined(__x86_64__)
extern const rpi_topk_kernels rpi_topk_avx2;
#elif defined(__aarch64__)
extern const rpi_topk_kernels rpi_topk_neon;
#endif

static inline uint32_t rpi_magnitude(const void *value) {
    uint32_t bits;
    __builtin_memcpy(&bits, value, sizeof bits);
    return bits & 0x7fffffff;
}

#endif
