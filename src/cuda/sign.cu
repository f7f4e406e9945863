/* sign: half a warp for each bucket, since the mean is a sum by 16 lanes. */
#include "cuda/kernels.h"
#include "cuda/sign_lanes.h"

/* Lane 0 has what rpi_sign_fold() gives; then all of the group do. */
static __device__ float fold(float sum) {
    for (int half = RPI_SIGN_GROUP / 2; half; half /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, half, RPI_SIGN_GROUP);
    return __shfl_sync(0xffffffffu, sum, 0, RPI_SIGN_GROUP);
}

/* Both halves of a warp go through as many tiles, for their shuffles: a bucket past the end has
 * no elements. */
template <int TYPE, bool FEEDBACK> static __global__ void encode(rpi_device_call call) {
    int lane = threadIdx.x % RPI_SIGN_GROUP;
    uint64_t buckets = rpi_device_buckets(&call),
             tiles = (call.bucket + RPI_SIGN_TILE - 1) / RPI_SIGN_TILE;
    uint64_t groups = (uint64_t)gridDim.x * (RPI_BLOCK / RPI_SIGN_GROUP);
    uint64_t first = (uint64_t)blockIdx.x * (RPI_BLOCK / RPI_SIGN_GROUP);
    for (uint64_t of_block = first; of_block < buckets; of_block += groups) {
        uint64_t i = of_block + threadIdx.x / RPI_SIGN_GROUP;
        uint64_t count = i < buckets ? rpi_device_bucket_count(&call, i) : 0;
        double sum = 0;
        for (uint64_t tile = 0; tile < tiles; tile++) {
            uint64_t begin = tile * RPI_SIGN_TILE;
            float mine =
                begin < count ? rpi_sign_lane_sum(&call, TYPE, FEEDBACK, i, begin, lane) : 0.0f;
            float whole = fold(mine);
            if (begin < count) sum += (double)whole;
        }
        if (count)
            rpi_sign_lane_encode(&call, TYPE, FEEDBACK, i, rpi_sign_mean(sum, count), lane);
    }
}

template <int TYPE, bool ADDS> static __global__ void decode(rpi_device_call call) {
    int lane = threadIdx.x % RPI_SIGN_GROUP;
    uint64_t buckets = rpi_device_buckets(&call);
    uint64_t groups = (uint64_t)gridDim.x * (RPI_BLOCK / RPI_SIGN_GROUP);
    uint64_t i =
        (uint64_t)blockIdx.x * (RPI_BLOCK / RPI_SIGN_GROUP) + threadIdx.x / RPI_SIGN_GROUP;
    for (; i < buckets; i += groups) rpi_sign_lane_decode(&call, TYPE, ADDS, i, lane);
}

typedef void (*kernel)(rpi_device_call);

template <int TYPE> static kernel encode_of(const rpi_device_call *call) {
    return call->residual ? encode<TYPE, true> : encode<TYPE, false>;
}

static kernel decode_to(const rpi_device_call *call, int adds) {
    if (adds) return decode<RPI_DEVICE_F32, true>;
    switch (call->type) {
    case RPI_DEVICE_F16: return decode<RPI_DEVICE_F16, false>;
    case RPI_DEVICE_BF16: return decode<RPI_DEVICE_BF16, false>;
    default: return decode<RPI_DEVICE_F32, false>;
    }
}

static cudaError_t launch(kernel chosen, const rpi_device_call *call, cudaStream_t stream) {
    unsigned blocks = rpi_blocks_for(rpi_device_buckets(call), RPI_BLOCK / RPI_SIGN_GROUP);
    (void)cudaGetLastError(); /* of what came before, and was told */
    chosen<<<blocks, RPI_BLOCK, 0, stream>>>(*call);
    return cudaGetLastError();
}

cudaError_t rpi_sign_launch_encode(const rpi_device_call *call, cudaStream_t stream) {
    switch (call->type) {
    case RPI_DEVICE_F16: return launch(encode_of<RPI_DEVICE_F16>(call), call, stream);
    case RPI_DEVICE_BF16: return launch(encode_of<RPI_DEVICE_BF16>(call), call, stream);
    default: return launch(encode_of<RPI_DEVICE_F32>(call), call, stream);
    }
}

cudaError_t rpi_sign_launch_decode(const rpi_device_call *call, int adds, cudaStream_t stream) {
    return launch(decode_to(call, adds), call, stream);
}
