/* q1 to q8: a warp for each bucket, a block where buckets are large. The second half of an
 * encoding finds its elements in the cache. */
#include "cuda/kernels.h"
#include "cuda/quant_lanes.h"

enum { WARP = 32, LARGE_BUCKET = 4096 };

static __device__ rpi_quant_range join_warp(rpi_quant_range range) {
    for (int distance = WARP / 2; distance; distance /= 2) {
        rpi_quant_range other;
        other.min = __shfl_xor_sync(0xffffffffu, range.min, distance);
        other.max = __shfl_xor_sync(0xffffffffu, range.max, distance);
        other.has_nan = __shfl_xor_sync(0xffffffffu, range.has_nan, distance);
        range = rpi_quant_join(range, other);
    }
    return range;
}

static __device__ rpi_quant_range join_block(rpi_quant_range range) {
    __shared__ rpi_quant_range of_warp[RPI_BLOCK / WARP];
    range = join_warp(range);
    __syncthreads(); /* that of the bucket before has been read */
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = range;
    __syncthreads();
    for (int i = 0; i < RPI_BLOCK / WARP; i++) range = rpi_quant_join(range, of_warp[i]);
    return range;
}

/* LANES threads to a bucket: which one this thread's group begins with, and how many groups
 * there are. All threads of a group go through the same buckets. */
template <int LANES> static __device__ uint64_t first_bucket(void) {
    return (uint64_t)blockIdx.x * (RPI_BLOCK / LANES) + threadIdx.x / LANES;
}
template <int LANES> static __device__ uint64_t groups(void) {
    return (uint64_t)gridDim.x * (RPI_BLOCK / LANES);
}

template <int TYPE, bool FEEDBACK, bool STOCHASTIC, int LANES>
static __global__ void encode(rpi_device_call call) {
    int lane = threadIdx.x % LANES;
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = first_bucket<LANES>(); i < buckets; i += groups<LANES>()) {
        rpi_quant_range range = rpi_quant_lane_range(&call, TYPE, FEEDBACK, i, lane, LANES);
        range = LANES == WARP ? join_warp(range) : join_block(range);
        rpi_quant_lane_encode(&call, TYPE, FEEDBACK, STOCHASTIC, i, range, lane, LANES);
    }
}

template <int TYPE, bool ADDS, int LANES> static __global__ void decode(rpi_device_call call) {
    int lane = threadIdx.x % LANES;
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = first_bucket<LANES>(); i < buckets; i += groups<LANES>())
        rpi_quant_lane_decode(&call, TYPE, ADDS, i, lane, LANES);
}

typedef void (*kernel)(rpi_device_call);

static bool is_large(const rpi_device_call *call) {
    return call->bucket > LARGE_BUCKET;
}

template <int TYPE, bool FEEDBACK, bool STOCHASTIC>
static kernel encode_of(const rpi_device_call *call) {
    return is_large(call) ? encode<TYPE, FEEDBACK, STOCHASTIC, RPI_BLOCK>
                          : encode<TYPE, FEEDBACK, STOCHASTIC, WARP>;
}

template <int TYPE> static kernel encode_from(const rpi_device_call *call) {
    if (call->residual)
        return call->stochastic ? encode_of<TYPE, true, true>(call)
                                : encode_of<TYPE, true, false>(call);
    return call->stochastic ? encode_of<TYPE, false, true>(call)
                            : encode_of<TYPE, false, false>(call);
}

template <int TYPE, bool ADDS> static kernel decode_of(const rpi_device_call *call) {
    return is_large(call) ? decode<TYPE, ADDS, RPI_BLOCK> : decode<TYPE, ADDS, WARP>;
}

static kernel decode_to(const rpi_device_call *call, int adds) {
    if (adds) return decode_of<RPI_DEVICE_F32, true>(call);
    switch (call->type) {
    case RPI_DEVICE_F16: return decode_of<RPI_DEVICE_F16, false>(call);
    case RPI_DEVICE_BF16: return decode_of<RPI_DEVICE_BF16, false>(call);
    default: return decode_of<RPI_DEVICE_F32, false>(call);
    }
}

static cudaError_t launch(kernel chosen, const rpi_device_call *call, cudaStream_t stream) {
    unsigned a_block = is_large(call) ? 1 : RPI_BLOCK / WARP;
    unsigned blocks = rpi_blocks_for(rpi_device_buckets(call), a_block);
    chosen<<<blocks, RPI_BLOCK, 0, stream>>>(*call);
    return cudaPeekAtLastError();
}

cudaError_t rpi_quant_launch_encode(const rpi_device_call *call, cudaStream_t stream) {
    switch (call->type) {
    case RPI_DEVICE_F16: return launch(encode_from<RPI_DEVICE_F16>(call), call, stream);
    case RPI_DEVICE_BF16: return launch(encode_from<RPI_DEVICE_BF16>(call), call, stream);
    default: return launch(encode_from<RPI_DEVICE_F32>(call), call, stream);
    }
}

cudaError_t rpi_quant_launch_decode(const rpi_device_call *call, int adds,
                                    cudaStream_t stream) {
    return launch(decode_to(call, adds), call, stream);
}
