/* q1 to q8 rounded stochastically: a warp for each bucket, a block where they are large. It
 * computes more than it reads: the second half finds its elements in the cache. */
#include "cuda/quant_launch.h"

template <int TYPE, bool FEEDBACK, int LANES>
static __global__ void encode(const __grid_constant__ rpi_device_list list) {
    rpi_list_place place = rpi_place_in(list);
    const rpi_device_call &call = *place.call;
    int lane = rpi_group_lane<LANES>();
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = rpi_group_first<LANES>(place); i < buckets;
         i += rpi_group_count<LANES>(place)) {
        rpi_quant_range range =
            rpi_group_join<LANES>(rpi_quant_lane_range(&call, TYPE, FEEDBACK, i, lane, LANES));
        rpi_quant_lane_encode(&call, TYPE, FEEDBACK, 1, i, range, lane, LANES);
    }
}

template <int TYPE, bool FEEDBACK>
static rpi_list_kernel kernel_of(const rpi_device_call *call) {
    return rpi_quant_encode_lanes(call) == RPI_WARP ? encode<TYPE, FEEDBACK, RPI_WARP>
                                                    : encode<TYPE, FEEDBACK, RPI_BLOCK>;
}

namespace {
struct family {
    template <int TYPE> static rpi_list_kernel of(const rpi_device_call *call) {
        return call->residual ? kernel_of<TYPE, true>(call) : kernel_of<TYPE, false>(call);
    }
};
} // namespace

rpi_list_kernel rpi_quant_stochastic(const rpi_device_call *call) {
    return rpi_list_kernel_for<family>(call->type, call);
}
