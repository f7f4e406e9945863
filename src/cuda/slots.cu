/* Encodings whose bytes vary: from the slots of buckets into one piece (device_call.h). */
#include "cuda/block.h"
#include "cuda/topk_lanes.h"
#include "cuda/varied_lanes.h"

enum { SUMMING = 1024 }; /* threads of the one block that sums lengths */

/* A warp sums a run of lengths, and goes through it once more when it knows those before. */
static __global__ void __launch_bounds__(SUMMING) sum_lengths(rpi_device_call call) {
    const uint64_t *length = rpi_device_lengths(&call);
    uint64_t buckets = rpi_device_buckets(&call), warps = SUMMING / RPI_WARP;
    uint64_t each = (buckets + warps - 1) / warps, own = 0, total;
    uint64_t begin = rpi_device_least(buckets, each * (threadIdx.x / RPI_WARP));
    uint64_t end = rpi_device_least(buckets, begin + each);
    uint64_t lane = (uint64_t)rpi_group_lane<RPI_WARP>();
    for (uint64_t i = begin + lane; i < end; i += RPI_WARP) own += length[i];
    uint64_t before = rpi_block_before<SUMMING>(own, &total);
    before = __shfl_sync(0xffffffffu, before, 0);
    for (uint64_t i = begin; i < end; i += RPI_WARP) {
        uint64_t number = i + lane < end ? length[i + lane] : 0, sums = rpi_warp_sums(number);
        if (i + lane < end) rpi_device_sums(&call)[i + lane] = before + sums - number;
        before += __shfl_sync(0xffffffffu, sums, RPI_WARP - 1);
    }
}

static __global__ void gather(rpi_device_call call, uint64_t most) {
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = blockIdx.x; i < buckets; i += gridDim.x)
        rpi_device_lane_gather(&call, i, most, threadIdx.x, RPI_BLOCK);
}

uint64_t rpi_slots_scratch(const rpi_device_call *call) {
    if (call->kind == RPI_DEVICE_TOPK) return rpi_device_slots_end(call, rpi_topk_most(call));
    if (call->kind == RPI_DEVICE_VARIED)
        return rpi_device_slots_end(call, rpi_varied_most(call));
    return 0;
}

cudaError_t rpi_slots_gather(const rpi_device_call *call, uint64_t most, cudaStream_t stream) {
    unsigned blocks = rpi_blocks_for(rpi_device_buckets(call), 1);
    cudaError_t error = rpi_launch(sum_lengths, 1, SUMMING, stream, *call);
    return error == cudaSuccess ? rpi_launch(gather, blocks, RPI_BLOCK, stream, *call, most)
                                : error;
}
