#include "cuda/lane_loops.h"

#include "codec/sign_kernels.h"
#include "cuda/convert_lanes.h"
#include "cuda/quant_whole_lanes.h"
#include "cuda/randk_lanes.h"
#include "cuda/sign_lanes.h"
#include "cuda/topk_lanes.h"
#include "cuda/varied_lanes.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { LANES_MAX = 256 };
static _Thread_local int lanes; /* of a bucket of the quantiser */

static size_t element_bytes(int type) {
    return type == RPI_DEVICE_F32 ? 4 : 2;
}

static void convert_encode(const rpi_device_call *call) {
    if (rpi_convert_is_copy(call, 0)) {
        memcpy(call->encoded, call->x, call->count * element_bytes(call->type));
        return;
    }
    for (uint64_t i = 0; i < call->count; i += RPI_OCTET)
        rpi_convert_encode_octet(call, call->type, call->wire_type, call->residual != NULL, i,
                                 (int)rpi_device_least(call->count - i, RPI_OCTET));
}

static void convert_decode(const rpi_device_call *call, int adds) {
    if (rpi_convert_is_copy(call, adds)) {
        memcpy(call->y, call->encoded, call->count * element_bytes(call->type));
        return;
    }
    for (uint64_t i = 0; i < call->count; i += RPI_OCTET)
        rpi_convert_decode_octet(call, call->type, call->wire_type, adds, i,
                                 (int)rpi_device_least(call->count - i, RPI_OCTET));
}

static void copy_bytes(const rpi_device_call *call, const void *from, void *to) {
    for (uint64_t i = 0; i < call->count; i += RPI_COPY_PIECE)
        rpi_copy_piece(from, to, i, (int)rpi_device_least(call->count - i, RPI_COPY_PIECE));
}

void lane_loops_divide(const rpi_device_call *call) {
    for (uint64_t i = 0; i < call->count; i += RPI_OCTET)
        rpi_convert_divide_octet(call, i, (int)rpi_device_least(call->count - i, RPI_OCTET));
}

/* Octets of a lane that keeps its part of a bucket, as quant.cu has it; 0: it does not. */
static int held_octets(const rpi_device_call *call) {
    uint64_t octets = (call->bucket + RPI_OCTET - 1) / RPI_OCTET;
    if (octets <= 2 * (uint64_t)lanes) return 2;
    return octets <= RPI_QUANT_HELD * (uint64_t)lanes ? RPI_QUANT_HELD : 0;
}

static void quant_encode_held(const rpi_device_call *call, uint64_t bucket, int octets) {
    static _Thread_local rpi_quant_held held[LANES_MAX];
    int feedback = call->residual != NULL;
    rpi_quant_range range = rpi_quant_no_range();
    for (int lane = 0; lane < lanes; lane++)
        range = rpi_quant_join(range, rpi_quant_lane_take(call, call->type, feedback, octets,
                                                          bucket, lane, lanes, &held[lane]));
    for (int lane = 0; lane < lanes; lane++)
        rpi_quant_lane_put(call, feedback, call->stochastic, octets, bucket, range, lane, lanes,
                           &held[lane]);
}

static atomic_long whole_buckets;

long lane_loops_whole(void) {
    return atomic_load(&whole_buckets);
}

/* False: this bucket has to be done otherwise. */
static bool quant_encode_whole(const rpi_device_call *call, uint64_t bucket) {
    static _Thread_local rpi_quant_held held[LANES_MAX];
    int octets = rpi_quant_whole_octets(call, lanes), feedback = call->residual != NULL;
    if (!octets || rpi_device_bucket_count(call, bucket) < call->bucket) return false;
    rpi_quant_range range = rpi_quant_no_range();
    for (int lane = 0; lane < lanes; lane++)
        range = rpi_quant_join(range, rpi_quant_whole_take(call, call->type, feedback, octets,
                                                           bucket, lane, lanes, &held[lane]));
    rpi_quant_scale scale = rpi_quant_scale_of(&range, call->bits);
    rpi_divisor unit = rpi_divisor_of(scale.unit);
    if (unit.divides) return false;
    for (int lane = 0; lane < lanes; lane++)
        rpi_quant_whole_put(call, feedback, octets, call->bits, bucket, scale, unit, lane,
                            lanes, &held[lane]);
    atomic_fetch_add(&whole_buckets, 1);
    return true;
}

