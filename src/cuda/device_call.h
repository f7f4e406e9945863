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
    int wire_type; /* as what RPI_DEVICE_CONVERT's elements, or randk's values, travel */
    int bits,
        stochastic;  /* of RPI_DEVICE_QUANT; bits of randk's values that are levels, or 0 */
    uint32_t kept;   /* of each whole bucket, by RPI_DEVICE_RANDK */
    uint64_t bucket; /* elements; 0 for RPI_DEVICE_CONVERT */
    uint64_t count;  /* elements, at least 1 */
    uint64_t first;  /* index in its tensor of the first one */
    rpi_quant_stream stream; /* where `stochastic`, and of RPI_DEVICE_RANDK */
    const void *x;           /* encode: count elements of `type` */
    float *residual;         /* encode: NULL, or count floats of error feedback */
    uint8_t *encoded;        /* written by encode, read by decode; any address */
    void *y;                 /* decode: count elements of `type`, or floats of a sum */
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

#endif
