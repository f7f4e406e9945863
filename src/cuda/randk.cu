/* randk: a group of threads for each bucket. */
#include "cuda/group.h"
#include "cuda/randk_lanes.h"

template <int TYPE, bool FEEDBACK, int LANES>
static __global__ void encode(const __grid_constant__ rpi_device_list list) {
    rpi_each_bucket<LANES>(list, [](const rpi_device_call *call, uint64_t i, int lane) {
        rpi_quant_range range =
            rpi_group_join<LANES>(rpi_randk_lane_look(call, TYPE, FEEDBACK, i, lane, LANES));
        rpi_randk_lane_values(call, TYPE, FEEDBACK, i, &range, lane, LANES);
        if (!FEEDBACK) return;
        rpi_group_meet<LANES>(); /* all residuals have been read */
        rpi_randk_lane_settle(call, TYPE, i, &range, lane, LANES);
    });
}

template <int TYPE, bool ADDS, int LANES>
static __global__ void decode(const __grid_constant__ rpi_device_list list) {
    rpi_each_bucket<LANES>(list, [](const rpi_device_call *call, uint64_t i, int lane) {
        rpi_quant_range damage = rpi_quant_no_range();
        damage.has_nan = rpi_randk_lane_damage(call, i, lane, LANES);
        damage = rpi_group_join<LANES>(damage);
        rpi_randk_lane_decode(call, TYPE, ADDS, i, damage.has_nan, lane, LANES);
    });
}

template <int TYPE, bool FEEDBACK>
static rpi_list_kernel encode_of(const rpi_device_call *call) {
    return rpi_group_is_block(call) ? encode<TYPE, FEEDBACK, RPI_BLOCK>
                                    : encode<TYPE, FEEDBACK, RPI_WARP>;
}

template <int TYPE, bool ADDS> static rpi_list_kernel decode_of(const rpi_device_call *call) {
    return rpi_group_is_block(call) ? decode<TYPE, ADDS, RPI_BLOCK>
                                    : decode<TYPE, ADDS, RPI_WARP>;
}

cudaError_t rpi_randk_launch_encode(rpi_device_list *list, cudaStream_t stream) {
    const rpi_device_call *first = &list->call[0];
    rpi_list_kernel kernel = rpi_for_type(first->type, [&](auto type) {
        return first->residual ? encode_of<type.value, true>(first)
                               : encode_of<type.value, false>(first);
    });
    return rpi_group_launch(kernel, list, stream);
}

/* Sums are floats, whatever the type of the data. */
cudaError_t rpi_randk_launch_decode(rpi_device_list *list, int adds, cudaStream_t stream) {
    const rpi_device_call *first = &list->call[0];
    rpi_list_kernel kernel = adds ? decode_of<RPI_DEVICE_F32, true>(first)
                                  : rpi_for_type(first->type, [&](auto type) {
                                        return decode_of<type.value, false>(first);
                                    });
    return rpi_group_launch(kernel, list, stream);
}