static void quant_encode(const rpi_device_call *call, uint64_t bucket) {
    int feedback = call->residual != NULL;
    if (quant_encode_whole(call, bucket)) return;
    if (held_octets(call) && !call->stochastic) {
        quant_encode_held(call, bucket, held_octets(call));
        return;
    }
    rpi_quant_range range = rpi_quant_no_range();
    for (int lane = 0; lane < lanes; lane++)
        range = rpi_quant_join(
            range, rpi_quant_lane_range(call, call->type, feedback, bucket, lane, lanes));
    for (int lane = 0; lane < lanes; lane++)
        rpi_quant_lane_encode(call, call->type, feedback, call->stochastic, bucket, range, lane,
                              lanes);
}

static void sign_encode(const rpi_device_call *call, uint64_t bucket) {
    int feedback = call->residual != NULL;
    uint64_t count = rpi_device_bucket_count(call, bucket);
    double sum = 0;
    for (uint64_t begin = 0; begin < count; begin += RPI_SIGN_TILE) {
        float lane[RPI_SIGN_GROUP];
        for (int k = 0; k < RPI_SIGN_GROUP; k++)
            lane[k] = rpi_sign_lane_sum(call, call->type, feedback, bucket, begin, k);
        sum += (double)rpi_sign_fold(lane);
    }
    for (int k = 0; k < RPI_SIGN_GROUP; k++)
        rpi_sign_lane_encode(call, call->type, feedback, bucket, rpi_sign_mean(sum, count), k);
}

static void randk_encode(const rpi_device_call *call, uint64_t bucket) {
    int feedback = call->residual != NULL;
    rpi_quant_range range = rpi_quant_no_range();
    for (int lane = 0; lane < lanes; lane++)
        range = rpi_quant_join(
            range, rpi_randk_lane_look(call, call->type, feedback, bucket, lane, lanes));
    for (int lane = 0; lane < lanes; lane++)
        rpi_randk_lane_values(call, call->type, feedback, bucket, &range, lane, lanes);
    for (int lane = 0; feedback && lane < lanes; lane++)
        rpi_randk_lane_settle(call, call->type, bucket, &range, lane, lanes);
}

static void randk_decode(const rpi_device_call *call, int adds, uint64_t bucket) {
    int damaged = 0;
    for (int lane = 0; lane < lanes; lane++)
        damaged |= rpi_randk_lane_damage(call, bucket, lane, lanes);
    for (int lane = 0; lane < lanes; lane++)
        rpi_randk_lane_decode(call, call->type, adds, bucket, damaged, lane, lanes);
}

/* False: fewer magnitudes have the digits found than are wanted. */
static bool topk_find(const rpi_topk_room *room, rpi_topk_search *search) {
    uint32_t before = 0;
    for (int lane = 0; lane < lanes; lane++) {
        uint32_t own = rpi_topk_lane_bins(room, lane, lanes);
        if (rpi_topk_lane_find(room, before, own, lane, lanes, search)) return true;
        before += own;
    }
    return false;
}

/* The least magnitude that is kept; the bins have the first digits. */
static uint32_t topk_least(rpi_topk_room *room, uint64_t count, uint32_t k) {
    rpi_topk_search search = rpi_topk_begin(k);
    while (topk_find(room, &search) && !search.done) {
        for (int lane = 0; lane < lanes; lane++) rpi_topk_lane_clear_bins(room, lane, lanes);
        for (int lane = 0; lane < lanes; lane++)
            rpi_topk_lane_digits(room, count, &search, lane, lanes);
    }
    return rpi_topk_least(&search);
}

static uint32_t topk_choose(rpi_topk_room *room, uint64_t count, uint32_t k) {
    uint32_t least = topk_least(room, count, k);
    rpi_topk_count before[LANES_MAX], total = {0, 0};
    for (int lane = 0; lane < lanes; lane++) {
        before[lane] = total;
        total = rpi_topk_add(total, rpi_topk_lane_count(room, count, least, lane, lanes));
    }
    uint32_t ties = rpi_topk_ties(total, k);
    for (int lane = lanes - 1; lane >= 0; lane--)
        rpi_topk_lane_choose(room, count, least, ties, before[lane], lane, lanes);
    return total.above + ties;
}

