/* q1 to q8: a warp for each bucket, which keeps it in registers where it is not too long, a
 * block where buckets are large. Where it is kept nowhere (stochastic rounding computes more
 * than it reads), the second half of an encoding finds its elements in the cache. */
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

template <int TYPE, bool FEEDBACK, int OCTETS>
static __global__ void encode_held(rpi_device_call call) {
    int lane = rpi_group_lane<RPI_WARP>();
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = rpi_group_first<RPI_WARP>(); i < buckets;
         i += rpi_group_count<RPI_WARP>()) {
        rpi_quant_held held;
        rpi_quant_range range = rpi_warp_join(
            rpi_quant_lane_take(&call, TYPE, FEEDBACK, OCTETS, i, lane, RPI_WARP, &held));
        rpi_quant_lane_put(&call, FEEDBACK, 0, OCTETS, i, range, lane, RPI_WARP, &held);
    }
}

template <int TYPE, bool ADDS, int OCTETS>
static __global__ void decode_held(rpi_device_call call) {
    int lane = rpi_group_lane<RPI_WARP>();
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = rpi_group_first<RPI_WARP>(); i < buckets;
         i += rpi_group_count<RPI_WARP>())
        rpi_quant_lane_unpack(&call, TYPE, ADDS, OCTETS, i, lane, RPI_WARP);
}

static bool is_held(const rpi_device_call *call, int octets) {
    return call->bucket <= (uint64_t)octets * RPI_WARP * RPI_OCTET;
}

template <int TYPE, bool FEEDBACK, bool STOCHASTIC>
static rpi_cuda_kernel encode_of(const rpi_device_call *call) {
    if (!STOCHASTIC && is_held(call, 2)) return encode_held<TYPE, FEEDBACK, 2>;
    if (!STOCHASTIC && is_held(call, 4)) return encode_held<TYPE, FEEDBACK, 4>;
    return rpi_group_is_block(call) ? encode<TYPE, FEEDBACK, STOCHASTIC, RPI_BLOCK>
                                    : encode<TYPE, FEEDBACK, STOCHASTIC, RPI_WARP>;
}

struct encode_family {
    template <int TYPE> static rpi_cuda_kernel of(const rpi_device_call *call) {
        if (call->residual)
            return call->stochastic ? encode_of<TYPE, true, true>(call)
                                    : encode_of<TYPE, true, false>(call);
        return call->stochastic ? encode_of<TYPE, false, true>(call)
                                : encode_of<TYPE, false, false>(call);
    }
};

template <int TYPE, bool ADDS> static rpi_cuda_kernel decode_of(const rpi_device_call *call) {
    if (is_held(call, 2)) return decode_held<TYPE, ADDS, 2>;
    if (is_held(call, 4)) return decode_held<TYPE, ADDS, 4>;
    return rpi_group_is_block(call) ? decode<TYPE, ADDS, RPI_BLOCK>
                                    : decode<TYPE, ADDS, RPI_WARP>;
}

struct decode_family {
    template <int TYPE> static rpi_cuda_kernel of(const rpi_device_call *call) {
        return decode_of<TYPE, false>(call);
    }
};

cudaError_t rpi_quant_launch_encode(const rpi_device_call *call, cudaStream_t stream) {
    return rpi_group_launch(rpi_kernel_for<encode_family>(call->type, call), call, stream);
}

/* Sums are floats, whatever the type of the data. */
cudaError_t rpi_quant_launch_decode(const rpi_device_call *call, int adds,
                                    cudaStream_t stream) {
    rpi_cuda_kernel kernel = adds ? decode_of<RPI_DEVICE_F32, true>(call)
                                  : rpi_kernel_for<decode_family>(call->type, call);
    return rpi_group_launch(kernel, call, stream);
}
