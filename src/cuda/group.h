/* Groups of threads that work on one bucket together: a warp, or a block where buckets are
 * large. Only for kernels. All threads of a group go through the same buckets, so that they can
 * meet. */
#ifndef RPI_CUDA_GROUP_H
#define RPI_CUDA_GROUP_H

#include "cuda/kernels.h"
#include "cuda/quant_lanes.h"

enum { RPI_WARP = 32, RPI_LARGE_BUCKET = 4096 };

template <int LANES> static __device__ inline int rpi_group_lane(void) {
    return threadIdx.x % LANES;
}
/* The bucket that this thread's group begins with, and how many groups there are. */
template <int LANES> static __device__ inline uint64_t rpi_group_first(void) {
    return (uint64_t)blockIdx.x * (RPI_BLOCK / LANES) + threadIdx.x / LANES;
}
template <int LANES> static __device__ inline uint64_t rpi_group_count(void) {
    return (uint64_t)gridDim.x * (RPI_BLOCK / LANES);
}

/* Nobody goes on before all have come, and sees what they have written. */
template <int LANES> static __device__ inline void rpi_group_meet(void) {
    if (LANES == RPI_WARP)
        __syncwarp();
    else
        __syncthreads();
}

static __device__ inline rpi_quant_range rpi_warp_join(rpi_quant_range range) {
    for (int distance = RPI_WARP / 2; distance; distance /= 2) {
        rpi_quant_range other;
        other.min = __shfl_xor_sync(0xffffffffu, range.min, distance);
        other.max = __shfl_xor_sync(0xffffffffu, range.max, distance);
        other.has_nan = __shfl_xor_sync(0xffffffffu, range.has_nan, distance);
        range = rpi_quant_join(range, other);
    }
    return range;
}

static __device__ inline rpi_quant_range rpi_block_join(rpi_quant_range range) {
    __shared__ rpi_quant_range of_warp[RPI_BLOCK / RPI_WARP];
    range = rpi_warp_join(range);
    __syncthreads(); /* that of the bucket before has been read */
    if (threadIdx.x % RPI_WARP == 0) of_warp[threadIdx.x / RPI_WARP] = range;
    __syncthreads();
    for (int i = 0; i < RPI_BLOCK / RPI_WARP; i++) range = rpi_quant_join(range, of_warp[i]);
    return range;
}

/* What all threads of the group have found, together; all have read what they looked at. */
template <int LANES>
static __device__ inline rpi_quant_range rpi_group_join(rpi_quant_range range) {
    return LANES == RPI_WARP ? rpi_warp_join(range) : rpi_block_join(range);
}

static inline bool rpi_group_is_block(const rpi_device_call *call) {
    return call->bucket > RPI_LARGE_BUCKET;
}

/* A kernel of groups, over all buckets. */
static inline cudaError_t rpi_group_launch(rpi_kernel kernel, const rpi_device_call *call,
                                           cudaStream_t stream) {
    unsigned a_block = rpi_group_is_block(call) ? 1 : RPI_BLOCK / RPI_WARP;
    return rpi_kernel_launch(kernel, rpi_blocks_for(rpi_device_buckets(call), a_block), call,
                             stream);
}

#endif
