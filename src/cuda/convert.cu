/* fp32, bf16, fp16: a thread for eight elements. */
#include "cuda/convert_lanes.h"
#include "cuda/kernels.h"

static __device__ uint64_t first_element(void) {
    return ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) * RPI_OCTET;
}
static __device__ uint64_t step(void) {
    return (uint64_t)gridDim.x * blockDim.x * RPI_OCTET;
}

template <int TYPE, int WIRE, bool FEEDBACK>
static __global__ void encode(rpi_device_call call) {
    for (uint64_t i = first_element(); i < call.count; i += step())
        rpi_convert_encode_octet(&call, TYPE, WIRE, FEEDBACK, i,
                                 (int)rpi_device_least(call.count - i, RPI_OCTET));
}

template <int TYPE, int WIRE, bool ADDS> static __global__ void decode(rpi_device_call call) {
    for (uint64_t i = first_element(); i < call.count; i += step())
        rpi_convert_decode_octet(&call, TYPE, WIRE, ADDS, i,
                                 (int)rpi_device_least(call.count - i, RPI_OCTET));
}

static __global__ void divide(rpi_device_call call) {
    for (uint64_t i = first_element(); i < call.count; i += step())
        rpi_convert_divide_octet(&call, i, (int)rpi_device_least(call.count - i, RPI_OCTET));
}

/* Families of families: by the type of the data, and by that in which elements travel. */
template <int TYPE> struct encode_to {
    template <int WIRE> static rpi_cuda_kernel of(const rpi_device_call *call) {
        return call->residual ? encode<TYPE, WIRE, true> : encode<TYPE, WIRE, false>;
    }
};

template <int TYPE, bool ADDS> struct decode_from {
    template <int WIRE> static rpi_cuda_kernel of(const rpi_device_call *) {
        return decode<TYPE, WIRE, ADDS>;
    }
};

struct encode_family {
    template <int TYPE> static rpi_cuda_kernel of(const rpi_device_call *call) {
        return rpi_kernel_for<encode_to<TYPE>>(call->wire_type, call);
    }
};

struct decode_family {
    template <int TYPE> static rpi_cuda_kernel of(const rpi_device_call *call) {
        return rpi_kernel_for<decode_from<TYPE, false>>(call->wire_type, call);
    }
};

static cudaError_t launch(rpi_cuda_kernel kernel, const rpi_device_call *call,
                          cudaStream_t stream) {
    uint64_t octets = (call->count + RPI_OCTET - 1) / RPI_OCTET;
    return rpi_kernel_launch(kernel, rpi_blocks_for(octets, RPI_BLOCK), call, stream);
}

static cudaError_t copy(void *to, const void *from, const rpi_device_call *call,
                        cudaStream_t stream) {
    size_t bytes = call->type == RPI_DEVICE_F32 ? 4 : 2;
    if (!call->count) return cudaSuccess;
    return cudaMemcpyAsync(to, from, call->count * bytes, cudaMemcpyDefault, stream);
}

cudaError_t rpi_convert_launch_encode(const rpi_device_call *call, cudaStream_t stream) {
    if (rpi_convert_is_copy(call, 0)) return copy(call->encoded, call->x, call, stream);
    return launch(rpi_kernel_for<encode_family>(call->type, call), call, stream);
}

/* Sums are floats, whatever the type of the data. */
cudaError_t rpi_convert_launch_decode(const rpi_device_call *call, int adds,
                                      cudaStream_t stream) {
    if (rpi_convert_is_copy(call, adds)) return copy(call->y, call->encoded, call, stream);
    rpi_cuda_kernel kernel =
        adds ? rpi_kernel_for<decode_from<RPI_DEVICE_F32, true>>(call->wire_type, call)
             : rpi_kernel_for<decode_family>(call->type, call);
    return launch(kernel, call, stream);
}

cudaError_t rpi_convert_launch_divide(const rpi_device_call *call, cudaStream_t stream) {
    return launch(divide, call, stream);
}
