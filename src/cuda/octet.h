/* Eight elements of an array and eight packed levels at a time: the largest pieces of any
 * bucket whose levels are whole bytes at every number of bits. Where they lie well, a GPU reads
 * and writes them at once; elsewhere, and on the CPU, one by one. */
#ifndef RPI_CUDA_OCTET_H
#define RPI_CUDA_OCTET_H

#include "codec/convert_arithmetic.h"
#include "cuda/device_call.h"

enum { RPI_OCTET = 8 };

/* In front of a loop over what lies in registers, which have no addresses. */
#ifdef __CUDA_ARCH__
#    define RPI_UNROLL _Pragma("unroll")
#else
#    define RPI_UNROLL
#endif

typedef struct rpi_octet {
    float value[RPI_OCTET];
} rpi_octet;

RPI_HOST_DEVICE int rpi_is_aligned(const void *at, uint64_t bytes) {
    return ((uintptr_t)at & (bytes - 1)) == 0;
}

/* ---- at most 8 bytes as a number, at any address; the lowest comes first ---- */

RPI_HOST_DEVICE void rpi_bytes_store(uint8_t *out, uint64_t number, int bytes) {
#ifdef __CUDA_ARCH__
    if (bytes == 8 && rpi_is_aligned(out, 8)) {
        *(uint64_t *)out = number;
        return;
    }
    if (bytes == 4 && rpi_is_aligned(out, 4)) {
        *(uint32_t *)out = (uint32_t)number;
        return;
    }
    if (bytes == 2 && rpi_is_aligned(out, 2)) {
        *(uint16_t *)out = (uint16_t)number;
        return;
    }
#endif
    for (int k = 0; k < bytes; k++) out[k] = (uint8_t)(number >> (8 * k));
}

RPI_HOST_DEVICE uint64_t rpi_bytes_load(const uint8_t *in, int bytes) {
#ifdef __CUDA_ARCH__
    if (bytes == 8 && rpi_is_aligned(in, 8)) return *(const uint64_t *)in;
    if (bytes == 4 && rpi_is_aligned(in, 4)) return *(const uint32_t *)in;
    if (bytes == 2 && rpi_is_aligned(in, 2)) return *(const uint16_t *)in;
#endif
    uint64_t number = 0;
    for (int k = 0; k < bytes; k++) number |= (uint64_t)in[k] << (8 * k);
    return number;
}

RPI_HOST_DEVICE void rpi_float_store(uint8_t *out, float value) {
    rpi_bytes_store(out, rpi_float_bits(value), 4);
}

RPI_HOST_DEVICE float rpi_float_load(const uint8_t *in) {
    return rpi_float_of_bits((uint32_t)rpi_bytes_load(in, 4));
}

/* The bytes of n levels of `bits` bits. */
RPI_HOST_DEVICE int rpi_levels_bytes(int n, int bits) {
    return (n * bits + 7) / 8;
}

/* ---- one element ---- */

RPI_HOST_DEVICE float rpi_element_of_bits(int type, uint32_t bits) {
    return type == RPI_DEVICE_F16 ? rpi_f16_to_f32((uint16_t)bits)
                                  : rpi_bf16_to_f32((uint16_t)bits);
}

RPI_HOST_DEVICE uint16_t rpi_element_to_bits(int type, float value) {
    return type == RPI_DEVICE_F16 ? rpi_narrow_f16(value) : rpi_narrow_bf16(value);
}

/* ---- an element of an array, which begins at any address ---- */

RPI_HOST_DEVICE int rpi_element_bytes(int type) {
    return type == RPI_DEVICE_F32 ? 4 : 2;
}

RPI_HOST_DEVICE float rpi_element_load(int type, const void *x, uint64_t i) {
    const uint8_t *at = (const uint8_t *)x + (uint64_t)rpi_element_bytes(type) * i;
    if (type == RPI_DEVICE_F32) return rpi_float_load(at);
    return rpi_element_of_bits(type, (uint32_t)rpi_bytes_load(at, 2));
}

RPI_HOST_DEVICE void rpi_element_store(int type, void *y, uint64_t i, float value) {
    uint8_t *at = (uint8_t *)y + (uint64_t)rpi_element_bytes(type) * i;
    if (type == RPI_DEVICE_F32)
        rpi_float_store(at, value);
    else
        rpi_bytes_store(at, rpi_element_to_bits(type, value), 2);
}

/* ---- the same of one that is aligned for its elements, as all but encodings are ---- */

