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
template <int TYPE, bool FEEDBACK>
static __global__ void encode(const __grid_constant__ rpi_device_list list) {
    rpi_list_place place = rpi_place_in(list);
    const rpi_device_call &call = *place.call;
    int lane = threadIdx.x % RPI_SIGN_GROUP;
    uint64_t buckets = rpi_device_buckets(&call),
             tiles = (call.bucket + RPI_SIGN_TILE - 1) / RPI_SIGN_TILE;
    uint64_t groups = (uint64_t)place.blocks * (RPI_BLOCK / RPI_SIGN_GROUP);
    uint64_t first = (uint64_t)place.block * (RPI_BLOCK / RPI_SIGN_GROUP);
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

template <int TYPE, bool ADDS>
static __global__ void decode(const __grid_constant__ rpi_device_list list) {
    rpi_list_place place = rpi_place_in(list);
    const rpi_device_call &call = *place.call;
    int lane = threadIdx.x % RPI_SIGN_GROUP;
    uint64_t buckets = rpi_device_buckets(&call);
    uint64_t groups = (uint64_t)place.blocks * (RPI_BLOCK / RPI_SIGN_GROUP);
    uint64_t i =
        (uint64_t)place.block * (RPI_BLOCK / RPI_SIGN_GROUP) + threadIdx.x / RPI_SIGN_GROUP;
    for (; i < buckets; i += groups) rpi_sign_lane_decode(&call, TYPE, ADDS, i, lane);
}

static cudaError_t launch(rpi_list_kernel kernel, rpi_device_list *list, cudaStream_t stream) {
    return rpi_list_launch(kernel, list, rpi_device_buckets, RPI_BLOCK / RPI_SIGN_GROUP,
                           stream);
}

cudaError_t rpi_sign_launch_encode(rpi_device_list *list, cudaStream_t stream) {
    const rpi_device_call *first = &list->call[0];
    rpi_list_kernel kernel = rpi_for_type(first->type, [&](auto type) {
        return first->residual ? encode<type.value, true> : encode<type.value, false>;
    });
    return launch(kernel, list, stream);
}

/* Sums are floats, whatever the type of the data. */
cudaError_t rpi_sign_launch_decode(rpi_device_list *list, int adds, cudaStream_t stream) {
    rpi_list_kernel kernel = decode<RPI_DEVICE_F32, true>;
    if (!adds)
        kernel = rpi_for_type(list->call[0].type,
                              [](auto type) { return decode<type.value, false>; });
    return launch(kernel, list, stream);
}
