/* CUDA's words where the threads of a block are fibers of one thread of the CPU (fibers.h): the
 * kernels' own files (src/cuda/NAME.cu) are compiled with this in place of CUDA's header. */
#ifndef TESTS_CUDA_FIBERS_CUDA_RUNTIME_H
#define TESTS_CUDA_FIBERS_CUDA_RUNTIME_H

#include "cuda/fibers/fibers.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __noinline__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(threads)
#define __shared__ static /* blocks follow each other */

typedef int cudaError_t;
typedef void *cudaStream_t;
enum { cudaSuccess, cudaErrorInvalidValue, cudaMemcpyDefault };
struct cudaFuncAttributes {};

#define threadIdx (*fibers_thread())
#define blockIdx  (*fibers_block())
#define gridDim   (*fibers_blocks())
#define blockDim  (*fibers_threads())

static inline cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}
static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *, const void *kernel) {
    fibers_load(kernel);
    return cudaSuccess;
}
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int,
                                          cudaStream_t) {
    memcpy(to, from, bytes);
    return cudaSuccess;
}

static inline void __syncthreads(void) {
    fibers_meet();
}
static inline void __syncwarp(void) {
    fibers_meet_of_warp(0xffffffffu);
}

/* ---- what the lanes of a warp tell each other ---- */

template <typename VALUE>
static inline VALUE fibers_value_of(unsigned mask, VALUE own, unsigned lane) {
    static_assert(sizeof own <= sizeof(uint64_t), "a value goes through one word");
    uint64_t word = 0;
    memcpy(&word, &own, sizeof own);
    word = fibers_exchange(mask, word, lane);
    memcpy(&own, &word, sizeof own);
    return own;
}

static inline unsigned fibers_lane(void) {
    return threadIdx.x % 32;
}
template <typename VALUE>
static inline VALUE __shfl_sync(unsigned mask, VALUE own, int from, int width = 32) {
    unsigned row = (unsigned)width;
    return fibers_value_of(mask, own, fibers_lane() / row * row + (unsigned)from);
}
template <typename VALUE>
static inline VALUE __shfl_up_sync(unsigned mask, VALUE own, int distance) {
    unsigned lane = fibers_lane(), by = (unsigned)distance;
    return fibers_value_of(mask, own, lane < by ? lane : lane - by);
}
template <typename VALUE>
static inline VALUE __shfl_down_sync(unsigned mask, VALUE own, int distance, int width = 32) {
    unsigned lane = fibers_lane(), by = (unsigned)distance, row = (unsigned)width;
    return fibers_value_of(mask, own, lane % row + by < row ? lane + by : lane);
}
template <typename VALUE>
static inline VALUE __shfl_xor_sync(unsigned mask, VALUE own, int distance) {
    return fibers_value_of(mask, own, fibers_lane() ^ (unsigned)distance);
}
static inline int __any_sync(unsigned mask, int own) {
    int any = own != 0;
    for (int half = 16; half; half /= 2) any |= __shfl_xor_sync(mask, any, half);
    return any;
}
static inline int __syncthreads_or(int own) {
    return fibers_any(own != 0);
}

/* ---- numbers ---- */

static inline int __float_as_int(float value) {
    int bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
static inline float __int_as_float(int bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
