/* q1 to q8 as `lanes` threads do them that work on one bucket together: octets lane, lane +
 * lanes, ... of the bucket are those of a lane. Encoding has two halves, between which the
 * lanes' ranges are joined; a GPU does that by shuffles (quant.cu), a test on the CPU by a
 * loop. `type` and the flags are arguments, so that kernels have them as constants. */
#ifndef RPI_CUDA_QUANT_LANES_H
#define RPI_CUDA_QUANT_LANES_H

#include "cuda/octet.h"

enum { RPI_QUANT_HEAD = 8 }; /* bytes: the two floats of a bucket's scale */

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

/* The levels of y, packed; y becomes what they leave. */
RPI_HOST_DEVICE uint64_t rpi_quant_octet(const rpi_device_call *call, int bits, int stochastic,
                                         uint64_t element, int n, rpi_quant_scale scale,
                                         rpi_octet *y) {
    float top = (float)((1 << bits) - 1);
    uint64_t levels = 0;
    rpi_philox_block drawn[2]; /* an octet of a bucket may lie in two blocks of numbers */
    if (stochastic) {
        drawn[0] = drawn[1] = rpi_quant_random_block(&call->stream, element / RPI_OCTET);
        if (element % RPI_OCTET)
            drawn[1] = rpi_quant_random_block(&call->stream, element / RPI_OCTET + 1);
    }
    for (int k = 0; k < RPI_OCTET; k++) {
        float r = 0.5f;
        if (stochastic) {
            uint64_t e = element + (uint64_t)k;
            r = rpi_quant_dither(
                rpi_quant_random_of(&drawn[e / RPI_OCTET != element / RPI_OCTET], e));
        }
        uint32_t level = k < n ? rpi_quant_level(y->value[k], scale, r, top) : 0;
        levels |= (uint64_t)level << (bits * k);
        y->value[k] -= rpi_quant_value(level, scale);
    }
    return levels;
}

/* Where a bucket has no levels, all of it is `value`; or it is damaged, and loses its residual.
 */
RPI_HOST_DEVICE void rpi_quant_flat_octet(float value, rpi_octet *y) {
    for (int k = 0; k < RPI_OCTET; k++)
        y->value[k] = value != value ? 0.0f : y->value[k] - value;
}

RPI_HOST_DEVICE void rpi_quant_lane_encode(const rpi_device_call *call, int type, int feedback,
                                           int stochastic, uint64_t bucket,
                                           rpi_quant_range range, int lane, int lanes) {
    rpi_quant_scale scale = rpi_quant_scale_of(&range, call->bits);
    uint64_t begin = bucket * call->bucket, count = rpi_device_bucket_count(call, bucket);
    uint8_t *out = call->encoded + rpi_quant_bucket_at(call, bucket);
    if (lane == 0) {
        rpi_float_store(out, scale.min);
        rpi_float_store(out + 4, scale.unit);
    }
    out += RPI_QUANT_HEAD;
    for (uint64_t i = (uint64_t)lane * RPI_OCTET; i < count; i += (uint64_t)lanes * RPI_OCTET) {
        int n = (int)rpi_device_least(count - i, RPI_OCTET);
        uint64_t levels = 0;
        rpi_octet y;
        rpi_octet_feed(type, call->x, feedback ? call->residual : NULL, begin + i, n, &y);
        if (scale.unit > 0)
            levels = rpi_quant_octet(call, call->bits, stochastic, call->first + begin + i, n,
                                     scale, &y);
        else
            rpi_quant_flat_octet(scale.min, &y);
        rpi_bytes_store(out + i / RPI_OCTET * (uint64_t)call->bits, levels,
                        rpi_levels_bytes(n, call->bits));
        if (feedback) rpi_octet_store(RPI_DEVICE_F32, call->residual, begin + i, n, &y);
    }
}

RPI_HOST_DEVICE void rpi_quant_lane_decode(const rpi_device_call *call, int type, int adds,
                                           uint64_t bucket, int lane, int lanes) {
    const uint8_t *in = call->encoded + rpi_quant_bucket_at(call, bucket);
    uint64_t begin = bucket * call->bucket, count = rpi_device_bucket_count(call, bucket);
    uint32_t mask = (1u << call->bits) - 1;
    rpi_quant_scale scale;
    scale.min = rpi_float_load(in);
    scale.unit = rpi_float_load(in + 4);
    scale = rpi_quant_sound(scale);
    in += RPI_QUANT_HEAD;
    for (uint64_t i = (uint64_t)lane * RPI_OCTET; i < count; i += (uint64_t)lanes * RPI_OCTET) {
        int n = (int)rpi_device_least(count - i, RPI_OCTET);
        uint64_t levels = rpi_bytes_load(in + i / RPI_OCTET * (uint64_t)call->bits,
                                         rpi_levels_bytes(n, call->bits));
        rpi_octet y;
        for (int k = 0; k < RPI_OCTET; k++, levels >>= call->bits)
            y.value[k] = rpi_quant_value((uint32_t)levels & mask, scale);
        rpi_octet_deliver(type, adds, call->y, begin + i, n, &y);
    }
}

#endif
