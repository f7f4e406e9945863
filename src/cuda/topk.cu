/* topk: a block for each bucket, which lies in the block's shared memory meanwhile. */
#include "cuda/kernels.h"
#include "cuda/topk_lanes.h"

#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

typedef cub::BlockReduce<uint32_t, RPI_BLOCK> block_numbers;
typedef cub::BlockReduce<rpi_quant_range, RPI_BLOCK> block_ranges;
typedef cub::BlockScan<rpi_topk_count, RPI_BLOCK> block_counts;

namespace {
struct larger {
    __device__ uint32_t operator()(uint32_t a, uint32_t b) const {
        return a > b ? a : b;
    }
};
struct sum {
    __device__ uint32_t operator()(uint32_t a, uint32_t b) const {
        return a + b;
    }
};
struct sum_of_counts {
    __device__ rpi_topk_count operator()(rpi_topk_count a, rpi_topk_count b) const {
        return rpi_topk_add(a, b);
    }
};
struct join {
    __device__ rpi_quant_range operator()(rpi_quant_range a, rpi_quant_range b) const {
        return rpi_quant_join(a, b);
    }
};

struct block_memory {
    rpi_topk_room room;
    union {
        typename block_numbers::TempStorage numbers;
        typename block_ranges::TempStorage ranges;
        typename block_counts::TempStorage counts;
    } joining;
    uint32_t number;
    rpi_quant_range range;
};
} // namespace

/* All threads have come, and get what the first of them has. */
template <typename JOIN>
static __device__ uint32_t all_of(block_memory *memory, uint32_t own, JOIN how) {
    uint32_t joined = block_numbers(memory->joining.numbers).Reduce(own, how);
    if (threadIdx.x == 0) memory->number = joined;
    __syncthreads();
    joined = memory->number;
    __syncthreads(); /* it has been read, before the next one comes */
    return joined;
}

static __device__ rpi_quant_range range_of(block_memory *memory, uint32_t kept) {
    rpi_quant_range own = rpi_topk_lane_range(&memory->room, kept, threadIdx.x, RPI_BLOCK);
    rpi_quant_range range = block_ranges(memory->joining.ranges).Reduce(own, join());
    if (threadIdx.x == 0) memory->range = range;
    __syncthreads();
    return memory->range;
}

/* The least magnitude that is kept. */
static __device__ uint32_t least_kept(block_memory *memory, uint64_t count, uint32_t most,
                                      uint32_t k) {
    rpi_topk_search search = rpi_topk_begin(most);
    while (rpi_topk_goes_on(search)) {
        uint32_t found = rpi_topk_lane_found(&memory->room, count, rpi_topk_middle(search),
                                             threadIdx.x, RPI_BLOCK);
        search = rpi_topk_narrow(search, all_of(memory, found, sum()), k);
    }
    return search.low;
}

/* The elements that are kept, into the room; how many. */
static __device__ uint32_t choose(block_memory *memory, uint64_t count, uint32_t most,
                                  uint32_t k) {
    uint32_t least = least_kept(memory, count, most, k);
    rpi_topk_count none = {0, 0}, before, total;
    rpi_topk_count own =
        rpi_topk_lane_count(&memory->room, count, least, threadIdx.x, RPI_BLOCK);
    block_counts(memory->joining.counts)
        .ExclusiveScan(own, before, none, sum_of_counts(), total);
    uint32_t ties = rpi_topk_ties(total, k);
    rpi_topk_lane_choose(&memory->room, count, least, ties, before, threadIdx.x, RPI_BLOCK);
    __syncthreads();
    return total.above + ties;
}

template <int TYPE, bool FEEDBACK>
static __device__ void encode_bucket(const rpi_device_call *call, uint64_t bucket,
                                     block_memory *memory) {
    uint64_t count = rpi_device_bucket_count(call, bucket);
    uint32_t kept = 0, most = rpi_topk_lane_load(call, TYPE, FEEDBACK, bucket, &memory->room,
                                                 threadIdx.x, RPI_BLOCK);
    rpi_quant_range range = rpi_quant_no_range();
    most = all_of(memory, most, larger());
    range.has_nan = most >= RPI_TOPK_NOT_FINITE;
    if (!range.has_nan) {
        kept = choose(memory, count, most, call->kept);
        range = range_of(memory, kept);
    }
    rpi_kept_way way = rpi_kept_way_of(call, kept, &range);
    rpi_topk_lane_write(call, bucket, &memory->room, kept, &way, threadIdx.x, RPI_BLOCK);
    if (FEEDBACK)
        rpi_topk_lane_settle(call, bucket, &memory->room, kept, &way, threadIdx.x, RPI_BLOCK);
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