RPI_HOST_DEVICE float rpi_element_get(int type, const void *x, uint64_t i) {
#ifdef __CUDA_ARCH__
    if (type == RPI_DEVICE_F32) return ((const float *)x)[i];
    return rpi_element_of_bits(type, ((const uint16_t *)x)[i]);
#else
    return rpi_element_load(type, x, i);
#endif
}

RPI_HOST_DEVICE void rpi_element_put(int type, void *y, uint64_t i, float value) {
#ifdef __CUDA_ARCH__
    if (type == RPI_DEVICE_F32)
        ((float *)y)[i] = value;
    else
        ((uint16_t *)y)[i] = rpi_element_to_bits(type, value);
#else
    rpi_element_store(type, y, i, value);
#endif
}

/* ---- n of 8 elements from element i on ---- */

/* As they lie in memory: two of 16 bits a word, or one of 32. Widening waits for what is
 * loaded; loads of several octets are put in front of it, so that all are on their way. */
typedef struct rpi_raw_octet {
    uint32_t word[RPI_OCTET];
} rpi_raw_octet;

RPI_HOST_DEVICE uint32_t rpi_raw_get(int type, const void *x, uint64_t i) {
#ifdef __CUDA_ARCH__
    return type == RPI_DEVICE_F32 ? ((const uint32_t *)x)[i] : ((const uint16_t *)x)[i];
#else
    int bytes = rpi_element_bytes(type);
    return (uint32_t)rpi_bytes_load((const uint8_t *)x + (uint64_t)bytes * i, bytes);
#endif
}

RPI_HOST_DEVICE void rpi_raw_widen(int type, const rpi_raw_octet *raw, rpi_octet *octet) {
    RPI_UNROLL
    for (int k = 0; k < RPI_OCTET; k++)
        octet->value[k] =
            type == RPI_DEVICE_F32
                ? rpi_float_of_bits(raw->word[k])
                : rpi_element_of_bits(type, raw->word[k / 2] >> (16 * (k & 1)) & 0xffffu);
}

#ifdef __CUDACC__
static __device__ inline void rpi_raw_load_whole(int type, const void *x, uint64_t i,
                                                 rpi_raw_octet *raw) {
    const uint4 *at = (const uint4 *)((const char *)x + rpi_element_bytes(type) * i);
    uint4 low = at[0];
    raw->word[0] = low.x, raw->word[1] = low.y, raw->word[2] = low.z, raw->word[3] = low.w;
    if (type != RPI_DEVICE_F32) return;
    uint4 high = at[1];
    raw->word[4] = high.x, raw->word[5] = high.y, raw->word[6] = high.z, raw->word[7] = high.w;
}

/* The same of what nobody reads again: it is the first that leaves the cache. */
static __device__ inline void rpi_raw_load_once(int type, const void *x, uint64_t i,
                                                rpi_raw_octet *raw) {
    const uint4 *at = (const uint4 *)((const char *)x + rpi_element_bytes(type) * i);
    uint4 low = __ldcs(at);
    raw->word[0] = low.x, raw->word[1] = low.y, raw->word[2] = low.z, raw->word[3] = low.w;
    if (type != RPI_DEVICE_F32) return;
    uint4 high = __ldcs(at + 1);
    raw->word[4] = high.x, raw->word[5] = high.y, raw->word[6] = high.z, raw->word[7] = high.w;
}

static __device__ inline void rpi_octet_load_whole(int type, const void *x, uint64_t i,
                                                   rpi_octet *octet) {
    rpi_raw_octet raw;
    rpi_raw_load_whole(type, x, i, &raw);
    rpi_raw_widen(type, &raw, octet);
}

static __device__ inline void rpi_octet_store_whole(int type, void *y, uint64_t i,
                                                    const rpi_octet *octet) {
    const float *v = octet->value;
    if (type == RPI_DEVICE_F32) {
        float4 *at = (float4 *)((float *)y + i);
        at[0] = make_float4(v[0], v[1], v[2], v[3]);
        at[1] = make_float4(v[4], v[5], v[6], v[7]);
        return;
    }
    uint32_t word[4];
    for (int k = 0; k < 4; k++)
        word[k] = rpi_element_to_bits(type, v[2 * k]) |
                  (uint32_t)rpi_element_to_bits(type, v[2 * k + 1]) << 16;
    *(uint4 *)((char *)y + 2 * i) = make_uint4(word[0], word[1], word[2], word[3]);
}
#endif

/* True: it lies well, and is whole. */
RPI_HOST_DEVICE int rpi_octet_is_whole(int type, const void *x, uint64_t i, int n) {
    const char *at = (const char *)x + (uint64_t)rpi_element_bytes(type) * i;
    return n == RPI_OCTET && rpi_is_aligned(at, 16);
}

