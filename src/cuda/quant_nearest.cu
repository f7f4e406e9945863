/* q1 to q8 to the nearest level: a warp for each bucket, which keeps it in registers where it
 * is not too long, a block where buckets are large. Where it is kept nowhere the second half of
 * an encoding finds its elements in the cache. */
#include "cuda/quant_launch.h"

template <int TYPE, bool FEEDBACK>
static __global__ void encode(const __grid_constant__ rpi_device_list list) {
    rpi_each_bucket<RPI_BLOCK>(list, [](const rpi_device_call *call, uint64_t i, int lane) {
        rpi_quant_range range = rpi_group_join<RPI_BLOCK>(
            rpi_quant_lane_range(call, TYPE, FEEDBACK, i, lane, RPI_BLOCK));
        rpi_quant_lane_encode(call, TYPE, FEEDBACK, 0, i, range, lane, RPI_BLOCK);
    });
}

template <int TYPE, bool FEEDBACK, int OCTETS>
static __global__ void encode_held(const __grid_constant__ rpi_device_list list) {
    rpi_each_bucket<RPI_WARP>(list, [](const rpi_device_call *call, uint64_t i, int lane) {
        rpi_quant_held held;
        rpi_quant_range range = rpi_warp_join(
            rpi_quant_lane_take(call, TYPE, FEEDBACK, OCTETS, i, lane, RPI_WARP, &held));
        rpi_quant_lane_put(call, FEEDBACK, 0, OCTETS, i, range, lane, RPI_WARP, &held);
    });
}

template <int TYPE, bool FEEDBACK>
static rpi_list_kernel kernel_of(const rpi_device_call *call) {
    if (rpi_quant_is_held(call, 2)) return encode_held<TYPE, FEEDBACK, 2>;
    if (rpi_quant_is_held(call, RPI_QUANT_HELD))
        return encode_held<TYPE, FEEDBACK, RPI_QUANT_HELD>;
    return encode<TYPE, FEEDBACK>;
}

rpi_list_kernel rpi_quant_nearest(const rpi_device_call *call) {
    return rpi_for_type(call->type, [&](auto type) {
        return call->residual ? kernel_of<type.value, true>(call)
                              : kernel_of<type.value, false>(call);
    });
}
