/* topk as `lanes` threads do it that work on one bucket together, which lies in memory of
 * theirs (shared memory of a block) meanwhile.
 *
 *   encode: clear -- load, which counts the first digits --digits and those above--> find
 *           clear -- count the next digits, of magnitudes with those found, -- find; and again
 *           count --sums before each lane--> choose --range--> write --> settle
 *   decode: read (one lane's octets at a time), behind zeros where nothing is added
 *
 * Between two of these all lanes meet; what is written above an arrow is joined over them. Of a
 * bucket's elements and of those that are kept, octets lane, lane + lanes, ... are a lane's; in
 * count and choose it is a slice of the bucket, since elements are kept in their order.
 *
 * The k-th largest magnitude is found by its digits, the highest first (a radix select): each
 * has as many bins as it has values, and a bin says how many magnitudes have that digit behind
 * the digits found. Mostly the second digit tells all that are kept from the others.
 *
 * Buckets become from 2 bytes to rpi_topk_most() of them, as their elements say. They are
 * encoded into slots of the scratch memory, and gathered from there (device_call.h). */
#ifndef RPI_CUDA_TOPK_LANES_H
#define RPI_CUDA_TOPK_LANES_H

#include "cuda/kept_lanes.h"

enum { RPI_TOPK_DIGIT_BITS = 11, RPI_TOPK_BINS = 1 << RPI_TOPK_DIGIT_BITS };

typedef struct rpi_topk_kept {
    float value[RPI_SPARSE_KEPT_MAX];
    uint16_t index[RPI_SPARSE_KEPT_MAX];
} rpi_topk_kept;

typedef struct rpi_topk_room {
    float y[RPI_SPARSE_BUCKET_MAX]; /* elements, and the residual */
    union {
        uint32_t bin[RPI_TOPK_BINS]; /* until the least that is kept is known */
        rpi_topk_kept kept;
    } found;
} rpi_topk_room;

enum { RPI_TOPK_NOT_FINITE = 0x7f800000 }; /* magnitudes from here on */

/* ---- bytes ---- */

RPI_HOST_DEVICE uint64_t rpi_topk_index_bytes(const rpi_device_call *call, uint32_t kept) {
    return ((uint64_t)kept * (uint64_t)rpi_topk_index_bits((uint32_t)call->bucket) + 7) / 8;
}

RPI_HOST_DEVICE uint64_t rpi_topk_bytes(const rpi_device_call *call, uint32_t kept) {
    return RPI_TOPK_HEAD + rpi_topk_index_bytes(call, kept) + rpi_kept_bytes(call, kept);
}

/* What a bucket takes at most. */
RPI_HOST_DEVICE uint64_t rpi_topk_most(const rpi_device_call *call) {
    return rpi_topk_bytes(call, call->kept);
}

/* ---- the k-th largest magnitude ---- */

/* At least `wanted` magnitudes have the digits of `least`, of which bit `above` is the one
 * above the last; the next digit begins at bit `shift`. */
typedef struct rpi_topk_search {
    uint32_t least, wanted;
    int above, shift;
    int done; /* those from `least` on are kept, or as many of those that equal it as there is
               * room for */
} rpi_topk_search;

RPI_HOST_DEVICE rpi_topk_search rpi_topk_begin(uint32_t k) {
    rpi_topk_search search = {0, k, 31, 31 - RPI_TOPK_DIGIT_BITS, 0};
    return search;
}

/* A lane's bins, the highest digits first: from here on down to where those of the next lane
 * begin. An odd number, so that lanes beside each other read from different banks. */
RPI_HOST_DEVICE int rpi_topk_bins_end(int lane, int lanes) {
    int each = (RPI_TOPK_BINS + lanes - 1) / lanes | 1, behind = each * lane;
    return behind < RPI_TOPK_BINS ? RPI_TOPK_BINS - behind : 0;
}

RPI_HOST_DEVICE void rpi_topk_lane_clear_bins(rpi_topk_room *room, int lane, int lanes) {
    for (int i = lane; i < RPI_TOPK_BINS; i += lanes) room->found.bin[i] = 0;
}

