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
template <int LANES>
static __device__ inline uint64_t rpi_group_first(const rpi_list_place &place) {
    return (uint64_t)place.block * (RPI_BLOCK / LANES) + threadIdx.x / LANES;
}
template <int LANES>
static __device__ inline uint64_t rpi_group_count(const rpi_list_place &place) {
    return (uint64_t)place.blocks * (RPI_BLOCK / LANES);
}

/* of(call, bucket, lane) for each bucket of this thread's group. */
template <int LANES, typename OF>
static __device__ __forceinline__ void rpi_each_bucket(const rpi_device_list &list, OF of) {
    rpi_list_place place = rpi_place_in(list);
    int lane = rpi_group_lane<LANES>();
    uint64_t buckets = rpi_device_buckets(place.call);
    for (uint64_t i = rpi_group_first<LANES>(place); i < buckets;
         i += rpi_group_count<LANES>(place))
        of(place.call, i, lane);
}

/* Nobody goes on before all have come, and sees what they have written. */
template <int LANES> static __device__ inline void rpi_group_meet(void) {
    if (LANES == RPI_WARP)
        __syncwarp();
    else
        __syncthreads();
}

/* Numbers whose order as integers is that of the floats, and back: neither is NaN. */
static __device__ inline int rpi_order_of(float value) {
    int bits = __float_as_int(value);
    return bits ^ (bits >> 31 & 0x7fffffff);
}
static __device__ inline float rpi_of_order(int order) {
    return __int_as_float(order ^ (order >> 31 & 0x7fffffff));
}

/* The least of a warp: by one instruction from GPUs of 8.0 on. */
static __device__ inline int rpi_warp_least(int number) {
    const unsigned all = 0xffffffffu;
#if __CUDA_ARCH__ >= 800
    return __reduce_min_sync(all, number);
#else
    for (int half = RPI_WARP / 2; half; half /= 2) {
        int other = __shfl_xor_sync(all, number, half);
        number = other < number ? other : number;
    }
    return number;
#endif
}

/* The greatest is the least in the order of ~number. */
static __device__ inline rpi_quant_range rpi_warp_join(rpi_quant_range range) {
    range.min = rpi_of_order(rpi_warp_least(rpi_order_of(range.min)));
    range.max = rpi_of_order(~rpi_warp_least(~rpi_order_of(range.max)));
    range.has_nan = __any_sync(0xffffffffu, range.has_nan);
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

/* A kernel of groups of so many threads, over all buckets. */
static inline cudaError_t rpi_group_launch_by(int lanes, rpi_list_kernel kernel,
                                              rpi_device_list *list, cudaStream_t stream) {
    return rpi_list_launch(kernel, list, rpi_device_buckets, RPI_BLOCK / (unsigned)lanes,
                           stream);
}

static inline cudaError_t rpi_group_launch(rpi_list_kernel kernel, rpi_device_list *list,
                                           cudaStream_t stream) {
    int lanes = RPI_WARP;
    if (rpi_group_is_block(&list->call[0])) lanes = RPI_BLOCK;
    return rpi_group_launch_by(lanes, kernel, list, stream);
}

#endif
