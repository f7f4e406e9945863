/* sign as 16 threads do it that work on one bucket together, since the sum of the magnitudes is
 * defined by 16 lanes: tile after tile each lane sums its own, then they are folded in halves,
 * by shuffles on a GPU (sign.cu), by rpi_sign_fold() on the CPU. */
#ifndef RPI_CUDA_SIGN_LANES_H
#define RPI_CUDA_SIGN_LANES_H

#include "cuda/octet.h"

enum { RPI_SIGN_HEAD = 4, RPI_SIGN_GROUP = 16, RPI_SIGN_TILE = 1024 };

RPI_HOST_DEVICE uint64_t rpi_sign_bucket_at(const rpi_device_call *call, uint64_t bucket) {
    return bucket * (RPI_SIGN_HEAD + (call->bucket + 7) / 8);
}

RPI_HOST_DEVICE float rpi_sign_magnitude(float y) {
    return rpi_float_of_bits(rpi_float_bits(y) & 0x7fffffffu);
}

/* Of one lane in the tile that starts at element `begin` of the bucket. */
RPI_HOST_DEVICE float rpi_sign_lane_sum(const rpi_device_call *call, int type, int feedback,
                                        uint64_t bucket, uint64_t begin, int lane) {
    uint64_t count = rpi_device_bucket_count(call, bucket), end = begin + RPI_SIGN_TILE;
    uint64_t base = bucket * call->bucket;
    float sum = 0;
    for (uint64_t i = begin + (uint64_t)lane; i < rpi_device_least(count, end);
         i += RPI_SIGN_GROUP) {
        float y = rpi_element_get(type, call->x, base + i);
        if (feedback)
            y = rpi_float_add(y, rpi_element_get(RPI_DEVICE_F32, call->residual, base + i));
        sum += rpi_sign_magnitude(y);
    }
    return sum;
}

/* NaN: the bucket is damaged. */
RPI_HOST_DEVICE float rpi_sign_mean(double sum, uint64_t count) {
    if (sum - sum != 0) return rpi_float_of_bits(RPI_NAN_BITS); /* no number, or infinite */
    return (float)(sum / (double)count);
}

RPI_HOST_DEVICE void rpi_sign_lane_encode(const rpi_device_call *call, int type, int feedback,
                                          uint64_t bucket, float mean, int lane) {
    uint64_t begin = bucket * call->bucket, count = rpi_device_bucket_count(call, bucket);
    uint8_t *out = call->encoded + rpi_sign_bucket_at(call, bucket);
    int damaged = mean != mean;
    if (lane == 0) rpi_float_store(out, mean);
    out += RPI_SIGN_HEAD;
    for (uint64_t i = (uint64_t)lane * RPI_OCTET; i < count; i += RPI_SIGN_GROUP * RPI_OCTET) {
        int n = (int)rpi_device_least(count - i, RPI_OCTET);
        unsigned byte = 0;
        rpi_octet y;
        rpi_octet_feed(type, call->x, feedback ? call->residual : NULL, begin + i, n, &y);
        for (int k = 0; k < RPI_OCTET; k++) {
            int negative = !damaged && k < n && y.value[k] < 0;
            byte |= (unsigned)negative << k;
            y.value[k] = damaged ? 0.0f : y.value[k] - (negative ? -mean : mean);
        }
        out[i / RPI_OCTET] = (uint8_t)byte;
        if (feedback) rpi_octet_store(RPI_DEVICE_F32, call->residual, begin + i, n, &y);
    }
}

RPI_HOST_DEVICE void rpi_sign_lane_decode(const rpi_device_call *call, int type, int adds,
                                          uint64_t bucket, int lane) {
    const uint8_t *in = call->encoded + rpi_sign_bucket_at(call, bucket);
    uint64_t begin = bucket * call->bucket, count = rpi_device_bucket_count(call, bucket);
    float mean = rpi_float_load(in);
    int damaged = !rpi_float_is_finite(mean);
    if (damaged) mean = rpi_float_of_bits(RPI_NAN_BITS);
    in += RPI_SIGN_HEAD;
    for (uint64_t i = (uint64_t)lane * RPI_OCTET; i < count; i += RPI_SIGN_GROUP * RPI_OCTET) {
        int n = (int)rpi_device_least(count - i, RPI_OCTET);
        unsigned byte = in[i / RPI_OCTET];
        rpi_octet y;
        for (int k = 0; k < RPI_OCTET; k++)
            y.value[k] = !damaged && (byte >> k & 1u) ? -mean : mean;
        rpi_octet_deliver(call, type, adds, begin + i, n, &y);
    }
}

#endif