/* 0 for what is not there. */
RPI_HOST_DEVICE void rpi_raw_load(int type, const void *x, uint64_t i, int n,
                                  rpi_raw_octet *raw) {
#ifdef __CUDA_ARCH__
    if (rpi_octet_is_whole(type, x, i, n)) {
        rpi_raw_load_whole(type, x, i, raw);
        return;
    }
#endif
    int words = rpi_element_bytes(type) / 2; /* of two elements */
    RPI_UNROLL
    for (int k = 0; k < RPI_OCTET; k++) raw->word[k] = 0;
    RPI_UNROLL
    for (int k = 0; k < RPI_OCTET; k++)
        if (k < n)
            raw->word[k * words / 2] |= rpi_raw_get(type, x, i + (uint64_t)k)
                                        << (words == 1 ? 16 * (k & 1) : 0);
}

RPI_HOST_DEVICE void rpi_octet_load(int type, const void *x, uint64_t i, int n,
                                    rpi_octet *octet) {
    rpi_raw_octet raw;
    rpi_raw_load(type, x, i, n, &raw);
    rpi_raw_widen(type, &raw, octet);
}

RPI_HOST_DEVICE void rpi_octet_store(int type, void *y, uint64_t i, int n,
                                     const rpi_octet *octet) {
#ifdef __CUDA_ARCH__
    if (rpi_octet_is_whole(type, y, i, n)) {
        rpi_octet_store_whole(type, y, i, octet);
        return;
    }
#endif
    for (int k = 0; k < RPI_OCTET; k++)
        if (k < n) rpi_element_put(type, y, i + (uint64_t)k, octet->value[k]);
}

/* Of an encoding: an array of elements at any address. */
RPI_HOST_DEVICE void rpi_octet_read(int type, const uint8_t *encoded, uint64_t i, int n,
                                    rpi_octet *octet) {
#ifdef __CUDA_ARCH__
    if (rpi_octet_is_whole(type, encoded, i, n)) {
        rpi_octet_load_whole(type, encoded, i, octet);
        return;
    }
#endif
    for (int k = 0; k < RPI_OCTET; k++)
        octet->value[k] = k < n ? rpi_element_load(type, encoded, i + (uint64_t)k) : 0.0f;
}

RPI_HOST_DEVICE void rpi_octet_write(int type, uint8_t *encoded, uint64_t i, int n,
                                     const rpi_octet *octet) {
#ifdef __CUDA_ARCH__
    if (rpi_octet_is_whole(type, encoded, i, n)) {
        rpi_octet_store_whole(type, encoded, i, octet);
        return;
    }
#endif
    for (int k = 0; k < RPI_OCTET; k++)
        if (k < n) rpi_element_store(type, encoded, i + (uint64_t)k, octet->value[k]);
}

/* x, or x + residual where there is one. */
RPI_HOST_DEVICE void rpi_octet_feed(int type, const void *x, const float *residual, uint64_t i,
                                    int n, rpi_octet *y) {
    rpi_octet held;
    rpi_octet_load(type, x, i, n, y);
    if (!residual) return;
    rpi_octet_load(RPI_DEVICE_F32, residual, i, n, &held);
    for (int k = 0; k < RPI_OCTET; k++) y->value[k] = rpi_float_add(y->value[k], held.value[k]);
}

/* ---- what decoding does with the values of n elements ---- */

/* What a decoding that adds makes of a sum, as a CPU has it. NaN stays what it is. */
RPI_HOST_DEVICE float rpi_sum_of(const rpi_device_call *call, float before, float value) {
#ifdef __CUDA_ARCH__
    float sum = before + value;
    if (sum != sum)
        return call->behind ? rpi_float_add(value, before) : rpi_float_add(before, value);
#else
    float sum = call->behind ? rpi_float_add(value, before) : rpi_float_add(before, value);
#endif
    return call->factor != 0 && sum == sum ? sum * call->factor : sum;
}

/* Into y of `type`; or added to floats. */
RPI_HOST_DEVICE void rpi_octet_deliver(const rpi_device_call *call, int type, int adds,
                                       uint64_t i, int n, rpi_octet *value) {
    if (!adds) {
        rpi_octet_store(type, call->y, i, n, value);
        return;
    }
    rpi_octet sum;
    rpi_octet_load(RPI_DEVICE_F32, rpi_device_sums_from(call), i, n, &sum);
    for (int k = 0; k < RPI_OCTET; k++)
        sum.value[k] = rpi_sum_of(call, sum.value[k], value->value[k]);
    rpi_octet_store(RPI_DEVICE_F32, call->y, i, n, &sum);
}

#endif
