/* v1 to v8: groups of 16 threads, a run of elements each, and all groups of a bucket together.
 *
 *   encode: range --join--> moments --fold--> price (all know all runs) -->
 *           plan --sum of bytes--> plan again where that is too much --sums before--> write
 *   decode: a group for each run, whose place is known
 *
 * Lane l of a group sums the moments of elements l, l + 16, ... of its run in order, as
 * docs/codecs.md says. Encodings lie in slots and are gathered, as those of topk. */
#ifndef RPI_CUDA_VARIED_LANES_H
#define RPI_CUDA_VARIED_LANES_H

#include "codec/varied_arithmetic.h"
#include "cuda/quant_lanes.h"

enum { RPI_VARIED_GROUP = 16 };

typedef struct rpi_varied_room {
    rpi_varied_run run[RPI_VARIED_RUNS_MAX];
    rpi_varied_way way[RPI_VARIED_RUNS_MAX];
    uint32_t at[RPI_VARIED_RUNS_MAX]; /* its first byte in the bucket's encoding */
} rpi_varied_room;

RPI_HOST_DEVICE uint32_t rpi_varied_runs(uint64_t count) {
    return (uint32_t)((count + RPI_VARIED_RUN - 1) / RPI_VARIED_RUN);
}

/* Elements of run r of a bucket of `count`. */
RPI_HOST_DEVICE uint32_t rpi_varied_run_count(uint64_t count, uint32_t r) {
    return (uint32_t)rpi_device_least(count - (uint64_t)r * RPI_VARIED_RUN, RPI_VARIED_RUN);
}

RPI_HOST_DEVICE uint64_t rpi_varied_most(const rpi_device_call *call) {
    return rpi_varied_most_bytes(call->bits, call->bucket);
}

/* ---- looking at a run: its elements begin at `begin`, and are `count` ---- */

RPI_HOST_DEVICE float rpi_varied_element(const rpi_device_call *call, int type, int feedback,
                                         uint64_t i) {
    float y = rpi_element_get(type, call->x, i);
    return feedback ? rpi_float_add(y, call->residual[i]) : y;
}

RPI_HOST_DEVICE rpi_quant_range rpi_varied_lane_range(const rpi_device_call *call, int type,
                                                      int feedback, uint64_t begin,
                                                      uint32_t count, int lane) {
    rpi_quant_range range = rpi_quant_no_range();
    for (uint32_t i = (uint32_t)lane; i < count; i += RPI_VARIED_GROUP)
        rpi_quant_widen(&range, rpi_varied_element(call, type, feedback, begin + i));
    return range;
}

typedef struct rpi_varied_moments {
    double sum, squares;
} rpi_varied_moments;

RPI_HOST_DEVICE rpi_varied_moments rpi_varied_lane_moments(const rpi_device_call *call,
                                                           int type, int feedback,
                                                           uint64_t begin, uint32_t count,
                                                           double shift, int lane) {
    rpi_varied_moments m = {0, 0};
    for (uint32_t i = (uint32_t)lane; i < count; i += RPI_VARIED_GROUP) {
        double d = (double)rpi_varied_element(call, type, feedback, begin + i) - shift;
        m.sum += d;
        m.squares += d * d;
    }
    return m;
}

/* ---- sharing out bits ---- */

/* Of a bit, in this bucket: by one lane, in the order of the runs. */
RPI_HOST_DEVICE double rpi_varied_bucket_price(const rpi_device_call *call,
                                               const rpi_varied_room *room, uint64_t count) {
    double all = 0;
    for (uint32_t r = 0; r < rpi_varied_runs(count); r++)
        all += room->run[r].variance * (double)room->run[r].count;
    return rpi_varied_price(call->bits, call->quarters) * (all / (double)count);
}

/* No run gets more bits than `most`. The bytes of run r. */
RPI_HOST_DEVICE uint32_t rpi_varied_plan_run(const rpi_device_call *call, double price,
                                             int most, rpi_varied_room *room, uint32_t r) {
    const rpi_varied_run *run = &room->run[r];
    int bits = rpi_varied_bits(run, price, call->stochastic);
    room->way[r] = rpi_varied_way_of(run, bits < most ? bits : most, call->stochastic);
    return (uint32_t)rpi_varied_bytes(run->count, room->way[r].width);
}

/* ---- bytes of a run ---- */

RPI_HOST_DEVICE void rpi_varied_put_head(const rpi_varied_way *way, uint8_t *out) {
    int levels = rpi_varied_has_levels(way->width);
    out[0] = (uint8_t)way->width;
    if (levels || way->width == RPI_VARIED_CONSTANT)
        rpi_float_store(out + RPI_VARIED_MIN, way->scale.min);
    if (levels)
        rpi_bytes_store(out + RPI_VARIED_UNIT, rpi_float_bits(way->scale.unit) >> 16, 2);
}

