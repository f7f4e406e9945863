/* q1 to q8 rounded stochastically: a warp for each bucket, a block where they are large. It
 * computes more than it reads: the second half finds its elements in the cache. */
#include "cuda/quant_launch.h"

template <int TYPE, bool FEEDBACK, int LANES>
static __global__ void encode(const __grid_constant__ rpi_device_list list) {
    rpi_each_bucket<LANES>(list, [](const rpi_device_call *call, uint64_t i, int lane) {
        rpi_quant_range range =
            rpi_group_join<LANES>(rpi_quant_lane_range(call, TYPE, FEEDBACK, i, lane, LANES));
        rpi_quant_lane_encode(call, TYPE, FEEDBACK, 1, i, range, lane, LANES);
    });
}

template <int TYPE, bool FEEDBACK>
static rpi_list_kernel kernel_of(const rpi_device_call *call) {
    return rpi_quant_encode_lanes(call) == RPI_WARP ? encode<TYPE, FEEDBACK, RPI_WARP>
                                                    : encode<TYPE, FEEDBACK, RPI_BLOCK>;
}

rpi_list_kernel rpi_quant_stochastic(const rpi_device_call *call) {
    return rpi_for_type(call->type, [&](auto type) {
        return call->residual ? kernel_of<type.value, true>(call)
                              : kernel_of<type.value, false>(call);
    });
}
