/* 16-bit floats one at a time: the definition, and the rest behind vectors. */
#include "codec/codec_convert.h"

#include "codec/convert_arithmetic.h"

#include <string.h>

static uint16_t load16(const void *x, size_t i) {
    uint16_t bits;
    memcpy(&bits, (const char *)x + 2 * i, sizeof bits);
    return bits;
}

static void store16(void *y, size_t i, uint16_t bits) {
    memcpy((char *)y + 2 * i, &bits, sizeof bits);
}

static void f16_widen(const void *x, size_t count, float *y) {
    for (size_t i = 0; i < count; i++) y[i] = rpi_f16_to_f32(load16(x, i));
}

static void f16_widen_add(const void *x, size_t count, float *sum) {
    for (size_t i = 0; i < count; i++) sum[i] += rpi_f16_to_f32(load16(x, i));
}

static void f16_narrow(const float *x, size_t count, void *y) {
    for (size_t i = 0; i < count; i++) store16(y, i, rpi_narrow_f16(x[i]));
}

static void bf16_widen(const void *x, size_t count, float *y) {
    for (size_t i = 0; i < count; i++) y[i] = rpi_bf16_to_f32(load16(x, i));
}

static void bf16_widen_add(const void *x, size_t count, float *sum) {
    for (size_t i = 0; i < count; i++) sum[i] += rpi_bf16_to_f32(load16(x, i));
}

static void bf16_narrow(const float *x, size_t count, void *y) {
    for (size_t i = 0; i < count; i++) store16(y, i, rpi_narrow_bf16(x[i]));
}

const rpi_convert_kernels rpi_convert_f16_scalar = {f16_widen, f16_widen_add, f16_narrow};
const rpi_convert_kernels rpi_convert_bf16_scalar = {bf16_widen, bf16_widen_add, bf16_narrow};
