/* q1 to q8 decoded: a warp for each bucket, all of its bytes read before one is used where it
 * is not too long; a block where buckets are large. */
#include "cuda/quant_launch.h"

template <int TYPE, bool ADDS, int LANES>
static __global__ void decode(const __grid_constant__ rpi_device_list list) {
    rpi_list_place place = rpi_place_in(list);
    const rpi_device_call &call = *place.call;
    int lane = rpi_group_lane<LANES>();
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = rpi_group_first<LANES>(place); i < buckets;
         i += rpi_group_count<LANES>(place))
        rpi_quant_lane_decode(&call, TYPE, ADDS, i, lane, LANES);
}

template <int TYPE, bool ADDS, int OCTETS>
static __global__ void decode_held(const __grid_constant__ rpi_device_list list) {
    rpi_list_place place = rpi_place_in(list);
    const rpi_device_call &call = *place.call;
    int lane = rpi_group_lane<RPI_WARP>();
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = rpi_group_first<RPI_WARP>(place); i < buckets;
         i += rpi_group_count<RPI_WARP>(place))
        rpi_quant_lane_unpack(&call, TYPE, ADDS, OCTETS, i, lane, RPI_WARP);
}

template <int TYPE, bool ADDS> static rpi_list_kernel decode_of(const rpi_device_call *call) {
    if (rpi_quant_is_held(call, 2)) return decode_held<TYPE, ADDS, 2>;
    if (rpi_quant_is_held(call, 4)) return decode_held<TYPE, ADDS, 4>;
    return rpi_group_is_block(call) ? decode<TYPE, ADDS, RPI_BLOCK>
                                    : decode<TYPE, ADDS, RPI_WARP>;
}

namespace {
struct family {
    template <int TYPE> static rpi_list_kernel of(const rpi_device_call *call) {
        return decode_of<TYPE, false>(call);
    }
};
} // namespace

/* Sums are floats, whatever the type of the data. */
rpi_list_kernel rpi_quant_decoder(const rpi_device_call *call, int adds) {
    return adds ? decode_of<RPI_DEVICE_F32, true>(call)
                : rpi_list_kernel_for<family>(call->type, call);
}
