/* v1 to v8: a block for each bucket, or a group of 16 threads for each run that is decoded. */
#include "cuda/block.h"
#include "cuda/varied_lanes.h"

namespace {
struct block_memory {
    rpi_varied_room room;
    double price;
};
} // namespace

enum { GROUPS = RPI_BLOCK / RPI_VARIED_GROUP };

/* The threads of a warp that are this one's group. */
static __device__ unsigned group_mask(void) {
    return 0xffffu << (threadIdx.x / RPI_VARIED_GROUP % 2 * RPI_VARIED_GROUP);
}

static __device__ rpi_quant_range join(rpi_quant_range range) {
    unsigned mask = group_mask();
    for (int distance = RPI_VARIED_GROUP / 2; distance; distance /= 2) {
        rpi_quant_range other;
        other.min = __shfl_xor_sync(mask, range.min, distance);
        other.max = __shfl_xor_sync(mask, range.max, distance);
        other.has_nan = __shfl_xor_sync(mask, range.has_nan, distance);
        range = rpi_quant_join(range, other);
    }
    return range;
}

/* Lane l and l + 8, then l + 4, l + 2, l + 1: every lane ends with the sum of lane 0. */
static __device__ rpi_varied_moments fold(rpi_varied_moments m) {
    unsigned mask = group_mask();
    for (int distance = RPI_VARIED_GROUP / 2; distance; distance /= 2) {
        m.sum += __shfl_xor_sync(mask, m.sum, distance);
        m.squares += __shfl_xor_sync(mask, m.squares, distance);
    }
    return m;
}

template <int TYPE, bool FEEDBACK>
static __device__ rpi_varied_run look(const rpi_device_call *call, uint64_t begin,
                                      uint32_t count, int lane) {
    rpi_quant_range range =
        join(rpi_varied_lane_range(call, TYPE, FEEDBACK, begin, count, lane));
    rpi_varied_run run = rpi_varied_begin(count, &range);
    if (run.damaged) return run;
    rpi_varied_moments m = fold(rpi_varied_lane_moments(call, TYPE, FEEDBACK, begin, count,
                                                        rpi_varied_shift(&run), lane));
    rpi_varied_take_moments(&run, m.sum, m.squares);
    return run;
}

/* Thread r has run r, of at most 256. The bytes of the bucket; where each run begins. */
static __device__ uint32_t plan(const rpi_device_call *call, int most, uint32_t runs,
                                block_memory *memory) {
    uint32_t bytes = 0, total;
    if (threadIdx.x < runs)
        bytes = rpi_varied_plan_run(call, memory->price, most, &memory->room, threadIdx.x);
    uint32_t at = rpi_block_before<RPI_BLOCK>(bytes, &total);
    if (threadIdx.x < runs) memory->room.at[threadIdx.x] = at;
    __syncthreads();
    return total;
}

template <int TYPE, bool FEEDBACK>
static __device__ void encode_bucket(const rpi_device_call *call, uint64_t bucket,
                                     block_memory *memory) {
    int lane = threadIdx.x % RPI_VARIED_GROUP, group = threadIdx.x / RPI_VARIED_GROUP;
    uint64_t count = rpi_device_bucket_count(call, bucket);
    uint32_t runs = rpi_varied_runs(count);
    for (uint32_t r = group; r < runs; r += GROUPS) {
        rpi_varied_run run =
            look<TYPE, FEEDBACK>(call, bucket * call->bucket + (uint64_t)r * RPI_VARIED_RUN,
                                 rpi_varied_run_count(count, r), lane);
        if (lane == 0) memory->room.run[r] = run;
    }
    __syncthreads();
    if (threadIdx.x == 0) memory->price = rpi_varied_bucket_price(call, &memory->room, count);
    __syncthreads();
    uint32_t bytes = plan(call, RPI_VARIED_BITS, runs, memory);
    if (bytes > rpi_varied_most_bytes(call->bits, count))
        bytes = plan(call, rpi_varied_most_bits(call->bits), runs, memory);
    if (threadIdx.x == 0) rpi_device_lengths(call)[bucket] = bytes;
    for (uint32_t r = group; r < runs; r += GROUPS)
        rpi_varied_lane_write(call, TYPE, FEEDBACK, bucket, &memory->room, r, lane);
}

template <int TYPE, bool FEEDBACK> static __global__ void encode(rpi_device_call call) {
    __shared__ block_memory memory;
    uint64_t buckets = rpi_device_buckets(&call);
    for (uint64_t i = blockIdx.x; i < buckets; i += gridDim.x) {
        encode_bucket<TYPE, FEEDBACK>(&call, i, &memory);
        __syncthreads(); /* nobody reads the room any more */
    }
}

template <int TYPE, bool ADDS> static __global__ void decode(rpi_device_call call) {
    int lane = threadIdx.x % RPI_VARIED_GROUP;
    uint64_t runs = rpi_varied_all_runs(&call);
    for (uint64_t i = (uint64_t)blockIdx.x * GROUPS + threadIdx.x / RPI_VARIED_GROUP; i < runs;
         i += (uint64_t)gridDim.x * GROUPS)
        rpi_varied_lane_decode(&call, TYPE, ADDS, i, lane);
}

cudaError_t rpi_varied_launch_encode(const rpi_device_call *call, cudaStream_t stream) {
    rpi_cuda_kernel kernel = rpi_for_type(call->type, [&](auto type) {
        return call->residual ? encode<type.value, true> : encode<type.value, false>;
    });
    unsigned blocks = rpi_blocks_for(rpi_device_buckets(call), 1);
    cudaError_t error = rpi_kernel_launch(kernel, blocks, call, stream);
    return error == cudaSuccess ? rpi_slots_gather(call, rpi_varied_most(call), stream) : error;
}

/* Sums are floats, whatever the type of the data. */
cudaError_t rpi_varied_launch_decode(const rpi_device_call *call, int adds,
                                     cudaStream_t stream) {
    rpi_cuda_kernel kernel = decode<RPI_DEVICE_F32, true>;
    if (!adds)
        kernel = rpi_for_type(call->type, [](auto type) { return decode<type.value, false>; });
    return rpi_kernel_launch(kernel, rpi_blocks_for(rpi_varied_all_runs(call), GROUPS), call,
                             stream);
}
