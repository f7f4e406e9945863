/* What all threads of a block find together. Only for kernels; all threads come. */
#ifndef RPI_CUDA_BLOCK_H
#define RPI_CUDA_BLOCK_H

#include "cuda/group.h"

/* The sum of the lanes before this one and its own. */
template <typename NUMBER> static __device__ inline NUMBER rpi_warp_sums(NUMBER number) {
    for (int distance = 1; distance < RPI_WARP; distance *= 2) {
        NUMBER other = __shfl_up_sync(0xffffffffu, number, distance);
        if (rpi_group_lane<RPI_WARP>() >= distance) number += other;
    }
    return number;
}

/* The sum of the threads before this one; and that of all. */
template <int THREADS, typename NUMBER>
static __device__ inline NUMBER rpi_block_before(NUMBER own, NUMBER *total) {
    __shared__ NUMBER of_warp[THREADS / RPI_WARP];
    int warp = threadIdx.x / RPI_WARP;
    NUMBER sums = rpi_warp_sums(own), before = sums - own;
    __syncthreads(); /* those of the call before have been read */
    if (rpi_group_lane<RPI_WARP>() == RPI_WARP - 1) of_warp[warp] = sums;
    __syncthreads();
    *total = 0;
    for (int i = 0; i < THREADS / RPI_WARP; i++) {
        if (i == warp) before += *total;
        *total += of_warp[i];
    }
    return before;
}

#endif
