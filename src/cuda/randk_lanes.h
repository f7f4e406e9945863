/* randk as `lanes` threads do it that work on one bucket together. A bucket of n elements is
 * cut into as many runs as elements are kept; one element of each run, at a place that a block
 * of Philox says, is. Octets of elements, or of values, lane, lane + lanes, ... are those of a
 * lane.
 *
 * Encoding: look (is all finite? the range of the values), join, values, then, when all lanes
 * have read the residual, settle. Decoding: look (are all values finite?), join, deliver. */
#ifndef RPI_CUDA_RANDK_LANES_H
#define RPI_CUDA_RANDK_LANES_H

#include "cuda/kept_lanes.h"

typedef struct rpi_randk_bucket {
    uint64_t begin;       /* its first element */
    uint32_t count, kept; /* elements; of these */
    uint64_t block;       /* of Philox, for its first places */
    uint64_t at;          /* its first byte */
} rpi_randk_bucket;

RPI_HOST_DEVICE rpi_randk_bucket rpi_randk_bucket_of(const rpi_device_call *call, uint64_t i) {
    rpi_randk_bucket b;
    b.begin = i * call->bucket;
    b.count = (uint32_t)rpi_device_bucket_count(call, i);
    b.kept = rpi_randk_kept(call->kept, call->bucket, b.count);
    b.block = rpi_randk_block(call->kept, (call->first + b.begin) / call->bucket);
    b.at = i * rpi_kept_bytes(call, call->kept);
    return b;
}

/* ---- places ---- */

RPI_HOST_DEVICE uint32_t rpi_randk_run_at(const rpi_randk_bucket *b, uint32_t j) {
    return rpi_randk_run(j, b->count, b->kept);
}

/* The element of the bucket that run j keeps. */
RPI_HOST_DEVICE uint32_t rpi_randk_place_of(const rpi_device_call *call,
                                            const rpi_randk_bucket *b, uint32_t j) {
    rpi_philox_block drawn =
        rpi_quant_random_block(&call->stream, b->block + j / RPI_RANDK_WORDS);
    return rpi_randk_place(rpi_randk_run_at(b, j), rpi_randk_run_at(b, j + 1),
                           drawn.word[j % RPI_RANDK_WORDS]);
}

/* Which run element i is in: the last that does not begin behind it. */
RPI_HOST_DEVICE uint32_t rpi_randk_run_of(const rpi_randk_bucket *b, uint32_t i) {
    uint32_t j = (uint32_t)((uint64_t)i * b->kept / b->count);
    while (j + 1 < b->kept && rpi_randk_run_at(b, j + 1) <= i) j++;
    return j;
}

/* Goes along elements of a bucket, and knows which of them are kept. */
typedef struct rpi_randk_walk {
    uint32_t run, end, place; /* of the run; where it ends; what it keeps */
} rpi_randk_walk;

RPI_HOST_DEVICE void rpi_randk_enter(const rpi_device_call *call, const rpi_randk_bucket *b,
                                     rpi_randk_walk *walk) {
    walk->end = rpi_randk_run_at(b, walk->run + 1);
    walk->place = rpi_randk_place_of(call, b, walk->run);
}

RPI_HOST_DEVICE rpi_randk_walk rpi_randk_walk_from(const rpi_device_call *call,
                                                   const rpi_randk_bucket *b, uint32_t i) {
    rpi_randk_walk walk;
    walk.run = rpi_randk_run_of(b, i);
    rpi_randk_enter(call, b, &walk);
    return walk;
}

/* Elements are asked for one after the other. */
RPI_HOST_DEVICE int rpi_randk_keeps(const rpi_device_call *call, const rpi_randk_bucket *b,
                                    rpi_randk_walk *walk, uint32_t i) {
    if (i >= walk->end) {
        walk->run++;
        rpi_randk_enter(call, b, walk);
    }
    return i == walk->place;
}

/* ---- encoding ---- */

RPI_HOST_DEVICE int rpi_octet_is_finite(const rpi_octet *y, int n) {
    int finite = 1;
    for (int k = 0; k < RPI_OCTET; k++) finite &= k >= n || rpi_float_is_finite(y->value[k]);
    return finite;
}

/* n values from number j on. */
RPI_HOST_DEVICE void rpi_randk_gather(const rpi_device_call *call, int type, int feedback,
                                      const rpi_randk_bucket *b, uint32_t j, int n,
                                      rpi_octet *y) {
    for (int k = 0; k < RPI_OCTET; k++) {
        y->value[k] = 0;
        if (k >= n) continue;
        uint64_t i = b->begin + rpi_randk_place_of(call, b, j + (uint32_t)k);
        y->value[k] = rpi_element_get(type, call->x, i);
        if (feedback) y->value[k] = rpi_float_add(y->value[k], call->residual[i]);
    }
}

