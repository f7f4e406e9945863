/* Whole buckets of q1 to q8: a warp for each, which keeps it in registers, a block where they
 * are large, which keeps 4096 or 8192 elements so. Included by a file for each number of bits.
 */
#ifndef RPI_CUDA_QUANT_WHOLE_KERNELS_H
#define RPI_CUDA_QUANT_WHOLE_KERNELS_H

#include "cuda/quant_launch.h"
#include "cuda/quant_whole_lanes.h"

/* A bucket that is not whole, or of which every element is the same, or nearly so. */
template <int TYPE, bool FEEDBACK, int LANES>
static __device__ __noinline__ void encode_odd(const rpi_device_call *call, uint64_t bucket) {
    int lane = rpi_group_lane<LANES>();
    rpi_quant_range range =
        rpi_group_join<LANES>(rpi_quant_lane_range(call, TYPE, FEEDBACK, bucket, lane, LANES));
    rpi_quant_lane_encode(call, TYPE, FEEDBACK, 0, bucket, range, lane, LANES);
}

template <int TYPE, bool FEEDBACK, int OCTETS, int LANES, int BITS>
static __global__ void __launch_bounds__(RPI_BLOCK)
    encode_whole(const __grid_constant__ rpi_device_list list) {
    rpi_list_place place = rpi_place_in(list);
    const rpi_device_call &call = *place.call;
    const uint64_t bucket = (uint64_t)OCTETS * LANES * RPI_OCTET;
    int lane = rpi_group_lane<LANES>(), bits = BITS ? BITS : call.bits;
    uint64_t whole = call.count / bucket, buckets = whole + (call.count % bucket != 0);
    for (uint64_t i = rpi_group_first<LANES>(place); i < buckets;
         i += rpi_group_count<LANES>(place)) {
        rpi_quant_held held;
        if (i == whole) {
            encode_odd<TYPE, FEEDBACK, LANES>(&call, i);
            continue;
        }
        rpi_quant_range range = rpi_group_join<LANES>(
            rpi_quant_whole_take(&call, TYPE, FEEDBACK, OCTETS, i, lane, LANES, &held));
        rpi_quant_scale scale = rpi_quant_scale_of(&range, bits);
        rpi_divisor unit = rpi_divisor_of(scale.unit);
        if (unit.divides)
            encode_odd<TYPE, FEEDBACK, LANES>(&call, i);
        else
            rpi_quant_whole_put(&call, FEEDBACK, OCTETS, bits, i, scale, unit, lane, LANES,
                                &held);
    }
}

/* NULL: its buckets are not whole. */
template <int TYPE, bool FEEDBACK, int LANES, int BITS>
static rpi_list_kernel encode_whole_of(const rpi_device_call *call) {
    switch (rpi_quant_whole_octets(call, LANES)) {
    case 2: return encode_whole<TYPE, FEEDBACK, 2, LANES, BITS>;
    case RPI_QUANT_HELD: return encode_whole<TYPE, FEEDBACK, RPI_QUANT_HELD, LANES, BITS>;
    default: return NULL;
    }
}

template <int TYPE, bool FEEDBACK, int BITS>
static rpi_list_kernel encode_whole_by(const rpi_device_call *call) {
    return rpi_quant_encode_lanes(call) == RPI_WARP
               ? encode_whole_of<TYPE, FEEDBACK, RPI_WARP, BITS>(call)
               : encode_whole_of<TYPE, FEEDBACK, RPI_BLOCK, BITS>(call);
}

template <int BITS> static rpi_list_kernel rpi_quant_whole(const rpi_device_call *call) {
    return rpi_for_type(call->type, [&](auto type) {
        return call->residual ? encode_whole_by<type.value, true, BITS>(call)
                              : encode_whole_by<type.value, false, BITS>(call);
    });
}

#endif
