#include "comm/serial.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

static bool is_complex(rp_dtype dtype) {
    return dtype == RP_C64 || dtype == RP_C128;
}

bool serial_takes(rp_reduction reduction, rp_dtype dtype) {
    bool floats = rp_dtype_is_float(dtype);
    switch (reduction) {
    case RP_SUM:
    case RP_PRODUCT: return true;
    case RP_AVG:
    case RP_PREMUL_SUM: return floats || is_complex(dtype);
    case RP_MIN:
    case RP_MAX: return !is_complex(dtype);
    default: return !floats && !is_complex(dtype);
    }
}

double serial_factor(int rank) {
    return 0.5 * (rank + 1);
}

/* ---- elements ---- */

typedef struct number {
    double re, im; /* floats and complex: f32 values where the dtype is no wider */
    uint64_t bits; /* integers and bool, extended by their sign */
} number;

static bool is_wide(rp_dtype dtype) {
    return dtype == RP_F64 || dtype == RP_C128;
}

static uint64_t extended(rp_dtype dtype, uint64_t bits) {
    switch (dtype) {
    case RP_I8: return (uint64_t)(int64_t)(int8_t)bits;
    case RP_I16: return (uint64_t)(int64_t)(int16_t)bits;
    case RP_I32: return (uint64_t)(int64_t)(int32_t)bits;
    default: return bits;
    }
}

static bool is_signed(rp_dtype dtype) {
    return dtype == RP_I8 || dtype == RP_I16 || dtype == RP_I32 || dtype == RP_I64;
}

static number load(rp_dtype dtype, const void *data, size_t i) {
    const char *at = (const char *)data + i * rp_dtype_bytes(dtype);
    number x = {0};
    float f[2];
    double d[2];
    uint16_t half;
    switch (dtype) {
    case RP_F32: memcpy(f, at, 4), x.re = f[0]; break;
    case RP_F64: memcpy(d, at, 8), x.re = d[0]; break;
    case RP_F16: memcpy(&half, at, 2), x.re = rp_f16_to_f32(half); break;
    case RP_BF16: memcpy(&half, at, 2), x.re = rp_bf16_to_f32(half); break;
    case RP_C64: memcpy(f, at, 8), x.re = f[0], x.im = f[1]; break;
    case RP_C128: memcpy(d, at, 16), x.re = d[0], x.im = d[1]; break;
    default: memcpy(&x.bits, at, rp_dtype_bytes(dtype)), x.bits = extended(dtype, x.bits);
    }
    return x;
}

static void store(rp_dtype dtype, void *data, size_t i, number x) {
    char *at = (char *)data + i * rp_dtype_bytes(dtype);
    float f[2] = {(float)x.re, (float)x.im};
    double d[2] = {x.re, x.im};
    uint16_t f16 = rp_f32_to_f16(f[0]), bf16 = rp_f32_to_bf16(f[0]);
    switch (dtype) {
    case RP_F32: memcpy(at, f, 4); break;
    case RP_F64: memcpy(at, d, 8); break;
    case RP_F16: memcpy(at, &f16, 2); break;
    case RP_BF16: memcpy(at, &bf16, 2); break;
    case RP_C64: memcpy(at, f, 8); break;
    case RP_C128: memcpy(at, d, 16); break;
    default: memcpy(at, &x.bits, rp_dtype_bytes(dtype));
    }
}

/* ---- inputs ---- */

static double any_float(rpi_rng *rng) {
    return rpi_rng_below(rng, 50) ? rpi_rng_normal(rng) : NAN;
}

/* Powers of two of both signs: products of few are exact even in bf16, and so are sums. */
static double small_float(rpi_rng *rng) {
    static const double values[] = {1, -1, 2, 0.5, -0.5};
    return values[rpi_rng_below(rng, 5)];
}

void serial_fill(serial_input kind, rp_dtype dtype, uint64_t seed, int rank, void *data,
                 size_t count) {
    rpi_rng rng = rpi_rng_make(seed, RPI_RNG_TEST, (uint64_t)rank);
    for (size_t i = 0; i < count; i++) {
        number x = {0};
        x.re = kind == SERIAL_ANY ? any_float(&rng) : small_float(&rng);
        x.im = is_complex(dtype) ? small_float(&rng) : 0;
        x.bits =
            (uint64_t)rpi_rng_below(&rng, UINT32_MAX) << 32 | rpi_rng_below(&rng, UINT32_MAX);
        if (dtype == RP_BOOL) x.bits &= 1;
        store(dtype, data, i, x);
    }
}