static void topk_encode(const rpi_device_call *call, uint64_t bucket) {
    static _Thread_local rpi_topk_room room;
    int feedback = call->residual != NULL;
    uint64_t count = rpi_device_bucket_count(call, bucket);
    uint32_t kept = 0;
    rpi_quant_range range = rpi_quant_no_range();
    for (int lane = 0; lane < lanes; lane++) rpi_topk_lane_clear_bins(&room, lane, lanes);
    for (int lane = 0; lane < lanes; lane++)
        range.has_nan |=
            rpi_topk_lane_load(call, call->type, feedback, bucket, &room, lane, lanes);
    if (!range.has_nan) {
        kept = topk_choose(&room, count, call->kept);
        for (int lane = 0; lane < lanes; lane++)
            range = rpi_quant_join(range, rpi_topk_lane_range(&room, kept, lane, lanes));
    }
    rpi_kept_way way = rpi_kept_way_of(call, kept, &range);
    for (int lane = 0; lane < lanes; lane++)
        rpi_topk_lane_write(call, bucket, &room, kept, &way, lane, lanes);
    for (int lane = 0; feedback && lane < lanes; lane++)
        rpi_topk_lane_settle(call, bucket, &room, kept, &way, lane, lanes);
}

static void gather(const rpi_device_call *call, uint64_t most) {
    uint64_t at = 0;
    for (uint64_t i = 0; i < rpi_device_buckets(call); i++) {
        rpi_device_sums(call)[i] = at;
        at += rpi_device_lengths(call)[i];
    }
    for (uint64_t i = 0; i < rpi_device_buckets(call); i++)
        for (int lane = 0; lane < lanes; lane++)
            rpi_device_lane_gather(call, i, most, lane, lanes);
}

static rpi_varied_run varied_look(const rpi_device_call *call, uint64_t begin, uint32_t count) {
    int feedback = call->residual != NULL;
    rpi_quant_range range = rpi_quant_no_range();
    for (int lane = 0; lane < RPI_VARIED_GROUP; lane++)
        range = rpi_quant_join(
            range, rpi_varied_lane_range(call, call->type, feedback, begin, count, lane));
    rpi_varied_run run = rpi_varied_begin(count, &range);
    if (run.damaged) return run;
    rpi_varied_moments m[RPI_VARIED_GROUP];
    for (int lane = 0; lane < RPI_VARIED_GROUP; lane++)
        m[lane] = rpi_varied_lane_moments(call, call->type, feedback, begin, count,
                                          rpi_varied_shift(&run), lane);
    for (int half = RPI_VARIED_GROUP / 2; half; half /= 2)
        for (int lane = 0; lane < half; lane++) {
            m[lane].sum += m[lane + half].sum;
            m[lane].squares += m[lane + half].squares;
        }
    rpi_varied_take_moments(&run, m[0].sum, m[0].squares);
    return run;
}

static uint32_t varied_plan(const rpi_device_call *call, double price, int most, uint32_t runs,
                            rpi_varied_room *room) {
    uint32_t bytes = 0;
    for (uint32_t r = 0; r < runs; r++) {
        room->at[r] = bytes;
        bytes += rpi_varied_plan_run(call, price, most, room, r);
    }
    return bytes;
}

static void varied_encode(const rpi_device_call *call, uint64_t bucket) {
    static _Thread_local rpi_varied_room room;
    uint64_t count = rpi_device_bucket_count(call, bucket), begin = bucket * call->bucket;
    uint32_t runs = rpi_varied_runs(count);
    for (uint32_t r = 0; r < runs; r++)
        room.run[r] = varied_look(call, begin + (uint64_t)r * RPI_VARIED_RUN,
                                  rpi_varied_run_count(count, r));
    double price = rpi_varied_bucket_price(call, &room, count);
    uint32_t bytes = varied_plan(call, price, RPI_VARIED_BITS, runs, &room);
    if (bytes > rpi_varied_most_bytes(call->bits, count))
        bytes = varied_plan(call, price, rpi_varied_most_bits(call->bits), runs, &room);
    rpi_device_lengths(call)[bucket] = bytes;
    for (uint32_t r = 0; r < runs; r++)
        for (int lane = 0; lane < RPI_VARIED_GROUP; lane++)
            rpi_varied_lane_write(call, call->type, call->residual != NULL, bucket, &room, r,
                                  lane);
}

