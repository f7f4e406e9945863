/* q1 to q8 as `lanes` threads do them that work on one bucket together: octets lane, lane +
 * lanes, ... of the bucket are those of a lane. Encoding has two halves, between which the
 * lanes' ranges are joined; a GPU does that by shuffles (quant.cu), a test on the CPU by a
 * loop. `type` and the flags are arguments, so that kernels have them as constants. */
#ifndef RPI_CUDA_QUANT_LANES_H
#define RPI_CUDA_QUANT_LANES_H

#include "cuda/octet.h"

#include <math.h>

RPI_HOST_DEVICE uint64_t rpi_quant_bucket_at(const rpi_device_call *call, uint64_t bucket) {
    return bucket * (RPI_QUANT_HEAD + rpi_packed_bytes(call->bucket, call->bits));
}

RPI_HOST_DEVICE rpi_quant_range rpi_quant_join(rpi_quant_range a, rpi_quant_range b) {
    a.min = b.min < a.min ? b.min : a.min;
    a.max = b.max > a.max ? b.max : a.max;
    a.has_nan |= b.has_nan;
    return a;
}

RPI_HOST_DEVICE rpi_quant_range rpi_quant_lane_range(const rpi_device_call *call, int type,
                                                     int feedback, uint64_t bucket, int lane,
                                                     int lanes) {
    rpi_quant_range range = rpi_quant_no_range();
    uint64_t begin = bucket * call->bucket, count = rpi_device_bucket_count(call, bucket);
    for (uint64_t i = (uint64_t)lane * RPI_OCTET; i < count; i += (uint64_t)lanes * RPI_OCTET) {
        int n = (int)rpi_device_least(count - i, RPI_OCTET);
        rpi_octet y;
        rpi_octet_feed(type, call->x, feedback ? call->residual : NULL, begin + i, n, &y);
        for (int k = 0; k < RPI_OCTET; k++)
            if (k < n) rpi_quant_widen(&range, y.value[k]);
    }
    return range;
}

/* ---- levels of an octet ---- */

/* Every element of a bucket is divided by the same number. Two corrections of a product with
 * its reciprocal give the correctly rounded quotient (P. Markstein, IA-64 and Elementary
 * Functions, 2000), that of a true division, as long as no remainder is lost to underflow:
 * elsewhere it is divided. */
typedef struct rpi_divisor {
    float value, inverse;
    int divides;
} rpi_divisor;

/* 1 / value, correctly rounded, of a value from 2^-64 to 2^64: what CUDA's division does where
 * nothing is subnormal, without looking. */
RPI_HOST_DEVICE float rpi_inverse(float value) {
#ifdef __CUDA_ARCH__
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(value));
    return fmaf(inverse, -fmaf(inverse, value, -1.0f), inverse);
#else
    return 1.0f / value;
#endif
}

RPI_HOST_DEVICE rpi_divisor rpi_divisor_of(float value) {
    rpi_divisor d;
    d.value = value;
    d.divides = !(value >= 0x1p-64f && value <= 0x1p64f);
    d.inverse = d.divides ? 0.0f : rpi_inverse(value);
    return d;
}

RPI_HOST_DEVICE float rpi_quotient(float a, rpi_divisor d) {
    float q = a * d.inverse;
    q = fmaf(fmaf(-q, d.value, a), d.inverse, q);
    return fmaf(fmaf(-q, d.value, a), d.inverse, q);
}

/* (y - min) / unit of each. */
RPI_HOST_DEVICE void rpi_quant_divide(const rpi_octet *y, float min, rpi_divisor unit,
                                      rpi_octet *quotient) {
    if (unit.divides)
        for (int k = 0; k < RPI_OCTET; k++)
            quotient->value[k] = (y->value[k] - min) / unit.value;
    else
        for (int k = 0; k < RPI_OCTET; k++)
            quotient->value[k] = rpi_quotient(y->value[k] - min, unit);
}

/* Of a number from 0 to 255. A GPU converts at a quarter of the rate at which it adds. */
RPI_HOST_DEVICE uint32_t rpi_quant_floor(float level) {
#ifdef __CUDA_ARCH__
    return __float_as_uint(__fadd_rz(level, 0x1p23f)) & 0xffu;
#else
    return (uint32_t)level;
#endif
}

/* rpi_quant_level() behind its division. */
RPI_HOST_DEVICE uint32_t rpi_quant_level_of(float quotient, float r, float top) {
    return rpi_quant_floor(fminf(fmaxf(quotient + r, 0.0f), top));
}

