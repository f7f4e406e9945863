/* q1 to q8: a warp for each bucket, which keeps it in registers where it is not too long, a
 * block where buckets are large, which keeps up to 8192 elements so. Where it is kept nowhere
 * (stochastic rounding computes more than it reads), the second half of an encoding finds its
 * elements in the cache. */
#include "cuda/group.h"
#include "cuda/quant_whole_lanes.h"

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

/* A bucket that is not whole, or of which every element is the same, or nearly so. */
template <int TYPE, bool FEEDBACK, int LANES>
static __device__ __noinline__ void encode_odd(const rpi_device_call *call, uint64_t bucket) {
    int lane = rpi_group_lane<LANES>();
    rpi_quant_range range =
        rpi_group_join<LANES>(rpi_quant_lane_range(call, TYPE, FEEDBACK, bucket, lane, LANES));
    rpi_quant_lane_encode(call, TYPE, FEEDBACK, 0, bucket, range, lane, LANES);
}

template <int TYPE, bool FEEDBACK, int OCTETS, int LANES>
static __global__ void __launch_bounds__(RPI_BLOCK)
    encode_whole(const __grid_constant__ rpi_device_call call) {
    const uint64_t bucket = (uint64_t)OCTETS * LANES * RPI_OCTET;
    int lane = rpi_group_lane<LANES>();
    uint64_t whole = call.count / bucket, buckets = whole + (call.count % bucket != 0);
    for (uint64_t i = rpi_group_first<LANES>(); i < buckets; i += rpi_group_count<LANES>()) {
        rpi_quant_held held;
        if (i == whole) {
            encode_odd<TYPE, FEEDBACK, LANES>(&call, i);
            continue;
        }
        rpi_quant_range range = rpi_group_join<LANES>(
            rpi_quant_whole_take(&call, TYPE, FEEDBACK, OCTETS, i, lane, LANES, &held));
        rpi_quant_scale scale = rpi_quant_scale_of(&range, call.bits);
        rpi_divisor unit = rpi_divisor_of(scale.unit);
        if (unit.divides)
            encode_odd<TYPE, FEEDBACK, LANES>(&call, i);
        else
            rpi_quant_whole_put(&call, FEEDBACK, OCTETS, i, scale, unit, lane, LANES, &held);
    }
}

static bool is_held(const rpi_device_call *call, int octets) {
    return call->bucket <= (uint64_t)octets * RPI_WARP * RPI_OCTET;
}

/* NULL: its buckets are not whole. */
template <int TYPE, bool FEEDBACK, int LANES>
static rpi_cuda_kernel encode_whole_of(const rpi_device_call *call) {
    switch (rpi_quant_whole_octets(call, LANES)) {
    case 2: return encode_whole<TYPE, FEEDBACK, 2, LANES>;
    case RPI_QUANT_HELD: return encode_whole<TYPE, FEEDBACK, RPI_QUANT_HELD, LANES>;
    default: return NULL;
    }
}

/* A warp holds no bucket beyond this one: it would read it twice, and is no match for a block
 * there. */
static int encode_lanes(const rpi_device_call *call) {
    if (is_held(call, RPI_QUANT_HELD)) return RPI_WARP;
    return RPI_BLOCK;
}

template <int TYPE, bool FEEDBACK, bool STOCHASTIC>
static rpi_cuda_kernel encode_of(const rpi_device_call *call) {
    bool by_warp = encode_lanes(call) == RPI_WARP;
    rpi_cuda_kernel whole = STOCHASTIC ? NULL
                            : by_warp  ? encode_whole_of<TYPE, FEEDBACK, RPI_WARP>(call)
                                       : encode_whole_of<TYPE, FEEDBACK, RPI_BLOCK>(call);
    if (whole) return whole;
    if (!STOCHASTIC && is_held(call, 2)) return encode_held<TYPE, FEEDBACK, 2>;
    if (!STOCHASTIC && is_held(call, 4)) return encode_held<TYPE, FEEDBACK, 4>;
    return STOCHASTIC && by_warp ? encode<TYPE, FEEDBACK, true, RPI_WARP>
                                 : encode<TYPE, FEEDBACK, STOCHASTIC, RPI_BLOCK>;
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
    return rpi_group_launch_by(encode_lanes(call),
                               rpi_kernel_for<encode_family>(call->type, call), call, stream);
}

/* Sums are floats, whatever the type of the data. */
cudaError_t rpi_quant_launch_decode(const rpi_device_call *call, int adds,
                                    cudaStream_t stream) {
    rpi_cuda_kernel kernel = adds ? decode_of<RPI_DEVICE_F32, true>(call)
                                  : rpi_kernel_for<decode_family>(call->type, call);
    return rpi_group_launch(kernel, call, stream);
}
