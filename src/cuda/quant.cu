/* q1 to q8: a warp for each bucket, a block where buckets are large. The second half of an
 * encoding finds its elements in the cache. */
#include "cuda/group.h"

template <int TYPE, bool FEEDBACK, bool STOCHASTIC, int LANES>
static __global__ void encode(rpi_device_call call) {
    int lane = rpi_group_lane<LANES>();
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = rpi_group_first<LANES>(); i < buckets; i += rpi_group_count<LANES>()) {
        rpi_quant_range range =
            rpi_group_join<LANES>(rpi_quant_lane_range(&call, TYPE, FEEDBACK, i, lane, LANES));
        rpi_quant_lane_encode(&call, TYPE, FEEDBACK, STOCHASTIC, i, range, lane, LANES);
    }
}

template <int TYPE, bool ADDS, int LANES> static __global__ void decode(rpi_device_call call) {
    int lane = rpi_group_lane<LANES>();
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = rpi_group_first<LANES>(); i < buckets; i += rpi_group_count<LANES>())
        rpi_quant_lane_decode(&call, TYPE, ADDS, i, lane, LANES);
}

template <int TYPE, bool FEEDBACK, bool STOCHASTIC>
static rpi_group_kernel encode_of(const rpi_device_call *call) {
    return rpi_group_is_block(call) ? encode<TYPE, FEEDBACK, STOCHASTIC, RPI_BLOCK>
                                    : encode<TYPE, FEEDBACK, STOCHASTIC, RPI_WARP>;
}

template <int TYPE> static rpi_group_kernel encode_from(const rpi_device_call *call) {
    if (call->residual)
        return call->stochastic ? encode_of<TYPE, true, true>(call)
                                : encode_of<TYPE, true, false>(call);
    return call->stochastic ? encode_of<TYPE, false, true>(call)
                            : encode_of<TYPE, false, false>(call);
}

template <int TYPE, bool ADDS> static rpi_group_kernel decode_of(const rpi_device_call *call) {
    return rpi_group_is_block(call) ? decode<TYPE, ADDS, RPI_BLOCK>
                                    : decode<TYPE, ADDS, RPI_WARP>;
}

static rpi_group_kernel decode_to(const rpi_device_call *call, int adds) {
    if (adds) return decode_of<RPI_DEVICE_F32, true>(call);
    switch (call->type) {
    case RPI_DEVICE_F16: return decode_of<RPI_DEVICE_F16, false>(call);
    case RPI_DEVICE_BF16: return decode_of<RPI_DEVICE_BF16, false>(call);
    default: return decode_of<RPI_DEVICE_F32, false>(call);
    }
}

cudaError_t rpi_quant_launch_encode(const rpi_device_call *call, cudaStream_t stream) {
    switch (call->type) {
    case RPI_DEVICE_F16:
        return rpi_group_launch(encode_from<RPI_DEVICE_F16>(call), call, stream);
    case RPI_DEVICE_BF16:
        return rpi_group_launch(encode_from<RPI_DEVICE_BF16>(call), call, stream);
    default: return rpi_group_launch(encode_from<RPI_DEVICE_F32>(call), call, stream);
    }
}

cudaError_t rpi_quant_launch_decode(const rpi_device_call *call, int adds,
                                    cudaStream_t stream) {
    return rpi_group_launch(decode_to(call, adds), call, stream);
}