/* Zeros are never kept. */
RPI_HOST_DEVICE void rpi_topk_tell_digit(rpi_topk_room *room, const rpi_topk_search *search,
                                         uint32_t magnitude) {
    if (!magnitude || magnitude >> search->above != search->least >> search->above) return;
    uint32_t digit = (magnitude - search->least) >> search->shift;
#ifdef __CUDA_ARCH__
    atomicAdd(&room->found.bin[digit], 1u);
#else
    room->found.bin[digit]++;
#endif
}

/* The bucket into the room, and with `feedback` into the residual; its first digits into the
 * bins. True: an element is not finite. */
RPI_HOST_DEVICE int rpi_topk_lane_load(const rpi_device_call *call, int type, int feedback,
                                       uint64_t bucket, rpi_topk_room *room, int lane,
                                       int lanes) {
    uint64_t begin = bucket * call->bucket, count = rpi_device_bucket_count(call, bucket);
    rpi_topk_search first = rpi_topk_begin(0);
    int odd = 0;
    for (uint64_t i = (uint64_t)lane * RPI_OCTET; i < count; i += (uint64_t)lanes * RPI_OCTET) {
        int n = (int)rpi_device_least(count - i, RPI_OCTET);
        rpi_octet y;
        rpi_octet_feed(type, call->x, feedback ? call->residual : NULL, begin + i, n, &y);
        rpi_octet_store(RPI_DEVICE_F32, room->y, i, n, &y);
        for (int k = 0; k < RPI_OCTET; k++) {
            uint32_t magnitude = rpi_magnitude_of(y.value[k]); /* 0 where there is none */
            rpi_topk_tell_digit(room, &first, k < n ? magnitude : 0);
            odd |= k < n && magnitude >= RPI_TOPK_NOT_FINITE;
        }
        if (feedback) rpi_octet_store(RPI_DEVICE_F32, call->residual, begin + i, n, &y);
    }
    return odd;
}

RPI_HOST_DEVICE void rpi_topk_lane_digits(rpi_topk_room *room, uint64_t count,
                                          const rpi_topk_search *search, int lane, int lanes) {
    for (uint64_t i = (uint64_t)lane; i < count; i += (uint64_t)lanes)
        rpi_topk_tell_digit(room, search, rpi_magnitude_of(room->y[i]));
}

/* How many magnitudes the lane's bins have. */
RPI_HOST_DEVICE uint32_t rpi_topk_lane_bins(const rpi_topk_room *room, int lane, int lanes) {
    uint32_t sum = 0;
    int end = rpi_topk_bins_end(lane + 1, lanes);
    for (int i = rpi_topk_bins_end(lane, lanes); i-- > end;) sum += room->found.bin[i];
    return sum;
}

/* The digit is in this bin, above which are `above`. */
RPI_HOST_DEVICE void rpi_topk_take_digit(rpi_topk_search *search, uint32_t digit,
                                         uint32_t above, uint32_t equal) {
    search->least |= digit << search->shift;
    search->wanted -= above;
    search->done = equal == search->wanted || search->shift == 0;
    search->above = search->shift;
    search->shift =
        search->shift > RPI_TOPK_DIGIT_BITS ? search->shift - RPI_TOPK_DIGIT_BITS : 0;
}

/* before: magnitudes in the bins of the lanes before; own: in those of this one. True: the
 * digit is one of them, and *search has it. */
RPI_HOST_DEVICE int rpi_topk_lane_find(const rpi_topk_room *room, uint32_t before, uint32_t own,
                                       int lane, int lanes, rpi_topk_search *search) {
    if (before >= search->wanted || before + own < search->wanted) return 0;
    int i = rpi_topk_bins_end(lane, lanes) - 1;
    for (; before + room->found.bin[i] < search->wanted; i--) before += room->found.bin[i];
    rpi_topk_take_digit(search, (uint32_t)i, before, room->found.bin[i]);
    return 1;
}

/* The least magnitude that is kept: all that are not 0 are where no digit was found. */
RPI_HOST_DEVICE uint32_t rpi_topk_least(const rpi_topk_search *search) {
    return search->least ? search->least : 1;
}

/* ---- the elements ---- */

/* Magnitudes above the least one that is kept, and equal to it. */
typedef struct rpi_topk_count {
    uint32_t above, equal;
} rpi_topk_count;

RPI_HOST_DEVICE rpi_topk_count rpi_topk_add(rpi_topk_count a, rpi_topk_count b) {
    a.above += b.above;
    a.equal += b.equal;
    return a;
}

