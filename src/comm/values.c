#include "comm/values.h"

#include "codec/codec_convert.h"

#include <stdbool.h>
#include <string.h>

rp_dtype rpi_sum_dtype(rp_dtype dtype) {
    return dtype == RP_F16 || dtype == RP_BF16 ? RP_F32 : dtype;
}

static void narrow(const float *from, rp_dtype dtype, size_t count, uint16_t *into) {
    if (dtype == RP_F16)
        for (size_t i = 0; i < count; i++) into[i] = rp_f32_to_f16(from[i]);
    else
        for (size_t i = 0; i < count; i++) into[i] = rp_f32_to_bf16(from[i]);
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

static bool is_power_of_two(int number) {
    return (number & (number - 1)) == 0;
}

/* Multiplying by the inverse of a power of two gives the very bits of the division. */
static void divide_f32(float *x, size_t count, int world) {
    float by = (float)world, inverse = 1 / by;
    if (is_power_of_two(world))
        for (size_t i = 0; i < count; i++) x[i] *= inverse;
    else
        for (size_t i = 0; i < count; i++) x[i] /= by;
}

static void divide_f64(double *x, size_t count, int world) {
    double by = world;
    for (size_t i = 0; i < count; i++) x[i] /= by;
}

void rpi_values_divide(void *values, rp_dtype dtype, size_t count, int world) {
    if (world == 1) return;
    if (dtype == RP_F32) divide_f32(values, count, world);
    if (dtype == RP_F64) divide_f64(values, count, world);
}
