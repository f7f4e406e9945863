/* Encodings whose bytes vary: from the slots of buckets into one piece (device_call.h). */
#include "cuda/kernels.h"
#include "cuda/topk_lanes.h"
#include "cuda/varied_lanes.h"

#include <cub/device/device_scan.cuh>

static __global__ void gather(rpi_device_call call, uint64_t most) {
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = blockIdx.x; i < buckets; i += gridDim.x)
        rpi_device_lane_gather(&call, i, most, threadIdx.x, RPI_BLOCK);
}

/* memory NULL: only says how much it needs. */
static cudaError_t sums(const rpi_device_call *call, void *memory, size_t *bytes,
                        cudaStream_t stream) {
    return cub::DeviceScan::ExclusiveSum(memory, *bytes, rpi_device_lengths(call),
                                         rpi_device_sums(call), rpi_device_buckets(call),
                                         stream);
}

/* That memory begins at a multiple of 256. */
static size_t sums_at(const rpi_device_call *call, uint64_t most) {
    return (rpi_device_slots_end(call, most) + 255) / 256 * 256;
}

cudaError_t rpi_slots_scratch(const rpi_device_call *call, size_t *out) {
    size_t bytes = 0;
    cudaError_t error = cudaSuccess;
    *out = 0;
    if (call->kind != RPI_DEVICE_TOPK && call->kind != RPI_DEVICE_VARIED) return error;
    error = sums(call, NULL, &bytes, 0);
    uint64_t most = call->kind == RPI_DEVICE_TOPK ? rpi_topk_most(call) : rpi_varied_most(call);
    *out = sums_at(call, most) + bytes;
    return error;
}

cudaError_t rpi_slots_gather(const rpi_device_call *call, uint64_t most, cudaStream_t stream) {
    size_t bytes = 0;
    cudaError_t error = sums(call, NULL, &bytes, stream);
    if (error == cudaSuccess)
        error = sums(call, (char *)call->scratch + sums_at(call, most), &bytes, stream);
    if (error != cudaSuccess) return error;
    gather<<<rpi_blocks_for(rpi_device_buckets(call), 1), RPI_BLOCK, 0, stream>>>(*call, most);
    return cudaGetLastError();
}
