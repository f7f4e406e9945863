/* A byte of signs, 8 elements, at a time; the rest by the plain kernels. */
#include "codec/sign_kernels.h"

#include <arm_neon.h>

static inline float32x4_t fed(const float *x, const float *residual, size_t i) {
    float32x4_t y = vld1q_f32(x + i);
    return residual ? vaddq_f32(y, vld1q_f32(residual + i)) : y;
}

static float sum(const float *x, const float *residual, size_t count) {
    enum { QUARTERS = RPI_SIGN_LANES / 4 };
    float32x4_t quarter[QUARTERS];
    for (int q = 0; q < QUARTERS; q++) quarter[q] = vdupq_n_f32(0);
    size_t i = 0;
    for (; i + RPI_SIGN_LANES <= count; i += RPI_SIGN_LANES)
        for (size_t q = 0; q < QUARTERS; q++)
            quarter[q] = vaddq_f32(quarter[q], vabsq_f32(fed(x, residual, i + 4 * q)));
    float lane[RPI_SIGN_LANES];
    for (int q = 0; q < QUARTERS; q++) vst1q_f32(lane + 4 * q, quarter[q]);
    for (size_t k = 0; i + k < count; k++)
        lane[k] += __builtin_fabsf(residual ? x[i + k] + residual[i + k] : x[i + k]);
    return rpi_sign_fold(lane);
}

/* What each of 4 elements stands for in its byte of signs. */
static inline uint32x4_t places(int half) {
    static const uint32_t bit[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    return vld1q_u32(bit + 4 * half);
}

static inline float32x4_t signed_mean(uint32x4_t negative, float32x4_t mean) {
    uint32x4_t sign = vandq_u32(negative, vdupq_n_u32(0x80000000));
    return vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(mean), sign));
}

/* The bits of elements i to i + 3, and what they leave behind. */
static inline uint32x4_t pack4(const float *x, float *residual, size_t i, int half,
                               float32x4_t mean) {
    float32x4_t y = fed(x, residual, i);
    uint32x4_t negative = vcltzq_f32(y);
    if (residual) vst1q_f32(residual + i, vsubq_f32(y, signed_mean(negative, mean)));
    return vandq_u32(negative, places(half));
}

static void pack(const float *x, float *residual, size_t count, float mean, uint8_t *out) {
    float32x4_t means = vdupq_n_f32(mean);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        uint32x4_t low = pack4(x, residual, i, 0, means);
        uint32x4_t high = pack4(x, residual, i + 4, 1, means);
        out[i / 8] = (uint8_t)vaddvq_u32(vorrq_u32(low, high));
    }
    rpi_sign_scalar.pack(x + i, residual ? residual + i : 0, count - i, mean, out + i / 8);
}

static inline float32x4_t values(uint8_t signs, int half, float32x4_t mean) {
    return signed_mean(vtstq_u32(vdupq_n_u32(signs), places(half)), mean);
}

static void unpack(const uint8_t *in, size_t count, float mean, float *y) {
    float32x4_t means = vdupq_n_f32(mean);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        vst1q_f32(y + i, values(in[i / 8], 0, means));
        vst1q_f32(y + i + 4, values(in[i / 8], 1, means));
    }
    rpi_sign_scalar.unpack(in + i / 8, count - i, mean, y + i);
}

static void unpack_add(const uint8_t *in, size_t count, float mean, float *to) {
    float32x4_t means = vdupq_n_f32(mean);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        float32x4_t low = values(in[i / 8], 0, means), high = values(in[i / 8], 1, means);
        vst1q_f32(to + i, vaddq_f32(vld1q_f32(to + i), low));
        vst1q_f32(to + i + 4, vaddq_f32(vld1q_f32(to + i + 4), high));
    }
    rpi_sign_scalar.unpack_add(in + i / 8, count - i, mean, to + i);
}

const rpi_sign_kernels rpi_sign_neon = {sum, pack, unpack, unpack_add};