/* rpi_quant_value() of a bucket that is not damaged, which is never NaN. */
RPI_HOST_DEVICE float rpi_quant_plain_value(uint32_t level, rpi_quant_scale scale) {
    return scale.min + scale.unit * (float)level;
}

RPI_HOST_DEVICE void rpi_quant_draw(const rpi_device_call *call, uint64_t element,
                                    rpi_philox_block drawn[2]) {
    drawn[0] = drawn[1] = rpi_quant_random_block(&call->stream, element / RPI_OCTET);
    if (element % RPI_OCTET)
        drawn[1] = rpi_quant_random_block(&call->stream, element / RPI_OCTET + 1);
}

/* The levels of y, packed; y becomes what they leave. unit: of scale.unit. Four levels fit in
 * 32 bits, however many bits they have. */
RPI_HOST_DEVICE uint64_t rpi_quant_octet(const rpi_device_call *call, int bits, int stochastic,
                                         uint64_t element, int n, rpi_quant_scale scale,
                                         rpi_divisor unit, rpi_octet *y) {
    float top = (float)((1 << bits) - 1);
    uint32_t half[2] = {0, 0};
    rpi_philox_block drawn[2]; /* an octet of a bucket may lie in two blocks of numbers */
    rpi_octet quotient;
    rpi_quant_divide(y, scale.min, unit, &quotient);
    if (stochastic) rpi_quant_draw(call, element, drawn);
    for (int k = 0; k < RPI_OCTET; k++) {
        float r = 0.5f;
        if (stochastic) {
            uint64_t e = element + (uint64_t)k;
            r = rpi_quant_dither(
                rpi_quant_random_of(&drawn[e / RPI_OCTET != element / RPI_OCTET], e));
        }
        uint32_t level = rpi_quant_level_of(quotient.value[k], r, top);
        half[k / 4] += level * (1u << (bits * (k % 4)));
        y->value[k] -= rpi_quant_plain_value(level, scale);
    }
    uint64_t levels = half[0] | (uint64_t)half[1] << (4 * bits);
    return n < RPI_OCTET ? levels & (((uint64_t)1 << (bits * n)) - 1) : levels;
}

/* Where a bucket has no levels, all of it is `value`; or it is damaged, and loses its residual.
 */
RPI_HOST_DEVICE void rpi_quant_flat_octet(float value, rpi_octet *y) {
    for (int k = 0; k < RPI_OCTET; k++)
        y->value[k] = value != value ? 0.0f : y->value[k] - value;
}

/* Where the levels follow. */
RPI_HOST_DEVICE uint8_t *rpi_quant_put_scale(const rpi_device_call *call, uint64_t bucket,
                                             rpi_quant_scale scale, int lane) {
    uint8_t *out = call->encoded + rpi_quant_bucket_at(call, bucket);
    if (lane == 0) {
        rpi_float_store(out, scale.min);
        rpi_float_store(out + 4, scale.unit);
    }
    return out + RPI_QUANT_HEAD;
}

RPI_HOST_DEVICE void rpi_quant_lane_encode(const rpi_device_call *call, int type, int feedback,
                                           int stochastic, uint64_t bucket,
                                           rpi_quant_range range, int lane, int lanes) {
    rpi_quant_scale scale = rpi_quant_scale_of(&range, call->bits);
    uint64_t begin = bucket * call->bucket, count = rpi_device_bucket_count(call, bucket);
    rpi_divisor unit = rpi_divisor_of(scale.unit);
    uint8_t *out = rpi_quant_put_scale(call, bucket, scale, lane);
    for (uint64_t i = (uint64_t)lane * RPI_OCTET; i < count; i += (uint64_t)lanes * RPI_OCTET) {
        int n = (int)rpi_device_least(count - i, RPI_OCTET);
        uint64_t levels = 0;
        rpi_octet y;
        rpi_octet_feed(type, call->x, feedback ? call->residual : NULL, begin + i, n, &y);
        if (scale.unit > 0)
            levels = rpi_quant_octet(call, call->bits, stochastic, call->first + begin + i, n,
                                     scale, unit, &y);
        else
            rpi_quant_flat_octet(scale.min, &y);
        rpi_bytes_store(out + i / RPI_OCTET * (uint64_t)call->bits, levels,
                        rpi_levels_bytes(n, call->bits));
        if (feedback) rpi_octet_store(RPI_DEVICE_F32, call->residual, begin + i, n, &y);
    }
}