/* Of equal ones those that come first are kept: so many, where all lanes' are `total`. */
RPI_HOST_DEVICE uint32_t rpi_topk_ties(rpi_topk_count total, uint32_t k) {
    uint32_t room = total.above < k ? k - total.above : 0;
    return total.equal < room ? total.equal : room;
}

/* A lane's elements, one behind the other: an odd number, as of bins. */
RPI_HOST_DEVICE uint64_t rpi_topk_slice(uint64_t count, int lane, int lanes) {
    uint64_t length = (count + (uint64_t)lanes - 1) / (uint64_t)lanes | 1;
    return rpi_device_least(count, length * (uint64_t)lane);
}

RPI_HOST_DEVICE rpi_topk_count rpi_topk_lane_count(const rpi_topk_room *room, uint64_t count,
                                                   uint32_t least, int lane, int lanes) {
    rpi_topk_count own = {0, 0};
    uint64_t end = rpi_topk_slice(count, lane + 1, lanes);
    for (uint64_t i = rpi_topk_slice(count, lane, lanes); i < end; i++) {
        uint32_t magnitude = rpi_magnitude_of(room->y[i]);
        own.above += magnitude > least;
        own.equal += magnitude == least;
    }
    return own;
}

/* before: the counts of the lanes before. */
RPI_HOST_DEVICE void rpi_topk_lane_choose(rpi_topk_room *room, uint64_t count, uint32_t least,
                                          uint32_t ties, rpi_topk_count before, int lane,
                                          int lanes) {
    uint32_t equal = before.equal, at = before.above + (equal < ties ? equal : ties);
    uint64_t end = rpi_topk_slice(count, lane + 1, lanes);
    for (uint64_t i = rpi_topk_slice(count, lane, lanes); i < end; i++) {
        uint32_t magnitude = rpi_magnitude_of(room->y[i]);
        if (magnitude < least || (magnitude == least && equal++ >= ties)) continue;
        room->found.kept.index[at] = (uint16_t)i;
        room->found.kept.value[at++] = room->y[i];
    }
}

/* The range of the values that are kept. */
RPI_HOST_DEVICE rpi_quant_range rpi_topk_lane_range(const rpi_topk_room *room, uint32_t kept,
                                                    int lane, int lanes) {
    rpi_quant_range range = rpi_quant_no_range();
    for (uint32_t j = (uint32_t)lane; j < kept; j += (uint32_t)lanes)
        rpi_quant_widen(&range, room->found.kept.value[j]);
    return range;
}

/* ---- bytes of a bucket ---- */

/* n indices from number j, a multiple of 8, on, of `bits` bits each. */
RPI_HOST_DEVICE void rpi_topk_put_indices(const uint16_t *index, uint32_t j, int n, int bits,
                                          uint8_t *out) {
    uint64_t held = 0;
    int held_bits = 0;
    out += (uint64_t)(j / RPI_OCTET) * (uint64_t)bits;
    for (int k = 0; k < n; k++) {
        held |= (uint64_t)index[j + (uint32_t)k] << held_bits;
        for (held_bits += bits; held_bits >= 8; held_bits -= 8, held >>= 8)
            *out++ = (uint8_t)held;
    }
    if (held_bits > 0) *out = (uint8_t)held;
}

/* Into the bucket's slot, and how long it is; `way` may say that the bucket is damaged. */
RPI_HOST_DEVICE void rpi_topk_lane_write(const rpi_device_call *call, uint64_t bucket,
                                         const rpi_topk_room *room, uint32_t kept,
                                         const rpi_kept_way *way, int lane, int lanes) {
    uint8_t *out = rpi_device_slot(call, bucket, rpi_topk_most(call));
    uint8_t *indices = out + RPI_TOPK_HEAD;
    uint8_t *values = indices + rpi_topk_index_bytes(call, kept);
    int bits = rpi_topk_index_bits((uint32_t)call->bucket);
    if (lane == 0) {
        rpi_bytes_store(out, way->damaged ? (uint32_t)RPI_TOPK_DAMAGED : kept, RPI_TOPK_HEAD);
        rpi_device_lengths(call)[bucket] =
            way->damaged ? (uint64_t)RPI_TOPK_HEAD : rpi_topk_bytes(call, kept);
        if (!way->damaged) rpi_kept_put_scale(call, way, kept, values);
    }
    if (way->damaged) return;
    for (uint32_t j = (uint32_t)lane * RPI_OCTET; j < kept; j += (uint32_t)lanes * RPI_OCTET) {
        int n = (int)rpi_device_least(kept - j, RPI_OCTET);
        rpi_octet y;
        for (int k = 0; k < RPI_OCTET; k++)
            y.value[k] = k < n ? room->found.kept.value[j + (uint32_t)k] : 0.0f;
        rpi_topk_put_indices(room->found.kept.index, j, n, bits, indices);
        rpi_kept_put_octet(call, way, j, n, &y, values);
    }
}