/* ---- reductions ---- */

/* To what an accumulator of this dtype holds. */
static double rounded(rp_dtype dtype, double value) {
    return is_wide(dtype) ? value : (double)(float)value;
}

static number multiply(rp_dtype dtype, number a, number b) {
    if (!is_complex(dtype)) return (number){.re = rounded(dtype, a.re * b.re)};
    return (number){
        .re = rounded(dtype, rounded(dtype, a.re * b.re) - rounded(dtype, a.im * b.im)),
        .im = rounded(dtype, rounded(dtype, a.re * b.im) + rounded(dtype, a.im * b.re))};
}

static double least(double a, double b, bool largest) {
    if (isnan(a) || isnan(b)) return NAN;
    return (a < b) != largest ? a : b;
}

static number combine_floats(rp_reduction reduction, rp_dtype dtype, number a, number b) {
    switch (reduction) {
    case RP_PRODUCT: return multiply(dtype, a, b);
    case RP_MIN: return (number){.re = least(a.re, b.re, false)};
    case RP_MAX: return (number){.re = least(a.re, b.re, true)};
    default:
        return (number){.re = rounded(dtype, a.re + b.re), .im = rounded(dtype, a.im + b.im)};
    }
}

static uint64_t combine_integers(rp_reduction reduction, rp_dtype dtype, uint64_t a,
                                 uint64_t b) {
    bool less = is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
    switch (reduction) {
    case RP_PRODUCT: return extended(dtype, a * b);
    case RP_MIN: return less ? a : b;
    case RP_MAX: return less ? b : a;
    case RP_BAND: return a & b;
    case RP_BOR: return a | b;
    case RP_BXOR: return a ^ b;
    default: return extended(dtype, a + b);
    }
}

static number combine(rp_reduction reduction, rp_dtype dtype, number a, number b) {
    if (rp_dtype_is_float(dtype) || is_complex(dtype))
        return combine_floats(reduction, dtype, a, b);
    uint64_t bits = combine_integers(reduction, dtype, a.bits, b.bits);
    if (dtype == RP_BOOL && reduction == RP_SUM) bits = a.bits | b.bits;
    return (number){.bits = bits};
}

/* Rounded once to the dtype, as if it had been the caller's input. */
static number scaled(rp_dtype dtype, number x, double factor) {
    char element[16];
    store(dtype, element, 0, (number){.re = x.re * factor, .im = x.im * factor});
    return load(dtype, element, 0);
}

static number input_of(rp_reduction reduction, rp_dtype dtype, void *const *inputs, int rank,
                       size_t i) {
    number x = load(dtype, inputs[rank], i);
    return reduction == RP_PREMUL_SUM ? scaled(dtype, x, serial_factor(rank)) : x;
}

void serial_reduce(rp_reduction reduction, rp_dtype dtype, void *const *inputs, int world,
                   size_t count, void *out) {
    for (size_t i = 0; i < count; i++) {
        number sum = input_of(reduction, dtype, inputs, 0, i);
        for (int rank = 1; rank < world; rank++)
            sum = combine(reduction, dtype, sum, input_of(reduction, dtype, inputs, rank, i));
        if (reduction == RP_AVG)
            sum = (number){.re = rounded(dtype, sum.re / world),
                           .im = rounded(dtype, sum.im / world)};
        store(dtype, out, i, sum);
    }
}

size_t serial_differs(rp_dtype dtype, const void *a, const void *b, size_t count) {
    size_t bytes = rp_dtype_bytes(dtype);
    for (size_t i = 0; i < count; i++) {
        if (memcmp((const char *)a + i * bytes, (const char *)b + i * bytes, bytes) == 0)
            continue;
        number x = load(dtype, a, i), y = load(dtype, b, i);
        bool same_re = x.re == y.re || (isnan(x.re) && isnan(y.re));
        bool same_im = x.im == y.im || (isnan(x.im) && isnan(y.im));
        if (!same_re || !same_im || x.bits != y.bits) return i;
    }
    return count;
}