RPI_HOST_DEVICE rpi_quant_scale rpi_quant_scale_at(const uint8_t *in) {
    rpi_quant_scale scale;
    scale.min = rpi_float_load(in);
    scale.unit = rpi_float_load(in + 4);
    return scale;
}

/* Of packed levels. */
RPI_HOST_DEVICE void rpi_quant_values(uint64_t levels, int bits, rpi_quant_scale scale,
                                      rpi_octet *y) {
    uint32_t mask = (1u << bits) - 1;
    uint32_t half[2] = {(uint32_t)levels, (uint32_t)(levels >> (4 * bits))};
    int damaged = scale.min != scale.min;
    for (int k = 0; k < RPI_OCTET; k++) {
        float value = rpi_quant_plain_value(half[k / 4] >> (bits * (k % 4)) & mask, scale);
        y->value[k] = damaged ? scale.min : value;
    }
}

RPI_HOST_DEVICE void rpi_quant_lane_decode(const rpi_device_call *call, int type, int adds,
                                           uint64_t bucket, int lane, int lanes) {
    const uint8_t *in = call->encoded + rpi_quant_bucket_at(call, bucket);
    uint64_t begin = bucket * call->bucket, count = rpi_device_bucket_count(call, bucket);
    rpi_quant_scale scale = rpi_quant_sound(rpi_quant_scale_at(in));
    in += RPI_QUANT_HEAD;
    for (uint64_t i = (uint64_t)lane * RPI_OCTET; i < count; i += (uint64_t)lanes * RPI_OCTET) {
        int n = (int)rpi_device_least(count - i, RPI_OCTET);
        uint64_t levels = rpi_bytes_load(in + i / RPI_OCTET * (uint64_t)call->bits,
                                         rpi_levels_bytes(n, call->bits));
        rpi_octet y;
        rpi_quant_values(levels, call->bits, scale, &y);
        rpi_octet_deliver(call, type, adds, begin + i, n, &y);
    }
}

/* ---- buckets that fit in registers ----
 *
 * A bucket of at most `lanes` times `octets` octets is read once, all of a lane's before any of
 * it is used, so that enough bytes are on their way; and its residual, too. `octets` is a
 * constant of at most RPI_QUANT_HELD. */

enum { RPI_QUANT_HELD = 4 };

typedef struct rpi_quant_held {
    rpi_octet y[RPI_QUANT_HELD];
} rpi_quant_held;

/* Octet j of a lane: its first element in the bucket, and how many there are. */
RPI_HOST_DEVICE uint64_t rpi_quant_held_at(int j, int lane, int lanes) {
    return ((uint64_t)j * (uint64_t)lanes + (uint64_t)lane) * RPI_OCTET;
}
RPI_HOST_DEVICE int rpi_quant_held_count(uint64_t count, uint64_t i) {
    return i < count ? (int)rpi_device_least(count - i, RPI_OCTET) : 0;
}

typedef struct rpi_quant_raw {
    rpi_raw_octet y[RPI_QUANT_HELD];
} rpi_quant_raw;

RPI_HOST_DEVICE void rpi_quant_held_load(int type, const void *x, uint64_t begin,
                                         uint64_t count, int octets, int lane, int lanes,
                                         rpi_quant_raw *raw) {
    RPI_UNROLL
    for (int j = 0; j < octets; j++) {
        uint64_t i = rpi_quant_held_at(j, lane, lanes);
        rpi_raw_load(type, x, begin + i, rpi_quant_held_count(count, i), &raw->y[j]);
    }
}

/* -0 may come in place of 0: a scale has neither (rpi_quant_scale_of()). */
RPI_HOST_DEVICE rpi_quant_range rpi_quant_held_range(uint64_t count, int octets, int lane,
                                                     int lanes, const rpi_quant_held *held) {
    rpi_quant_range range = rpi_quant_no_range();
    RPI_UNROLL
    for (int j = 0; j < octets; j++) {
        int n = rpi_quant_held_count(count, rpi_quant_held_at(j, lane, lanes));
        for (int k = 0; k < RPI_OCTET; k++) {
            float y = held->y[j].value[k];
            if (k >= n) continue;
            range.min = fminf(range.min, y);
            range.max = fmaxf(range.max, y);
            range.has_nan |= y != y;
        }
    }
    return range;
}