/* The residual, which is y so far, without what the receiver gets; 0 where all is damaged. */
RPI_HOST_DEVICE void rpi_topk_lane_settle(const rpi_device_call *call, uint64_t bucket,
                                          const rpi_topk_room *room, uint32_t kept,
                                          const rpi_kept_way *way, int lane, int lanes) {
    float *residual = call->residual + bucket * call->bucket;
    uint64_t count = rpi_device_bucket_count(call, bucket);
    if (way->damaged)
        for (uint64_t i = (uint64_t)lane; i < count; i += (uint64_t)lanes) residual[i] = 0;
    else
        for (uint32_t j = (uint32_t)lane; j < kept; j += (uint32_t)lanes)
            residual[room->found.kept.index[j]] =
                room->found.kept.value[j] -
                rpi_kept_travelled(call, way, room->found.kept.value[j]);
}

/* ---- decoding ---- */

/* How many elements a bucket keeps, or RPI_TOPK_DAMAGED. */
RPI_HOST_DEVICE uint32_t rpi_topk_head(const rpi_device_call *call, uint64_t bucket) {
    const uint8_t *in = call->encoded + call->offsets[bucket];
    return (uint32_t)rpi_bytes_load(in, RPI_TOPK_HEAD);
}

/* What the elements are that are not kept. */
RPI_HOST_DEVICE void rpi_topk_lane_clear(const rpi_device_call *call, int type, uint64_t bucket,
                                         int lane, int lanes) {
    uint64_t begin = bucket * call->bucket, count = rpi_device_bucket_count(call, bucket);
    rpi_octet zeros;
    for (int k = 0; k < RPI_OCTET; k++) zeros.value[k] = 0;
    for (uint64_t i = (uint64_t)lane * RPI_OCTET; i < count; i += (uint64_t)lanes * RPI_OCTET)
        rpi_octet_store(type, call->y, begin + i, (int)rpi_device_least(count - i, RPI_OCTET),
                        &zeros);
}

RPI_HOST_DEVICE void rpi_topk_deliver(const rpi_device_call *call, int type, int adds,
                                      uint64_t element, float value) {
    float *sum = (float *)call->y + element;
    if (adds)
        *sum = rpi_float_add(*sum, value);
    else
        rpi_element_put(type, call->y, element, value);
}

/* The bytes have been checked (rp_codec_check(), rpi_device_offsets()): no index lies beyond
 * its bucket. */
RPI_HOST_DEVICE void rpi_topk_lane_decode(const rpi_device_call *call, int type, int adds,
                                          uint64_t bucket, int lane, int lanes) {
    uint64_t begin = bucket * call->bucket, count = rpi_device_bucket_count(call, bucket);
    uint32_t kept = rpi_topk_head(call, bucket);
    if (kept == RPI_TOPK_DAMAGED) {
        float nan = rpi_float_of_bits(RPI_NAN_BITS);
        for (uint64_t i = (uint64_t)lane; i < count; i += (uint64_t)lanes)
            rpi_topk_deliver(call, type, adds, begin + i, nan);
        return;
    }
    const uint8_t *indices = call->encoded + call->offsets[bucket] + RPI_TOPK_HEAD;
    const uint8_t *values = indices + rpi_topk_index_bytes(call, kept);
    int bits = rpi_topk_index_bits((uint32_t)call->bucket);
    rpi_quant_scale scale = rpi_kept_scale(call, kept, values);
    for (uint32_t j = (uint32_t)lane; j < kept; j += (uint32_t)lanes) {
        uint32_t index = rpi_bits_load(indices, (uint64_t)j * (uint64_t)bits, bits);
        rpi_topk_deliver(call, type, adds, begin + index,
                         rpi_kept_value(call, scale, values, j));
    }
}

#endif
