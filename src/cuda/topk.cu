/* topk: a block for each bucket, which lies in the block's shared memory meanwhile. */
#include "cuda/block.h"
#include "cuda/topk_lanes.h"

namespace {
struct alignas(16) block_memory {
    rpi_topk_room room;
    rpi_topk_search search;
};
} // namespace

/* The least magnitude that is kept; the bins have the first digits. */
static __device__ uint32_t least_kept(block_memory *memory, uint64_t count, uint32_t k) {
    rpi_topk_room *room = &memory->room;
    rpi_topk_search search = rpi_topk_begin(k);
    for (;;) {
        uint32_t own = rpi_topk_lane_bins(room, threadIdx.x, RPI_BLOCK), total;
        uint32_t before = rpi_block_before<RPI_BLOCK>(own, &total);
        if (total < search.wanted) return rpi_topk_least(&search);
        if (rpi_topk_lane_find(room, before, own, threadIdx.x, RPI_BLOCK, &search))
            memory->search = search;
        __syncthreads();
        search = memory->search;
        if (search.done) return rpi_topk_least(&search);
        rpi_topk_lane_clear_bins(room, threadIdx.x, RPI_BLOCK);
        __syncthreads();
        rpi_topk_lane_digits(room, count, &search, threadIdx.x, RPI_BLOCK);
        __syncthreads();
    }
}

/* The elements that are kept, into the room; how many. */
static __device__ uint32_t choose(block_memory *memory, uint64_t count, uint32_t k) {
    uint32_t least = least_kept(memory, count, k);
    rpi_topk_count before, total;
    rpi_topk_count own =
        rpi_topk_lane_count(&memory->room, count, least, threadIdx.x, RPI_BLOCK);
    before.above = rpi_block_before<RPI_BLOCK>(own.above, &total.above);
    before.equal = rpi_block_before<RPI_BLOCK>(own.equal, &total.equal);
    uint32_t ties = rpi_topk_ties(total, k);
    rpi_topk_lane_choose(&memory->room, count, least, ties, before, threadIdx.x, RPI_BLOCK);
    __syncthreads();
    return total.above + ties;
}

template <int TYPE, bool FEEDBACK>
static __device__ void encode_bucket(const rpi_device_call *call, uint64_t bucket,
                                     block_memory *memory) {
    rpi_topk_room *room = &memory->room;
    uint32_t kept = 0;
    rpi_quant_range range = rpi_quant_no_range();
    rpi_topk_lane_clear_bins(room, threadIdx.x, RPI_BLOCK);
    __syncthreads();
    range.has_nan = __syncthreads_or(
        rpi_topk_lane_load(call, TYPE, FEEDBACK, bucket, room, threadIdx.x, RPI_BLOCK));
    if (!range.has_nan) {
        kept = choose(memory, rpi_device_bucket_count(call, bucket), call->kept);
        range = rpi_block_join(rpi_topk_lane_range(room, kept, threadIdx.x, RPI_BLOCK));
    }
    rpi_kept_way way = rpi_kept_way_of(call, kept, &range);
    rpi_topk_lane_write(call, bucket, room, kept, &way, threadIdx.x, RPI_BLOCK);
    if (FEEDBACK) rpi_topk_lane_settle(call, bucket, room, kept, &way, threadIdx.x, RPI_BLOCK);
}

template <int TYPE, bool FEEDBACK> static __global__ void encode(rpi_device_call call) {
    __shared__ block_memory memory;
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = blockIdx.x; i < buckets; i += gridDim.x) {
        encode_bucket<TYPE, FEEDBACK>(&call, i, &memory);
        __syncthreads();
    }
}

template <int TYPE, bool ADDS> static __global__ void decode(rpi_device_call call) {
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = blockIdx.x; i < buckets; i += gridDim.x) {
        if (!ADDS) {
            rpi_topk_lane_clear(&call, TYPE, i, threadIdx.x, RPI_BLOCK);
            __syncthreads(); /* zeros are there before what takes their place */
        }
        rpi_topk_lane_decode(&call, TYPE, ADDS, i, threadIdx.x, RPI_BLOCK);
    }
}

cudaError_t rpi_topk_launch_encode(const rpi_device_call *call, cudaStream_t stream) {
    rpi_cuda_kernel kernel = rpi_for_type(call->type, [&](auto type) {
        return call->residual ? encode<type.value, true> : encode<type.value, false>;
    });
    unsigned blocks = rpi_blocks_for(rpi_device_buckets(call), 1);
    cudaError_t error = rpi_kernel_launch(kernel, blocks, call, stream);
    return error == cudaSuccess ? rpi_slots_gather(call, rpi_topk_most(call), stream) : error;
}

/* Sums are floats, whatever the type of the data. */
cudaError_t rpi_topk_launch_decode(const rpi_device_call *call, int adds, cudaStream_t stream) {
    rpi_cuda_kernel kernel = decode<RPI_DEVICE_F32, true>;
    if (!adds)
        kernel = rpi_for_type(call->type, [](auto type) { return decode<type.value, false>; });
    return rpi_kernel_launch(kernel, rpi_blocks_for(rpi_device_buckets(call), 1), call, stream);
}