/* The lane's elements, and their range. */
RPI_HOST_DEVICE rpi_quant_range rpi_quant_lane_take(const rpi_device_call *call, int type,
                                                    int feedback, int octets, uint64_t bucket,
                                                    int lane, int lanes, rpi_quant_held *held) {
    uint64_t begin = bucket * call->bucket, count = rpi_device_bucket_count(call, bucket);
    rpi_quant_raw raw, left;
    rpi_octet residual;
    rpi_quant_held_load(type, call->x, begin, count, octets, lane, lanes, &raw);
    if (feedback)
        rpi_quant_held_load(RPI_DEVICE_F32, call->residual, begin, count, octets, lane, lanes,
                            &left);
    RPI_UNROLL
    for (int j = 0; j < octets; j++) {
        rpi_raw_widen(type, &raw.y[j], &held->y[j]);
        if (!feedback) continue;
        rpi_raw_widen(RPI_DEVICE_F32, &left.y[j], &residual);
        for (int k = 0; k < RPI_OCTET; k++)
            held->y[j].value[k] = rpi_float_add(held->y[j].value[k], residual.value[k]);
    }
    return rpi_quant_held_range(count, octets, lane, lanes, held);
}

RPI_HOST_DEVICE void rpi_quant_lane_put(const rpi_device_call *call, int feedback,
                                        int stochastic, int octets, uint64_t bucket,
                                        rpi_quant_range range, int lane, int lanes,
                                        rpi_quant_held *held) {
    rpi_quant_scale scale = rpi_quant_scale_of(&range, call->bits);
    rpi_divisor unit = rpi_divisor_of(scale.unit);
    uint64_t begin = bucket * call->bucket, count = rpi_device_bucket_count(call, bucket);
    uint8_t *out = rpi_quant_put_scale(call, bucket, scale, lane);
    RPI_UNROLL
    for (int j = 0; j < octets; j++) {
        uint64_t i = rpi_quant_held_at(j, lane, lanes), levels = 0;
        int n = rpi_quant_held_count(count, i);
        if (!n) continue;
        if (scale.unit > 0)
            levels = rpi_quant_octet(call, call->bits, stochastic, call->first + begin + i, n,
                                     scale, unit, &held->y[j]);
        else
            rpi_quant_flat_octet(scale.min, &held->y[j]);
        rpi_bytes_store(out + i / RPI_OCTET * (uint64_t)call->bits, levels,
                        rpi_levels_bytes(n, call->bits));
        if (feedback)
            rpi_octet_store(RPI_DEVICE_F32, call->residual, begin + i, n, &held->y[j]);
    }
}

/* All bytes, and the sums that they are added to, before any of them is used. */
RPI_HOST_DEVICE void rpi_quant_lane_unpack(const rpi_device_call *call, int type, int adds,
                                           int octets, uint64_t bucket, int lane, int lanes) {
    const uint8_t *in = call->encoded + rpi_quant_bucket_at(call, bucket);
    uint64_t begin = bucket * call->bucket, count = rpi_device_bucket_count(call, bucket);
    uint64_t levels[RPI_QUANT_HELD];
    rpi_quant_raw sums;
    rpi_quant_scale scale = rpi_quant_scale_at(in);
    in += RPI_QUANT_HEAD;
    RPI_UNROLL
    for (int j = 0; j < octets; j++) {
        uint64_t i = rpi_quant_held_at(j, lane, lanes);
        levels[j] =
            rpi_bytes_load(in + i / RPI_OCTET * (uint64_t)call->bits,
                           rpi_levels_bytes(rpi_quant_held_count(count, i), call->bits));
    }
    if (adds)
        rpi_quant_held_load(RPI_DEVICE_F32, rpi_device_sums_from(call), begin, count, octets,
                            lane, lanes, &sums);
    scale = rpi_quant_sound(scale);
    RPI_UNROLL
    for (int j = 0; j < octets; j++) {
        uint64_t i = rpi_quant_held_at(j, lane, lanes);
        rpi_octet y, sum;
        rpi_quant_values(levels[j], call->bits, scale, &y);
        if (adds) rpi_raw_widen(RPI_DEVICE_F32, &sums.y[j], &sum);
        for (int k = 0; adds && k < RPI_OCTET; k++)
            y.value[k] = rpi_sum_of(call, sum.value[k], y.value[k]);
        rpi_octet_store(adds ? RPI_DEVICE_F32 : type, call->y, begin + i,
                        rpi_quant_held_count(count, i), &y);
    }
}

#endif
