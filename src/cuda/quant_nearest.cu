/* q1 to q8 to the nearest level: a warp for each bucket, which keeps it in registers where it
 * is not too long, a block where buckets are large. Where it is kept nowhere the second half of
 * an encoding finds its elements in the cache. */
#include "cuda/quant_launch.h"

template <int TYPE, bool FEEDBACK>
static __global__ void encode(const __grid_constant__ rpi_device_list list) {
    rpi_list_place place = rpi_place_in(list);
    const rpi_device_call &call = *place.call;
    int lane = rpi_group_lane<RPI_BLOCK>();
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = rpi_group_first<RPI_BLOCK>(place); i < buckets;
         i += rpi_group_count<RPI_BLOCK>(place)) {
        rpi_quant_range range = rpi_group_join<RPI_BLOCK>(
            rpi_quant_lane_range(&call, TYPE, FEEDBACK, i, lane, RPI_BLOCK));
        rpi_quant_lane_encode(&call, TYPE, FEEDBACK, 0, i, range, lane, RPI_BLOCK);
    }
}

template <int TYPE, bool FEEDBACK, int OCTETS>
static __global__ void encode_held(const __grid_constant__ rpi_device_list list) {
    rpi_list_place place = rpi_place_in(list);
    const rpi_device_call &call = *place.call;
    int lane = rpi_group_lane<RPI_WARP>();
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = rpi_group_first<RPI_WARP>(place); i < buckets;
         i += rpi_group_count<RPI_WARP>(place)) {
        rpi_quant_held held;
        rpi_quant_range range = rpi_warp_join(
            rpi_quant_lane_take(&call, TYPE, FEEDBACK, OCTETS, i, lane, RPI_WARP, &held));
        rpi_quant_lane_put(&call, FEEDBACK, 0, OCTETS, i, range, lane, RPI_WARP, &held);
    }
}

template <int TYPE, bool FEEDBACK>
static rpi_list_kernel kernel_of(const rpi_device_call *call) {
    if (rpi_quant_is_held(call, 2)) return encode_held<TYPE, FEEDBACK, 2>;
    if (rpi_quant_is_held(call, RPI_QUANT_HELD))
        return encode_held<TYPE, FEEDBACK, RPI_QUANT_HELD>;
    return encode<TYPE, FEEDBACK>;
}

namespace {
struct family {
    template <int TYPE> static rpi_list_kernel of(const rpi_device_call *call) {
        return call->residual ? kernel_of<TYPE, true>(call) : kernel_of<TYPE, false>(call);
    }
};
} // namespace

rpi_list_kernel rpi_quant_nearest(const rpi_device_call *call) {
    return rpi_list_kernel_for<family>(call->type, call);
}
