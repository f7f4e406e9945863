/* The arithmetic of sign on floats, a run of at most RPI_TILE elements at a time.
 * docs/codecs.md is normative, sign_scalar.c its plain form; all tables give the same bytes. */
#ifndef RPI_CODEC_SIGN_KERNELS_H
#define RPI_CODEC_SIGN_KERNELS_H

#include <stddef.h>
#include <stdint.h>

enum { RPI_SIGN_LANES = 16 };

typedef struct rpi_sign_kernels {
    /* Of |x + residual|: element i goes to lane i mod 16, the lanes are folded in halves. */
    float (*sum)(const float *x, const float *residual, size_t count);
    /* Bit i of out: x + residual is negative. (x + residual) - decoded into residual. */
    void (*pack)(const float *x, float *residual, size_t count, float mean, uint8_t *out);
    void (*unpack)(const uint8_t *in, size_t count, float mean, float *y);
    void (*unpack_add)(const uint8_t *in, size_t count, float mean, float *sum);
} rpi_sign_kernels;

extern const rpi_sign_kernels rpi_sign_scalar;
#if defined(__x86_64__)
extern const rpi_sign_kernels rpi_sign_avx2;
#elif defined(__aarch64__)
extern const rpi_sign_kernels rpi_sign_neon;
#endif

static inline float rpi_sign_fold(float lane[RPI_SIGN_LANES]) {
    for (int half = RPI_SIGN_LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

#endif
