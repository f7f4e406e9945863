#include "comm/values/values.h"

#include "codec/codec_convert.h"
#include "comm/values/narrow_loops.h"

#include <stdbool.h>
#include <string.h>

rp_dtype rpi_sum_dtype(rp_dtype dtype) {
    return dtype == RP_F16 || dtype == RP_BF16 ? RP_F32 : dtype;
}

/* ---- conversions ---- */

const rpi_narrow_kernels *rpi_narrow(rpi_isa isa) {
    static const rpi_narrow_kernels plain = {rpi_narrow_plain_f16, rpi_narrow_plain_bf16};
#if defined(__x86_64__)
    if (isa >= RPI_ISA_AVX2) return &rpi_narrow_avx2;
#endif
    (void)isa;
    return &plain;
}

static void narrow(const float *from, rp_dtype dtype, size_t count, uint16_t *into) {
    const rpi_narrow_kernels *kernels = rpi_narrow(rpi_cpu_isa());
    (dtype == RP_F16 ? kernels->f16 : kernels->bf16)(from, count, into);
}

void rpi_values_convert(const void *from, rp_dtype from_dtype, void *into, rp_dtype into_dtype,
                        size_t count) {
    if (from_dtype == into_dtype) {
        if (from != into) memcpy(into, from, count * rp_dtype_bytes(from_dtype));
    } else if (into_dtype == RP_F32) {
        rpi_convert(from_dtype, rpi_cpu_isa())->widen(from, count, into);
    } else {
        narrow(from, into_dtype, count, into);
    }
}

/* ---- weights ---- */

static bool is_power_of_two(int number) {
    return (number & (number - 1)) == 0;
}

/* Multiplying by the inverse of a power of two gives the same bits as the division. */
static void divide_f32(float *x, size_t count, int by) {
    float divisor = (float)by, inverse = 1 / divisor;
    if (is_power_of_two(by))
        for (size_t i = 0; i < count; i++) x[i] *= inverse;
    else
        for (size_t i = 0; i < count; i++) x[i] /= divisor;
}

static void divide_f64(double *x, size_t count, int by) {
    double divisor = by;
    for (size_t i = 0; i < count; i++) x[i] /= divisor;
}

void rpi_values_divide(void *values, rp_dtype dtype, size_t count, int by) {
    if (by == 1) return;
    if (dtype == RP_F32) divide_f32(values, count, by);
    if (dtype == RP_C64) divide_f32(values, 2 * count, by);
    if (dtype == RP_F64) divide_f64(values, count, by);
    if (dtype == RP_C128) divide_f64(values, 2 * count, by);
}

/* ---- factors ---- */

static void scale_f32(const float *from, double factor, size_t count, float *into) {
    for (size_t i = 0; i < count; i++) into[i] = (float)(from[i] * factor);
}

static void scale_f64(const double *from, double factor, size_t count, double *into) {
    for (size_t i = 0; i < count; i++) into[i] = from[i] * factor;
}

static void scale_half(const uint16_t *from, rp_dtype dtype, double factor, size_t count,
                       uint16_t *into) {
    for (size_t i = 0, n; i < count; i += n) {
        float tile[RPI_TILE];
        n = count - i < RPI_TILE ? count - i : RPI_TILE;
        rpi_convert(dtype, rpi_cpu_isa())->widen(from + i, n, tile);
        scale_f32(tile, factor, n, tile);
        narrow(tile, dtype, n, into + i);
    }
}

void rpi_values_scale(const void *from, rp_dtype dtype, double factor, size_t count,
                      void *into) {
    switch (dtype) {
    case RP_F32: scale_f32(from, factor, count, into); break;
    case RP_C64: scale_f32(from, factor, 2 * count, into); break;
    case RP_F64: scale_f64(from, factor, count, into); break;
    case RP_C128: scale_f64(from, factor, 2 * count, into); break;
    default: scale_half(from, dtype, factor, count, into); break;
    }
}

void rpi_values_weigh(void *values, rp_dtype dtype, int times, int over, size_t count) {
    if (!over) return;
    if (times != 1) rpi_values_scale(values, dtype, times, count, values);
    rpi_values_divide(values, dtype, count, over);
}
