/* randk: a group of threads for each bucket. */
#include "cuda/group.h"
#include "cuda/randk_lanes.h"

template <int TYPE, bool FEEDBACK, int LANES>
static __global__ void encode(const __grid_constant__ rpi_device_list list) {
    rpi_list_place place = rpi_place_in(list);
    const rpi_device_call &call = *place.call;
    int lane = rpi_group_lane<LANES>();
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = rpi_group_first<LANES>(place); i < buckets;
         i += rpi_group_count<LANES>(place)) {
        rpi_quant_range range =
            rpi_group_join<LANES>(rpi_randk_lane_look(&call, TYPE, FEEDBACK, i, lane, LANES));
        rpi_randk_lane_values(&call, TYPE, FEEDBACK, i, &range, lane, LANES);
        if (!FEEDBACK) continue;
        rpi_group_meet<LANES>(); /* all residuals have been read */
        rpi_randk_lane_settle(&call, TYPE, i, &range, lane, LANES);
    }
}

template <int TYPE, bool ADDS, int LANES>
static __global__ void decode(const __grid_constant__ rpi_device_list list) {
    rpi_list_place place = rpi_place_in(list);
    const rpi_device_call &call = *place.call;
    int lane = rpi_group_lane<LANES>();
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = rpi_group_first<LANES>(place); i < buckets;
         i += rpi_group_count<LANES>(place)) {
        rpi_quant_range damage = rpi_quant_no_range();
        damage.has_nan = rpi_randk_lane_damage(&call, i, lane, LANES);
        damage = rpi_group_join<LANES>(damage);
        rpi_randk_lane_decode(&call, TYPE, ADDS, i, damage.has_nan, lane, LANES);
    }
}

namespace {
struct encode_family {
    template <int TYPE> static rpi_list_kernel of(const rpi_device_call *call) {
        if (rpi_group_is_block(call))
            return call->residual ? encode<TYPE, true, RPI_BLOCK>
                                  : encode<TYPE, false, RPI_BLOCK>;
        return call->residual ? encode<TYPE, true, RPI_WARP> : encode<TYPE, false, RPI_WARP>;
    }
};
} // namespace

template <int TYPE, bool ADDS> static rpi_list_kernel decode_of(const rpi_device_call *call) {
    return rpi_group_is_block(call) ? decode<TYPE, ADDS, RPI_BLOCK>
                                    : decode<TYPE, ADDS, RPI_WARP>;
}

namespace {
struct decode_family {
    template <int TYPE> static rpi_list_kernel of(const rpi_device_call *call) {
        return decode_of<TYPE, false>(call);
    }
};
} // namespace

cudaError_t rpi_randk_launch_encode(rpi_device_list *list, cudaStream_t stream) {
    return rpi_group_launch(
        rpi_list_kernel_for<encode_family>(list->call[0].type, &list->call[0]), list, stream);
}

/* Sums are floats, whatever the type of the data. */
cudaError_t rpi_randk_launch_decode(rpi_device_list *list, int adds, cudaStream_t stream) {
    rpi_list_kernel kernel =
        adds ? decode_of<RPI_DEVICE_F32, true>(&list->call[0])
             : rpi_list_kernel_for<decode_family>(list->call[0].type, &list->call[0]);
    return rpi_group_launch(kernel, list, stream);
}
