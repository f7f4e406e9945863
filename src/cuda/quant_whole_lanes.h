/* q1 to q8 where every octet of a bucket is whole and lies well, which is what tensors have but
 * for their ends: no lengths are looked at, and levels need no bounds. A lane reads its octets
 * once, all before any of them is used. What is not so, quant_lanes.h does, with the same
 * bytes.
 */
#ifndef RPI_CUDA_QUANT_WHOLE_LANES_H
#define RPI_CUDA_QUANT_WHOLE_LANES_H

#include "cuda/quant_lanes.h"

/* How many octets a lane has of each bucket but the last; 0: they are not whole. */
RPI_HOST_DEVICE int rpi_quant_whole_octets(const rpi_device_call *call, int lanes) {
    uint64_t row = (uint64_t)lanes * RPI_OCTET, octets = call->bucket / row;
    if (call->stochastic || call->bucket % row) return 0;
    if (octets != 2 && octets != RPI_QUANT_HELD) return 0;
    if (!rpi_is_aligned(call->x, 16) || !rpi_is_aligned(call->residual, 16)) return 0;
    return rpi_is_aligned(call->encoded, rpi_device_alignment(call)) ? (int)octets : 0;
}

/* ---- reading ---- */

RPI_HOST_DEVICE void rpi_quant_whole_load(int type, const void *x, uint64_t begin, int octets,
                                          int lane, int lanes, rpi_quant_raw *raw) {
    RPI_UNROLL
    for (int j = 0; j < octets; j++) {
        uint64_t i = begin + rpi_quant_held_at(j, lane, lanes);
#ifdef __CUDA_ARCH__
        rpi_raw_load_once(type, x, i, &raw->y[j]);
#else
        rpi_raw_load(type, x, i, RPI_OCTET, &raw->y[j]);
#endif
    }
}

/* The lesser; NaN where one of them is. */
RPI_HOST_DEVICE float rpi_quant_least(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float least;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
    return least;
#else
    return b != b || b < a ? b : a;
#endif
}

/* max passes over what is NaN, of which the least tells. */
RPI_HOST_DEVICE rpi_quant_range rpi_quant_whole_range(int octets, const rpi_quant_held *held) {
    rpi_quant_range range;
    range.min = range.max = held->y[0].value[0];
    RPI_UNROLL
    for (int j = 0; j < octets; j++) {
        RPI_UNROLL
        for (int k = 0; k < RPI_OCTET; k++) {
            float y = held->y[j].value[k];
            range.min = rpi_quant_least(range.min, y);
            range.max = fmaxf(range.max, y);
        }
    }
    range.has_nan = range.min != range.min;
    return range;
}

/* The lane's elements, and their range. */
RPI_HOST_DEVICE rpi_quant_range rpi_quant_whole_take(const rpi_device_call *call, int type,
                                                     int feedback, int octets, uint64_t bucket,
                                                     int lane, int lanes,
                                                     rpi_quant_held *held) {
    uint64_t begin = bucket * ((uint64_t)octets * (uint64_t)lanes * RPI_OCTET);
    rpi_quant_raw raw, left;
    rpi_octet residual;
    rpi_quant_whole_load(type, call->x, begin, octets, lane, lanes, &raw);
    if (feedback)
        rpi_quant_whole_load(RPI_DEVICE_F32, call->residual, begin, octets, lane, lanes, &left);
    RPI_UNROLL
    for (int j = 0; j < octets; j++) {
        rpi_raw_widen(type, &raw.y[j], &held->y[j]);
        if (!feedback) continue;
        rpi_raw_widen(RPI_DEVICE_F32, &left.y[j], &residual);
        RPI_UNROLL
        for (int k = 0; k < RPI_OCTET; k++)
            held->y[j].value[k] += residual.value[k]; /* which NaN comes of it is nothing */
    }
    return rpi_quant_whole_range(octets, held);
}

/* ---- levels ---- */

/* 2^23 + the floor of a number from 0 to 256: the floor is in the last bits. */
RPI_HOST_DEVICE float rpi_quant_floor_above(float level) {
#ifdef __CUDA_ARCH__
    return __fadd_rz(level, 0x1p23f);
#else
    return 0x1p23f + (float)(uint32_t)level;
#endif
}