/* Into the bucket's slot; what that leaves, into the residual. */
RPI_HOST_DEVICE void rpi_varied_lane_write(const rpi_device_call *call, int type, int feedback,
                                           uint64_t bucket, const rpi_varied_room *room,
                                           uint32_t r, int lane) {
    uint64_t begin = bucket * call->bucket + (uint64_t)r * RPI_VARIED_RUN;
    uint32_t count = (uint32_t)room->run[r].count;
    rpi_varied_way way = room->way[r];
    uint8_t *out = rpi_device_slot(call, bucket, rpi_varied_most(call)) + room->at[r];
    int levels = rpi_varied_has_levels(way.width);
    rpi_divisor unit = rpi_divisor_of(way.scale.unit);
    if (lane == 0) rpi_varied_put_head(&way, out);
    if (!levels && !feedback) return;
    for (uint32_t i = (uint32_t)lane * RPI_OCTET; i < count;
         i += RPI_VARIED_GROUP * RPI_OCTET) {
        int n = (int)rpi_device_least(count - i, RPI_OCTET);
        rpi_octet y;
        rpi_octet_feed(type, call->x, feedback ? call->residual : NULL, begin + i, n, &y);
        if (levels)
            rpi_bytes_store(out + RPI_VARIED_HEAD + i / RPI_OCTET * (uint32_t)way.width,
                            rpi_quant_octet(call, way.width, call->stochastic,
                                            call->first + begin + i, n, way.scale, unit, &y),
                            rpi_levels_bytes(n, way.width));
        else
            rpi_quant_flat_octet(way.scale.min, &y);
        if (feedback) rpi_octet_store(RPI_DEVICE_F32, call->residual, begin + i, n, &y);
    }
}

/* ---- decoding ---- */

/* A run of the whole: `number` counts over all buckets. */
typedef struct rpi_varied_place {
    uint64_t begin; /* its first element */
    uint32_t count;
} rpi_varied_place;

RPI_HOST_DEVICE uint64_t rpi_varied_all_runs(const rpi_device_call *call) {
    uint64_t last = rpi_device_buckets(call) - 1;
    return last * rpi_varied_runs(call->bucket) +
           rpi_varied_runs(rpi_device_bucket_count(call, last));
}

RPI_HOST_DEVICE rpi_varied_place rpi_varied_place_of(const rpi_device_call *call,
                                                     uint64_t number) {
    uint32_t a_bucket = rpi_varied_runs(call->bucket);
    uint64_t bucket = number / a_bucket;
    uint32_t r = (uint32_t)(number % a_bucket);
    rpi_varied_place place;
    place.begin = bucket * call->bucket + (uint64_t)r * RPI_VARIED_RUN;
    place.count = rpi_varied_run_count(rpi_device_bucket_count(call, bucket), r);
    return place;
}

/* Flat runs are levels of 0 bits: all of them the minimum. */
RPI_HOST_DEVICE rpi_quant_scale rpi_varied_scale_at(const uint8_t *in, int width) {
    rpi_quant_scale scale = {0, 0};
    if (width == RPI_VARIED_DAMAGED) return rpi_quant_damaged_scale();
    if (width == RPI_VARIED_ZEROS) return scale;
    scale.min = rpi_float_load(in + RPI_VARIED_MIN);
    if (rpi_varied_has_levels(width))
        scale.unit = rpi_float_of_bits((uint32_t)rpi_bytes_load(in + RPI_VARIED_UNIT, 2) << 16);
    return rpi_quant_sound(scale);
}

RPI_HOST_DEVICE void rpi_varied_lane_decode(const rpi_device_call *call, int type, int adds,
                                            uint64_t number, int lane) {
    const uint8_t *in = call->encoded + call->offsets[number];
    rpi_varied_place place = rpi_varied_place_of(call, number);
    int width = in[0], levels = rpi_varied_has_levels(width);
    rpi_quant_scale scale = rpi_varied_scale_at(in, width);
    for (uint32_t i = (uint32_t)lane * RPI_OCTET; i < place.count;
         i += RPI_VARIED_GROUP * RPI_OCTET) {
        int n = (int)rpi_device_least(place.count - i, RPI_OCTET);
        uint64_t packed = 0;
        if (levels)
            packed = rpi_bytes_load(in + RPI_VARIED_HEAD + i / RPI_OCTET * (uint32_t)width,
                                    rpi_levels_bytes(n, width));
        rpi_octet y;
        for (int k = 0; k < RPI_OCTET; k++) {
            uint32_t level = levels ? (uint32_t)packed & ((1u << width) - 1) : 0;
            y.value[k] = levels ? rpi_quant_value(level, scale) : scale.min;
            packed >>= levels ? width : 0;
        }
        rpi_octet_deliver(call, type, adds, place.begin + i, n, &y);
    }
}

#endif
