/* q1 to q8 decoded: a warp for each bucket, all of its bytes read before one is used where it
 * is not too long; a block where buckets are large. */
#include "cuda/quant_launch.h"

template <int TYPE, bool ADDS, int LANES>
static __global__ void decode(const __grid_constant__ rpi_device_list list) {
    rpi_each_bucket<LANES>(list, [](const rpi_device_call *call, uint64_t i, int lane) {
        rpi_quant_lane_decode(call, TYPE, ADDS, i, lane, LANES);
    });
}

template <int TYPE, bool ADDS, int OCTETS>
static __global__ void decode_held(const __grid_constant__ rpi_device_list list) {
    rpi_each_bucket<RPI_WARP>(list, [](const rpi_device_call *call, uint64_t i, int lane) {
        rpi_quant_lane_unpack(call, TYPE, ADDS, OCTETS, i, lane, RPI_WARP);
    });
}

template <int TYPE, bool ADDS> static rpi_list_kernel decode_of(const rpi_device_call *call) {
    if (rpi_quant_is_held(call, 2)) return decode_held<TYPE, ADDS, 2>;
    if (rpi_quant_is_held(call, 4)) return decode_held<TYPE, ADDS, 4>;
    return rpi_group_is_block(call) ? decode<TYPE, ADDS, RPI_BLOCK>
                                    : decode<TYPE, ADDS, RPI_WARP>;
}

/* Sums are floats, whatever the type of the data. */
rpi_list_kernel rpi_quant_decoder(const rpi_device_call *call, int adds) {
    if (adds) return decode_of<RPI_DEVICE_F32, true>(call);
    return rpi_for_type(call->type,
                        [&](auto type) { return decode_of<type.value, false>(call); });
}
