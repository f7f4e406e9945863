/* fp32, bf16, fp16: a thread for each element. */
#include "cuda/convert_lanes.h"
#include "cuda/kernels.h"

template <int TYPE, int WIRE, bool FEEDBACK>
static __global__ void encode(rpi_device_call call) {
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < call.count;
         i += step)
        rpi_convert_encode_element(&call, TYPE, WIRE, FEEDBACK, i);
}

template <int TYPE, int WIRE, bool ADDS> static __global__ void decode(rpi_device_call call) {
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < call.count;
         i += step)
        rpi_convert_decode_element(&call, TYPE, WIRE, ADDS, i);
}

typedef void (*kernel)(rpi_device_call);

static size_t type_bytes(int type) {
    return type == RPI_DEVICE_F32 ? 4 : 2;
}

template <int TYPE, int WIRE> static kernel encode_of(const rpi_device_call *call) {
    return call->residual ? encode<TYPE, WIRE, true> : encode<TYPE, WIRE, false>;
}

template <int TYPE> static kernel encode_to(const rpi_device_call *call) {
    switch (call->wire_type) {
    case RPI_DEVICE_F16: return encode_of<TYPE, RPI_DEVICE_F16>(call);
    case RPI_DEVICE_BF16: return encode_of<TYPE, RPI_DEVICE_BF16>(call);
    default: return encode_of<TYPE, RPI_DEVICE_F32>(call);
    }
}

template <int TYPE> static kernel decode_from(const rpi_device_call *call) {
    switch (call->wire_type) {
    case RPI_DEVICE_F16: return decode<TYPE, RPI_DEVICE_F16, false>;
    case RPI_DEVICE_BF16: return decode<TYPE, RPI_DEVICE_BF16, false>;
    default: return decode<TYPE, RPI_DEVICE_F32, false>;
    }
}

/* Sums are floats, whatever the type of the data. */
static kernel adding(const rpi_device_call *call) {
    switch (call->wire_type) {
    case RPI_DEVICE_F16: return decode<RPI_DEVICE_F32, RPI_DEVICE_F16, true>;
    case RPI_DEVICE_BF16: return decode<RPI_DEVICE_F32, RPI_DEVICE_BF16, true>;
    default: return decode<RPI_DEVICE_F32, RPI_DEVICE_F32, true>;
    }
}

static cudaError_t launch(kernel chosen, const rpi_device_call *call, cudaStream_t stream) {
    (void)cudaGetLastError(); /* of what came before, and was told */
    chosen<<<rpi_blocks_for(call->count, RPI_BLOCK), RPI_BLOCK, 0, stream>>>(*call);
    return cudaGetLastError();
}

static cudaError_t copy(void *to, const void *from, const rpi_device_call *call,
                        cudaStream_t stream) {
    return cudaMemcpyAsync(to, from, call->count * type_bytes(call->type), cudaMemcpyDefault,
                           stream);
}

cudaError_t rpi_convert_launch_encode(const rpi_device_call *call, cudaStream_t stream) {
    if (rpi_convert_is_copy(call, 0)) return copy(call->encoded, call->x, call, stream);
    switch (call->type) {
    case RPI_DEVICE_F16: return launch(encode_to<RPI_DEVICE_F16>(call), call, stream);
    case RPI_DEVICE_BF16: return launch(encode_to<RPI_DEVICE_BF16>(call), call, stream);
    default: return launch(encode_to<RPI_DEVICE_F32>(call), call, stream);
    }
}

cudaError_t rpi_convert_launch_decode(const rpi_device_call *call, int adds,
                                      cudaStream_t stream) {
    if (rpi_convert_is_copy(call, adds)) return copy(call->y, call->encoded, call, stream);
    if (adds) return launch(adding(call), call, stream);
    switch (call->type) {
    case RPI_DEVICE_F16: return launch(decode_from<RPI_DEVICE_F16>(call), call, stream);
    case RPI_DEVICE_BF16: return launch(decode_from<RPI_DEVICE_BF16>(call), call, stream);
    default: return launch(decode_from<RPI_DEVICE_F32>(call), call, stream);
    }
}
