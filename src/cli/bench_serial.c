#include "cli/bench_serial.h"

#include "base/rng.h"
#include "base/status.h"
#include "base/suggest.h"
#include "cli/gaussian.h"
#include "comm/values/reductions.h"

#include <math.h>
#include <string.h>

/* ---- names ---- */

static const char *name_at(const void *context, int index) {
    (void)context;
    const char *name = rpi_reduction_name((rp_reduction)index);
    return strcmp(name, "unknown") == 0 ? NULL : name;
}

rp_status rpi_reduce_parse(const char *text, rp_reduction *out_reduce) {
    const char *name;
    char hint[64];
    for (int i = 0; (name = name_at(NULL, i)) != NULL; i++)
        if (strcmp(name, text) == 0) return *out_reduce = (rp_reduction)i, RP_OK;
    if (strcmp(text, "prod") == 0) return *out_reduce = RP_PRODUCT, RP_OK; /* as nccl-tests */
    return RP_FAIL(INVALID, "no reduction '%s'%s", text,
                   rpi_suggest_text(text, name_at, NULL, hint, sizeof hint));
}

rp_status rpi_check_reduction(const char *text) {
    rp_reduction reduce;
    return rpi_reduce_parse(text, &reduce);
}

/* ---- inputs ---- */

static bool is_complex(rp_dtype dtype) {
    return dtype == RP_C64 || dtype == RP_C128;
}

static bool is_whole(rp_dtype dtype) {
    return !rp_dtype_is_float(dtype) && !is_complex(dtype);
}

/* The real dtype that a complex number is two of. */
static rp_dtype lane_dtype(rp_dtype dtype) {
    return dtype == RP_C64 ? RP_F32 : dtype == RP_C128 ? RP_F64 : dtype;
}

static void store_real(rp_dtype dtype, float value, void *out, size_t i) {
    switch (dtype) {
    case RP_F16: ((uint16_t *)out)[i] = rp_f32_to_f16(value); break;
    case RP_BF16: ((uint16_t *)out)[i] = rp_f32_to_bf16(value); break;
    case RP_F64: ((double *)out)[i] = (double)value / 3; break;
    default: ((float *)out)[i] = value; break;
    }
}

static double load_real(rp_dtype dtype, const void *data, size_t i) {
    switch (dtype) {
    case RP_F16: return (double)rp_f16_to_f32(((const uint16_t *)data)[i]);
    case RP_BF16: return (double)rp_bf16_to_f32(((const uint16_t *)data)[i]);
    case RP_F64: return ((const double *)data)[i];
    default: return (double)((const float *)data)[i];
    }
}

/* Reals, `count` of them: a complex number counts twice. */
static void gaussian_input(uint64_t seed, int rank, rp_dtype dtype, uint64_t first,
                           size_t count, void *out) {
    enum { AT_ONCE = 1024 };
    float values[AT_ONCE];
    for (size_t done = 0; done < count; done += AT_ONCE) {
        size_t n = count - done < AT_ONCE ? count - done : AT_ONCE;
        rpi_gaussian(seed, rank, first + done, n, values);
        for (size_t i = 0; i < n; i++) store_real(dtype, values[i], out, done + i);
    }
}

static uint64_t random_bits(uint64_t seed, int rank, uint64_t index) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, words[4];
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)rank,
                           RPI_RNG_TEST};
    rp_philox4x32(counter, key, words);
    return (uint64_t)words[1] << 32 | words[0];
}

/* Little-endian: the low bytes come first. */
static void whole_input(uint64_t seed, int rank, rp_dtype dtype, uint64_t first, size_t count,
                        void *out) {
    size_t bytes = rp_dtype_bytes(dtype);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = random_bits(seed, rank, first + i);
        if (dtype == RP_BOOL) bits &= 1;
        memcpy((unsigned char *)out + i * bytes, &bits, bytes);
    }
}

void rpi_serial_input(uint64_t seed, int rank, rp_dtype dtype, uint64_t first, size_t count,
                      void *out) {
    uint64_t lanes = is_complex(dtype) ? 2 : 1;
    if (is_whole(dtype))
        whole_input(seed, rank, dtype, first, count, out);
    else
        gaussian_input(seed, rank, lane_dtype(dtype), lanes * first, lanes * count, out);
}

static bool is_signed(rp_dtype dtype) {
    return dtype == RP_I8 || dtype == RP_I16 || dtype == RP_I32 || dtype == RP_I64;
}

static uint64_t load_whole(rp_dtype dtype, const void *data, size_t i) {
    size_t bytes = rp_dtype_bytes(dtype);
    uint64_t bits = 0;
    memcpy(&bits, (const unsigned char *)data + i * bytes, bytes);
    if (bytes < 8 && is_signed(dtype) && bits >> (8 * bytes - 1)) bits |= ~0ull << (8 * bytes);
    return bits;
}