static void encode_to_slots(const rpi_device_call *without) {
    rpi_device_call call = *without;
    int topk = call.kind == RPI_DEVICE_TOPK;
    uint64_t most = topk ? rpi_topk_most(&call) : rpi_varied_most(&call);
    call.scratch = malloc(rpi_device_slots_end(&call, most));
    if (!call.scratch) abort();
    for (uint64_t i = 0; i < rpi_device_buckets(&call); i++)
        if (topk)
            topk_encode(&call, i);
        else
            varied_encode(&call, i);
    *call.bytes = 0;
    gather(&call, most);
    free(call.scratch);
}

static void varied_decode(const rpi_device_call *call, int adds) {
    for (uint64_t i = 0; i < rpi_varied_all_runs(call); i++)
        for (int lane = 0; lane < RPI_VARIED_GROUP; lane++)
            rpi_varied_lane_decode(call, call->type, adds, i, lane);
}

static void topk_decode(const rpi_device_call *call, int adds, uint64_t bucket) {
    for (int lane = 0; !adds && lane < lanes; lane++)
        rpi_topk_lane_clear(call, call->type, bucket, lane, lanes);
    for (int lane = 0; lane < lanes; lane++)
        rpi_topk_lane_decode(call, call->type, adds, bucket, lane, lanes);
}

void lane_loops_encode(const rpi_device_call *call, int together) {
    lanes = together;
    if (call->kind == RPI_DEVICE_COPY) {
        copy_bytes(call, call->x, call->encoded);
        return;
    }
    if (call->kind == RPI_DEVICE_TOPK || call->kind == RPI_DEVICE_VARIED) {
        encode_to_slots(call);
        return;
    }
    if (call->kind == RPI_DEVICE_CONVERT) {
        convert_encode(call);
        return;
    }
    for (uint64_t i = 0; i < rpi_device_buckets(call); i++)
        if (call->kind == RPI_DEVICE_QUANT)
            quant_encode(call, i);
        else if (call->kind == RPI_DEVICE_RANDK)
            randk_encode(call, i);
        else
            sign_encode(call, i);
}

static void sign_decode(const rpi_device_call *call, int adds, uint64_t bucket) {
    for (int lane = 0; lane < RPI_SIGN_GROUP; lane++)
        rpi_sign_lane_decode(call, call->type, adds, bucket, lane);
}

static void quant_decode(const rpi_device_call *call, int adds, uint64_t bucket) {
    int octets = held_octets(call);
    for (int lane = 0; lane < lanes; lane++)
        if (octets)
            rpi_quant_lane_unpack(call, call->type, adds, octets, bucket, lane, lanes);
        else
            rpi_quant_lane_decode(call, call->type, adds, bucket, lane, lanes);
}

void lane_loops_decode(const rpi_device_call *call, int adds, int together) {
    lanes = together;
    if (call->kind == RPI_DEVICE_COPY) {
        copy_bytes(call, call->encoded, call->y);
        return;
    }
    if (call->kind == RPI_DEVICE_CONVERT) {
        convert_decode(call, adds);
        return;
    }
    if (call->kind == RPI_DEVICE_VARIED) {
        varied_decode(call, adds);
        return;
    }
    for (uint64_t i = 0; i < rpi_device_buckets(call); i++)
        if (call->kind == RPI_DEVICE_QUANT)
            quant_decode(call, adds, i);
        else if (call->kind == RPI_DEVICE_RANDK)
            randk_decode(call, adds, i);
        else if (call->kind == RPI_DEVICE_TOPK)
            topk_decode(call, adds, i);
        else
            sign_decode(call, adds, i);
}
