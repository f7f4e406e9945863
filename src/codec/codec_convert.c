#include "codec/codec_convert.h"

#include "codec/convert_arithmetic.h"

#include <string.h>

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
    return dtype == RP_F16 ? &rpi_convert_f16_scalar : &rpi_convert_bf16_scalar;
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
