/* What the C library hands to libredpoll_cuda.so, and what that hands to its kernels: one
 * encoding or decoding of elements that lie in memory of a device. Plain data, the same in C
 * and in CUDA C++. */
#ifndef RPI_CUDA_DEVICE_CALL_H
#define RPI_CUDA_DEVICE_CALL_H

#include "codec/quant_arithmetic.h"

typedef enum rpi_device_kind {
    RPI_DEVICE_CONVERT, /* fp32, bf16, fp16: every element alone */
    RPI_DEVICE_QUANT,   /* q1 to q8 */
    RPI_DEVICE_SIGN,
    RPI_DEVICE_RANDK,
    RPI_DEVICE_TOPK,   /* bytes of this and the next vary: as many as the elements say */
    RPI_DEVICE_VARIED, /* v1 to v8 */
    RPI_DEVICE_COPY,   /* `count` bytes as they are: x to encoded, or encoded to y */
} rpi_device_kind;

/* The types of elements that kernels read and write. */
typedef enum rpi_device_type {
    RPI_DEVICE_F32,
    RPI_DEVICE_F16,
    RPI_DEVICE_BF16
} rpi_device_type;

/* Every pointer is one that kernels can follow: device memory, or pinned memory of the host. */
typedef struct rpi_device_call {
    int kind, type;
    int wire_type;        /* as what RPI_DEVICE_CONVERT's elements, or kept values, travel */
    int bits, stochastic; /* of RPI_DEVICE_QUANT; bits of kept values that are levels, or 0 */
    uint32_t kept; /* of each whole bucket by RPI_DEVICE_RANDK, at most by RPI_DEVICE_TOPK */
    uint32_t quarters; /* of RPI_DEVICE_VARIED */
    int divisor;       /* of divide() alone, of a sum of so many; not 0 */
    float factor; /* of a decoding that adds: a power of two by which the sums are multiplied;
                   * 0: they are not */
    int behind; /* of one with x: the values decoded stand before those of x, of which NaN tells
                 */
    uint64_t bucket;         /* elements; 0 for RPI_DEVICE_CONVERT */
    uint64_t count;          /* elements; 0: only the kernel is loaded */
    uint64_t first;          /* index in its tensor of the first one */
    rpi_quant_stream stream; /* where `stochastic`, and of RPI_DEVICE_RANDK */
    const void *x;    /* encode: count elements of `type`; decode that adds: NULL, or, where
                       * rpi_device_begins_sums(), floats in place of those of y */
    float *residual;  /* encode: NULL, or count floats of error feedback */
    uint8_t *encoded; /* written by encode, read by decode; any address */
    void *y;          /* decode: count elements of `type`, or floats of a sum */
    /* Where the bytes vary, else NULL: */
    void *scratch;           /* encode: memory of the device, as scratch_bytes() of
                              * cuda_library.h says; the kernels' until they are done */
    uint64_t *bytes;         /* encode: where they say how many bytes it became */
    const uint64_t *offsets; /* decode: where each bucket, of RPI_DEVICE_VARIED each run,
                              * begins, as rpi_device_offsets() says */
} rpi_device_call;

RPI_HOST_DEVICE uint64_t rpi_device_least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* The elements of bucket number i. */
RPI_HOST_DEVICE uint64_t rpi_device_bucket_count(const rpi_device_call *call, uint64_t i) {
    return rpi_device_least(call->count - i * call->bucket, call->bucket);
}

RPI_HOST_DEVICE uint64_t rpi_device_buckets(const rpi_device_call *call) {
    return (call->count + call->bucket - 1) / call->bucket;
}

/* A decoding that adds touches every element, so that it can also begin sums and end them. */
RPI_HOST_DEVICE int rpi_device_begins_sums(const rpi_device_call *call) {
    return call->kind == RPI_DEVICE_CONVERT || call->kind == RPI_DEVICE_QUANT ||
           call->kind == RPI_DEVICE_SIGN;
}

/* What a decoding adds to. */
RPI_HOST_DEVICE const void *rpi_device_sums_from(const rpi_device_call *call) {
    return call->x ? call->x : call->y;
}

/* Encodings that begin elsewhere are written and read byte by byte. */
RPI_HOST_DEVICE uint64_t rpi_device_alignment(const rpi_device_call *call) {
    if (call->kind == RPI_DEVICE_CONVERT || call->kind == RPI_DEVICE_COPY) return 16;
    return call->bits == 8 ? 8 : 4;
}

/* ---- encoding to bytes that vary ----
 *
 * scratch: [buckets] lengths | [buckets] offsets | [buckets] slots of the most that a bucket
 * takes. Each bucket is encoded into its slot, the offsets are the sums of the lengths before,
 * and slots are gathered into `encoded`. */

RPI_HOST_DEVICE uint64_t *rpi_device_lengths(const rpi_device_call *call) {
    return (uint64_t *)call->scratch;
}

RPI_HOST_DEVICE uint64_t *rpi_device_sums(const rpi_device_call *call) {
    return rpi_device_lengths(call) + rpi_device_buckets(call);
}

RPI_HOST_DEVICE uint8_t *rpi_device_slot(const rpi_device_call *call, uint64_t bucket,
                                         uint64_t most) {
    return (uint8_t *)(rpi_device_sums(call) + rpi_device_buckets(call)) + bucket * most;
}

/* The bytes of that memory. */
RPI_HOST_DEVICE uint64_t rpi_device_slots_end(const rpi_device_call *call, uint64_t most) {
    return rpi_device_buckets(call) * (2 * sizeof(uint64_t) + most);
}

/* A lane's part of a bucket that is gathered; `most`: of a slot. */
RPI_HOST_DEVICE void rpi_device_lane_gather(const rpi_device_call *call, uint64_t bucket,
                                            uint64_t most, int lane, int lanes) {
    uint64_t bytes = rpi_device_lengths(call)[bucket], at = rpi_device_sums(call)[bucket];
    const uint8_t *slot = rpi_device_slot(call, bucket, most);
    for (uint64_t i = (uint64_t)lane; i < bytes; i += (uint64_t)lanes)
        call->encoded[at + i] = slot[i];
    if (lane == 0 && bucket + 1 == rpi_device_buckets(call)) *call->bytes = at + bytes;
}

#endif
