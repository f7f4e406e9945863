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

static void f32_copy(const void *x, size_t count, float *y) {
    memcpy(y, x, 4 * count);
}

static void f32_add(const void *x, size_t count, float *sum) {
    for (size_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, (const char *)x + 4 * i, sizeof value);
        sum[i] += value;
    }
}

static void f32_store(const float *x, size_t count, void *y) {
    memcpy(y, x, 4 * count);
}

static const rpi_convert_kernels f32 = {f32_copy, f32_add, f32_store};
static const rpi_convert_kernels f16 = {f16_widen, f16_widen_add, f16_narrow};
static const rpi_convert_kernels bf16 = {bf16_widen, bf16_widen_add, bf16_narrow};

const rpi_convert_kernels *rpi_convert(rp_dtype dtype, rpi_isa isa) {
    if (dtype == RP_F32) return &f32;
#if defined(__x86_64__)
    if (isa >= RPI_ISA_AVX2)
        return dtype == RP_F16 ? &rpi_convert_f16_avx2 : &rpi_convert_bf16_avx2;
#elif defined(__aarch64__)
    if (isa >= RPI_ISA_NEON)
        return dtype == RP_F16 ? &rpi_convert_f16_neon : &rpi_convert_bf16_neon;
#endif
    (void)isa;
    return dtype == RP_F16 ? &f16 : &bf16;
}

void rpi_convert_feedback(rp_dtype data, rp_dtype wire, rpi_isa isa, const void *x,
                          size_t count, float *residual, void *out) {
    const rpi_convert_kernels *from = rpi_convert(data, isa), *to = rpi_convert(wire, isa);
    const char *in = x;
    char *bytes = out;
    for (size_t i = 0, n; i < count; i += n, residual += n) {
        float y[RPI_TILE], decoded[RPI_TILE];
        n = count - i < RPI_TILE ? count - i : RPI_TILE;
        from->widen(in + rp_dtype_bytes(data) * i, n, y);
        for (size_t k = 0; k < n; k++) y[k] += residual[k];
        to->narrow(y, n, bytes + rp_dtype_bytes(wire) * i);
        to->widen(bytes + rp_dtype_bytes(wire) * i, n, decoded);
        for (size_t k = 0; k < n; k++) residual[k] = rpi_convert_lost(y[k], decoded[k]);
    }
}
