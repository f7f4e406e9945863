/* The kernels' launches, by file; what library.cu puts into its table. */
#ifndef RPI_CUDA_KERNELS_H
#define RPI_CUDA_KERNELS_H

#include "cuda/device_list.h"

#include <cuda_runtime.h>
#include <type_traits>

enum { RPI_BLOCK = 256 }; /* threads */

#ifndef RPI_BLOCKS_MOST /* a test has few, which go on with what is left */
#    define RPI_BLOCKS_MOST (1u << 30)
#endif

/* Blocks for so many groups of threads; kernels go on with those that are left. */
static inline unsigned rpi_blocks_for(uint64_t groups, unsigned groups_a_block) {
    uint64_t blocks = (groups + groups_a_block - 1) / groups_a_block;
    return (unsigned)(blocks < RPI_BLOCKS_MOST ? blocks : RPI_BLOCKS_MOST);
}

template <typename... OF>
static inline cudaError_t rpi_launch(void (*kernel)(OF...), unsigned blocks, unsigned threads,
                                     cudaStream_t stream, const OF &...of) {
#ifdef __CUDACC__
    kernel<<<blocks, threads, 0, stream>>>(of...);
    return cudaGetLastError();
#else /* a test has threads of its own */
    return fibers_launch(kernel, blocks, threads, stream, of...);
#endif
}

typedef void (*rpi_cuda_kernel)(rpi_device_call);

/* A call of no elements loads its kernel, and launches nothing. */
static inline cudaError_t rpi_kernel_launch(rpi_cuda_kernel kernel, unsigned blocks,
                                            const rpi_device_call *call, cudaStream_t stream) {
    cudaFuncAttributes attributes;
    (void)cudaGetLastError(); /* of what came before, and was told */
    if (!call->count) return cudaFuncGetAttributes(&attributes, (const void *)kernel);
    return rpi_launch(kernel, blocks, RPI_BLOCK, stream, *call);
}

/* ---- launches of lists ---- */

typedef void (*rpi_list_kernel)(rpi_device_list);

/* The call that a block is for, and its place among the blocks of that. */
struct rpi_list_place {
    const rpi_device_call *call;
    unsigned block, blocks;
};

static __device__ inline rpi_list_place rpi_place_in(const rpi_device_list &list) {
    rpi_list_place place;
    int k = 0;
    while (k + 1 < list.count && blockIdx.x >= list.begins[k + 1]) k++;
    place.call = &list.call[k];
    place.block = blockIdx.x - list.begins[k];
    place.blocks = list.begins[k + 1] - list.begins[k];
    return place;
}

/* groups: of threads that a call takes, so many a block. */
static inline cudaError_t rpi_list_launch(rpi_list_kernel kernel, rpi_device_list *list,
                                          uint64_t (*groups)(const rpi_device_call *),
                                          unsigned groups_a_block, cudaStream_t stream) {
    cudaFuncAttributes attributes;
    (void)cudaGetLastError(); /* of what came before, and was told */
    if (!list->call[0].count) return cudaFuncGetAttributes(&attributes, (const void *)kernel);
    list->begins[0] = 0;
    for (int i = 0; i < list->count; i++) {
        unsigned blocks = rpi_blocks_for(groups(&list->call[i]), groups_a_block);
        unsigned most = (RPI_BLOCKS_MOST - 1) / (unsigned)list->count + 1;
        list->begins[i + 1] = list->begins[i] + (blocks < most ? blocks : most);
    }
    return rpi_launch(kernel, list->begins[list->count], RPI_BLOCK, stream, *list);
}

/* What `of` says for elements of this type, which it is given as a constant. */
template <typename OF> static auto rpi_for_type(int type, OF of) {
    switch (type) {
    case RPI_DEVICE_F16: return of(std::integral_constant<int, RPI_DEVICE_F16>());
    case RPI_DEVICE_BF16: return of(std::integral_constant<int, RPI_DEVICE_BF16>());
    default: return of(std::integral_constant<int, RPI_DEVICE_F32>());
    }
}

cudaError_t rpi_convert_launch_encode(rpi_device_list *list, cudaStream_t stream);
cudaError_t rpi_convert_launch_decode(rpi_device_list *list, int adds, cudaStream_t stream);
/* RPI_DEVICE_COPY; decodes: from `encoded`. */
cudaError_t rpi_copy_launch(rpi_device_list *list, int decodes, cudaStream_t stream);
cudaError_t rpi_convert_launch_divide(const rpi_device_call *call, cudaStream_t stream);
cudaError_t rpi_quant_launch_encode(rpi_device_list *list, cudaStream_t stream);
cudaError_t rpi_quant_launch_decode(rpi_device_list *list, int adds, cudaStream_t stream);
cudaError_t rpi_randk_launch_encode(rpi_device_list *list, cudaStream_t stream);
cudaError_t rpi_randk_launch_decode(rpi_device_list *list, int adds, cudaStream_t stream);
cudaError_t rpi_sign_launch_encode(rpi_device_list *list, cudaStream_t stream);
cudaError_t rpi_sign_launch_decode(rpi_device_list *list, int adds, cudaStream_t stream);
cudaError_t rpi_topk_launch_encode(const rpi_device_call *call, cudaStream_t stream);
cudaError_t rpi_topk_launch_decode(const rpi_device_call *call, int adds, cudaStream_t stream);
cudaError_t rpi_varied_launch_encode(const rpi_device_call *call, cudaStream_t stream);
cudaError_t rpi_varied_launch_decode(const rpi_device_call *call, int adds,
                                     cudaStream_t stream);

/* Encodings whose bytes vary: the scratch memory that they need, and what follows the kernel
 * that has filled the slots, of `most` bytes each. */
uint64_t rpi_slots_scratch(const rpi_device_call *call);
cudaError_t rpi_slots_gather(const rpi_device_call *call, uint64_t most, cudaStream_t stream);

#endif
