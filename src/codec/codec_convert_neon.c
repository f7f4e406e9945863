/* 16-bit floats with NEON, 8 elements at a time; the rest by the scalar kernels. */
#include "codec/codec_convert.h"

#include <arm_neon.h>

static inline uint16x8_t load8(const void *x, size_t i) {
    return vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)x + 2 * i));
}

static inline float32x4_t f16_widen4(uint16x4_t bits) {
    return vcvt_f32_f16(vreinterpret_f16_u16(bits));
}

static inline float32x4_t bf16_widen4(uint16x4_t bits) {
    return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
}

/* Finite values into [-largest, largest]; NaN and infinity pass. */
static inline float32x4_t clamp_finite(float32x4_t x, float largest) {
    uint32x4_t finite = vcltq_f32(vabsq_f32(x), vdupq_n_f32(__builtin_inff()));
    float32x4_t clamped = vminq_f32(vmaxq_f32(x, vdupq_n_f32(-largest)), vdupq_n_f32(largest));
    return vbslq_f32(finite, clamped, x);
}

static inline uint16x4_t f16_round4(float32x4_t x) {
    return vreinterpret_u16_f16(vcvt_f16_f32(clamp_finite(x, 65504.0f)));
}

/* To nearest even by integer arithmetic, as rp_f32_to_bf16() does; NaN is made quiet. */
static inline uint16x4_t bf16_round4(float32x4_t x) {
    uint32x4_t bits = vreinterpretq_u32_f32(clamp_finite(x, 0x1.fep127f));
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet), 16);
}

#define CONVERT_KERNELS(format)                                                                \
    static void format##_widen(const void *x, size_t count, float *y) {                        \
        size_t i = 0;                                                                          \
        for (; i + 8 <= count; i += 8) {                                                       \
            uint16x8_t bits = load8(x, i);                                                     \
            vst1q_f32(y + i, format##_widen4(vget_low_u16(bits)));                             \
            vst1q_f32(y + i + 4, format##_widen4(vget_high_u16(bits)));                        \
        }                                                                                      \
        rpi_convert_##format##_scalar.widen((const char *)x + 2 * i, count - i, y + i);        \
    }                                                                                          \
    static void format##_widen_add(const void *x, size_t count, float *sum) {                  \
        size_t i = 0;                                                                          \
        for (; i + 8 <= count; i += 8) {                                                       \
            uint16x8_t bits = load8(x, i);                                                     \
            float32x4_t low = format##_widen4(vget_low_u16(bits));                             \
            float32x4_t high = format##_widen4(vget_high_u16(bits));                           \
            vst1q_f32(sum + i, vaddq_f32(vld1q_f32(sum + i), low));                            \
            vst1q_f32(sum + i + 4, vaddq_f32(vld1q_f32(sum + i + 4), high));                   \
        }                                                                                      \
        rpi_convert_##format##_scalar.widen_add((const char *)x + 2 * i, count - i, sum + i);  \
    }                                                                                          \
    static void format##_narrow(const float *x, size_t count, void *y) {                       \
        size_t i = 0;                                                                          \
        for (; i + 8 <= count; i += 8) {                                                       \
            uint16x8_t bits = vcombine_u16(format##_round4(vld1q_f32(x + i)),                  \
                                           format##_round4(vld1q_f32(x + i + 4)));             \
            vst1q_u8((uint8_t *)y + 2 * i, vreinterpretq_u8_u16(bits));                        \
        }                                                                                      \
        rpi_convert_##format##_scalar.narrow(x + i, count - i, (char *)y + 2 * i);             \
    }                                                                                          \
    const rpi_convert_kernels rpi_convert_##format##_neon = {                                  \
        format##_widen, format##_widen_add, format##_narrow};

CONVERT_KERNELS(f16)
CONVERT_KERNELS(bf16)