/* What a level is multiplied by to make room for another one. */
RPI_HOST_DEVICE uint32_t rpi_quant_place(int bits) {
    uint32_t place = 1u << bits;
#ifdef __CUDA_ARCH__
    asm("" : "+r"(place)); /* no shift and addition in place of one instruction */
#endif
    return place;
}

/* Four levels, packed; y becomes what they leave. No level is outside of its bits: a quotient
 * is at most top (1 + 2^-23), as the unit is the range by top, rounded once, and is not
 * subnormal. */
RPI_HOST_DEVICE uint32_t rpi_quant_four(int feedback, uint32_t place, rpi_quant_scale scale,
                                        rpi_divisor unit, float *y) {
    const uint32_t above = 0x4b000000u; /* of 2^23 */
    uint32_t packed = 0;
    RPI_UNROLL
    for (int k = 3; k >= 0; k--) {
        float level = rpi_quant_floor_above(rpi_quotient(y[k] - scale.min, unit) + 0.5f);
        packed = packed * place + rpi_float_bits(level);
        if (feedback) y[k] -= scale.min + scale.unit * (level - 0x1p23f);
    }
    return packed - above * (1u + place * (1u + place * (1u + place)));
}

RPI_HOST_DEVICE void rpi_quant_whole_store(uint8_t *out, int bits, uint32_t low,
                                           uint32_t high) {
#ifdef __CUDA_ARCH__
    if (bits == 4) {
        *(uint32_t *)out = low | high << 16;
        return;
    }
    if (bits == 8) {
        *(uint2 *)out = make_uint2(low, high);
        return;
    }
#endif
    rpi_bytes_store(out, low | (uint64_t)high << (4 * bits), bits);
}

RPI_HOST_DEVICE void rpi_quant_whole_head(uint8_t *out, rpi_quant_scale scale) {
#ifdef __CUDA_ARCH__
    ((float *)out)[0] = scale.min;
    ((float *)out)[1] = scale.unit;
#else
    rpi_float_store(out, scale.min);
    rpi_float_store(out + 4, scale.unit);
#endif
}

RPI_HOST_DEVICE void rpi_quant_whole_leave(float *residual, const rpi_octet *left) {
#ifdef __CUDA_ARCH__
    const float *v = left->value; /* the compiler makes single words of plain assignments */
    __stcs((float4 *)residual, make_float4(v[0], v[1], v[2], v[3]));
    __stcs((float4 *)residual + 1, make_float4(v[4], v[5], v[6], v[7]));
#else
    rpi_octet_store(RPI_DEVICE_F32, residual, 0, RPI_OCTET, left);
#endif
}

/* bits: the call's. unit: of scale.unit, by which is multiplied. */
RPI_HOST_DEVICE void rpi_quant_whole_put(const rpi_device_call *call, int feedback, int octets,
                                         int bits, uint64_t bucket, rpi_quant_scale scale,
                                         rpi_divisor unit, int lane, int lanes,
                                         rpi_quant_held *held) {
    uint64_t row = (uint64_t)lanes * RPI_OCTET, begin = bucket * ((uint64_t)octets * row);
    uint32_t place = rpi_quant_place(bits);
    uint8_t *out =
        call->encoded + bucket * (RPI_QUANT_HEAD + (uint64_t)octets * (uint64_t)(lanes * bits));
    if (lane == 0) rpi_quant_whole_head(out, scale);
    out += RPI_QUANT_HEAD + lane * bits;
    RPI_UNROLL
    for (int j = 0; j < octets; j++) {
        float *y = held->y[j].value;
        uint32_t low = rpi_quant_four(feedback, place, scale, unit, y);
        uint32_t high = rpi_quant_four(feedback, place, scale, unit, y + 4);
        rpi_quant_whole_store(out + j * lanes * bits, bits, low, high);
        if (feedback)
            rpi_quant_whole_leave(call->residual + begin + rpi_quant_held_at(j, lane, lanes),
                                  &held->y[j]);
    }
}

#endif