void rpi_serial_widen(rp_dtype dtype, const void *data, size_t count, rpi_wide *out) {
    rp_dtype lane = lane_dtype(dtype);
    for (size_t i = 0; i < count; i++) {
        if (is_whole(dtype))
            out[i] = (rpi_wide){.whole = load_whole(dtype, data, i)};
        else if (is_complex(dtype))
            out[i] = (rpi_wide){.re = load_real(lane, data, 2 * i),
                                .im = load_real(lane, data, 2 * i + 1)};
        else
            out[i] = (rpi_wide){.re = load_real(lane, data, i)};
    }
}

/* ---- the reduction ---- */

double rpi_serial_factor(int rank) {
    return 1.0 / (1 + rank);
}

void rpi_serial_begin(rp_reduction reduce, rp_dtype dtype, size_t count, rpi_wide *sum) {
    rpi_wide neutral = {0};
    switch (reduce) {
    case RP_PRODUCT: neutral = (rpi_wide){.re = 1, .whole = 1}; break;
    case RP_MIN:
        neutral = (rpi_wide){.re = INFINITY,
                             .whole = is_signed(dtype) ? (uint64_t)INT64_MAX : UINT64_MAX};
        break;
    case RP_MAX:
        neutral =
            (rpi_wide){.re = -INFINITY, .whole = is_signed(dtype) ? (uint64_t)INT64_MIN : 0};
        break;
    case RP_BAND: neutral.whole = UINT64_MAX; break;
    default: break;
    }
    for (size_t i = 0; i < count; i++) sum[i] = neutral;
}

static bool below(rp_dtype dtype, uint64_t a, uint64_t b) {
    return is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
}

/* Of integers; sums and products of bool are "or" and "and". */
static uint64_t combine_whole(rp_reduction reduce, rp_dtype dtype, uint64_t a, uint64_t b) {
    switch (reduce) {
    case RP_SUM: return dtype == RP_BOOL ? a | b : a + b;
    case RP_PRODUCT: return a * b;
    case RP_MIN: return below(dtype, b, a) ? b : a;
    case RP_MAX: return below(dtype, a, b) ? b : a;
    case RP_BAND: return a & b;
    case RP_BOR: return a | b;
    case RP_BXOR: return a ^ b;
    default: return a;
    }
}

static void combine_real(rp_reduction reduce, double factor, const rpi_wide *x, rpi_wide *sum) {
    rpi_wide a = *sum;
    switch (reduce) {
    case RP_PRODUCT:
        sum->re = a.re * x->re - a.im * x->im;
        sum->im = a.re * x->im + a.im * x->re;
        break;
    case RP_MIN: sum->re = x->re < a.re ? x->re : a.re; break;
    case RP_MAX: sum->re = x->re > a.re ? x->re : a.re; break;
    default:
        sum->re += factor * x->re;
        sum->im += factor * x->im;
        break;
    }
}

void rpi_serial_add(rp_reduction reduce, rp_dtype dtype, int rank, const rpi_wide *x,
                    size_t count, rpi_wide *sum) {
    double factor = reduce == RP_PREMUL_SUM ? rpi_serial_factor(rank) : 1;
    bool whole = is_whole(dtype);
    for (size_t i = 0; i < count; i++) {
        if (whole)
            sum[i].whole = combine_whole(reduce, dtype, sum[i].whole, x[i].whole);
        else
            combine_real(reduce, factor, &x[i], &sum[i]);
    }
}

void rpi_serial_end(rp_reduction reduce, int world, size_t count, rpi_wide *sum) {
    for (size_t i = 0; i < count && reduce == RP_AVG; i++) {
        sum[i].re /= world;
        sum[i].im /= world;
    }
}

/* ---- the comparison ---- */

static double square(const rpi_wide *x) {
    return x->re * x->re + x->im * x->im;
}

void rpi_serial_compare(rp_dtype dtype, const rpi_wide *result, const rpi_wide *answer,
                        size_t count, rpi_distance *distance) {
    size_t bits = 8 * rp_dtype_bytes(dtype);
    uint64_t mask = bits < 64 ? (1ull << bits) - 1 : UINT64_MAX;
    bool whole = is_whole(dtype);
    for (size_t i = 0; i < count; i++) {
        rpi_wide apart = {.re = result[i].re - answer[i].re, .im = result[i].im - answer[i].im};
        bool differs = ((result[i].whole ^ answer[i].whole) & mask) != 0;
        distance->difference += whole ? differs : square(&apart);
        distance->answer += whole ? 1 : square(&answer[i]);
    }
}

double rpi_distance_error(const rpi_distance *distance) {
    if (distance->difference == 0) return 0;
    return sqrt(distance->difference / distance->answer);
}

bool rpi_distance_is_within(const rpi_distance *distance, double loss, int terms) {
    if (distance->difference == 0) return true;
    double scale = fmax(distance->answer, distance->inputs);
    return sqrt(distance->difference / scale) <= 2 * (pow(1 + loss, terms) - 1);
}

double rpi_dtype_rounding(rp_dtype dtype) {
    switch (lane_dtype(dtype)) {
    case RP_F16: return 0x1p-10;
    case RP_BF16: return 0x1p-7;
    case RP_F32: return 0x1p-23;
    case RP_F64: return 0x1p-52;
    default: return 0;
    }
}