/* The range of the values; has_nan: an element of the bucket is not finite. */
RPI_HOST_DEVICE rpi_quant_range rpi_randk_lane_look(const rpi_device_call *call, int type,
                                                    int feedback, uint64_t bucket, int lane,
                                                    int lanes) {
    rpi_randk_bucket b = rpi_randk_bucket_of(call, bucket);
    rpi_quant_range range = rpi_quant_no_range();
    rpi_octet y;
    for (uint32_t i = (uint32_t)lane * RPI_OCTET; i < b.count;
         i += (uint32_t)lanes * RPI_OCTET) {
        int n = (int)rpi_device_least(b.count - i, RPI_OCTET);
        rpi_octet_feed(type, call->x, feedback ? call->residual : NULL, b.begin + i, n, &y);
        range.has_nan |= !rpi_octet_is_finite(&y, n);
    }
    for (uint32_t j = (uint32_t)lane * RPI_OCTET; call->bits && j < b.kept;
         j += (uint32_t)lanes * RPI_OCTET) {
        int n = (int)rpi_device_least(b.kept - j, RPI_OCTET);
        rpi_randk_gather(call, type, feedback, &b, j, n, &y);
        for (int k = 0; k < n; k++) rpi_quant_widen(&range, y.value[k]);
    }
    return range;
}

RPI_HOST_DEVICE void rpi_randk_lane_values(const rpi_device_call *call, int type, int feedback,
                                           uint64_t bucket, const rpi_quant_range *range,
                                           int lane, int lanes) {
    rpi_randk_bucket b = rpi_randk_bucket_of(call, bucket);
    rpi_kept_way way = rpi_kept_way_of(call, b.kept, range);
    uint8_t *out = call->encoded + b.at;
    if (lane == 0) rpi_kept_put_scale(call, &way, b.kept, out);
    for (uint32_t j = (uint32_t)lane * RPI_OCTET; j < b.kept;
         j += (uint32_t)lanes * RPI_OCTET) {
        int n = (int)rpi_device_least(b.kept - j, RPI_OCTET);
        rpi_octet y;
        rpi_randk_gather(call, type, feedback, &b, j, n, &y);
        rpi_kept_put_octet(call, &way, j, n, &y, out);
    }
}

/* What is left out waits in the residual. */
RPI_HOST_DEVICE void rpi_randk_lane_settle(const rpi_device_call *call, int type,
                                           uint64_t bucket, const rpi_quant_range *range,
                                           int lane, int lanes) {
    rpi_randk_bucket b = rpi_randk_bucket_of(call, bucket);
    rpi_kept_way way = rpi_kept_way_of(call, b.kept, range);
    for (uint32_t i = (uint32_t)lane * RPI_OCTET; i < b.count;
         i += (uint32_t)lanes * RPI_OCTET) {
        int n = (int)rpi_device_least(b.count - i, RPI_OCTET);
        rpi_randk_walk walk = rpi_randk_walk_from(call, &b, i);
        rpi_octet y;
        rpi_octet_feed(type, call->x, call->residual, b.begin + i, n, &y);
        for (int k = 0; k < n; k++) {
            if (rpi_randk_keeps(call, &b, &walk, i + (uint32_t)k))
                y.value[k] -= rpi_kept_travelled(call, &way, y.value[k]);
            if (way.damaged) y.value[k] = 0;
        }
        rpi_octet_store(RPI_DEVICE_F32, call->residual, b.begin + i, n, &y);
    }
}

/* ---- decoding ---- */

/* Is a value of this lane not finite? */
RPI_HOST_DEVICE int rpi_randk_lane_damage(const rpi_device_call *call, uint64_t bucket,
                                          int lane, int lanes) {
    rpi_randk_bucket b = rpi_randk_bucket_of(call, bucket);
    const uint8_t *in = call->encoded + b.at;
    rpi_quant_scale scale = rpi_kept_scale(call, b.kept, in);
    int damaged = 0;
    for (uint32_t j = (uint32_t)lane; j < b.kept; j += (uint32_t)lanes)
        damaged |= !rpi_float_is_finite(rpi_kept_value(call, scale, in, j));
    return damaged;
}

RPI_HOST_DEVICE void rpi_randk_lane_decode(const rpi_device_call *call, int type, int adds,
                                           uint64_t bucket, int damaged, int lane, int lanes) {
    rpi_randk_bucket b = rpi_randk_bucket_of(call, bucket);
    const uint8_t *in = call->encoded + b.at;
    rpi_quant_scale scale = rpi_kept_scale(call, b.kept, in);
    for (uint32_t i = (uint32_t)lane * RPI_OCTET; i < b.count;
         i += (uint32_t)lanes * RPI_OCTET) {
        int n = (int)rpi_device_least(b.count - i, RPI_OCTET);
        rpi_randk_walk walk = rpi_randk_walk_from(call, &b, i);
        for (int k = 0; k < n; k++) {
            uint64_t at = b.begin + i + (uint64_t)k;
            int keeps = rpi_randk_keeps(call, &b, &walk, i + (uint32_t)k);
            float *sum = (float *)call->y + at, value = 0;
            if (keeps) value = rpi_kept_value(call, scale, in, walk.run);
            if (damaged) value = rpi_float_of_bits(RPI_NAN_BITS);
            if (!adds)
                rpi_element_put(type, call->y, at, value);
            else if (keeps || damaged)
                *sum = rpi_float_add(*sum, value);
        }
    }
}

#endif
