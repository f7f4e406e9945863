/* fp32, bf16, fp16: a thread for eight elements. */
#include "cuda/convert_lanes.h"
#include "cuda/kernels.h"

static __device__ uint64_t first_element(const rpi_list_place &place, int each) {
    return ((uint64_t)place.block * blockDim.x + threadIdx.x) * (uint64_t)each;
}
static __device__ uint64_t step(const rpi_list_place &place, int each) {
    return (uint64_t)place.blocks * blockDim.x * (uint64_t)each;
}

template <int TYPE, int WIRE, bool FEEDBACK>
static __global__ void encode(const __grid_constant__ rpi_device_list list) {
    rpi_list_place place = rpi_place_in(list);
    const rpi_device_call &call = *place.call;
    for (uint64_t i = first_element(place, RPI_OCTET); i < call.count;
         i += step(place, RPI_OCTET))
        rpi_convert_encode_octet(&call, TYPE, WIRE, FEEDBACK, i,
                                 (int)rpi_device_least(call.count - i, RPI_OCTET));
}

template <int TYPE, int WIRE, bool ADDS>
static __global__ void decode(const __grid_constant__ rpi_device_list list) {
    rpi_list_place place = rpi_place_in(list);
    const rpi_device_call &call = *place.call;
    for (uint64_t i = first_element(place, RPI_OCTET); i < call.count;
         i += step(place, RPI_OCTET))
        rpi_convert_decode_octet(&call, TYPE, WIRE, ADDS, i,
                                 (int)rpi_device_least(call.count - i, RPI_OCTET));
}

static __global__ void divide(const __grid_constant__ rpi_device_list list) {
    rpi_list_place place = rpi_place_in(list);
    const rpi_device_call &call = *place.call;
    for (uint64_t i = first_element(place, RPI_OCTET); i < call.count;
         i += step(place, RPI_OCTET))
        rpi_convert_divide_octet(&call, i, (int)rpi_device_least(call.count - i, RPI_OCTET));
}

/* By the type of the data, and by that in which elements travel. */
static rpi_list_kernel encoder(const rpi_device_call *call) {
    return rpi_for_type(call->type, [&](auto type) {
        return rpi_for_type(call->wire_type, [&](auto wire) {
            return call->residual ? encode<type.value, wire.value, true>
                                  : encode<type.value, wire.value, false>;
        });
    });
}

/* Sums are floats, whatever the type of the data. */
static rpi_list_kernel decoder(const rpi_device_call *call, int adds) {
    return rpi_for_type(call->wire_type, [&](auto wire) {
        if (adds) return decode<RPI_DEVICE_F32, wire.value, true>;
        return rpi_for_type(call->type,
                            [&](auto type) { return decode<type.value, wire.value, false>; });
    });
}

/* RPI_DEVICE_COPY. */
template <bool DECODES>
static __global__ void copy_bytes(const __grid_constant__ rpi_device_list list) {
    rpi_list_place place = rpi_place_in(list);
    const rpi_device_call &call = *place.call;
    const uint8_t *from = DECODES ? call.encoded : (const uint8_t *)call.x;
    uint8_t *to = DECODES ? (uint8_t *)call.y : call.encoded;
    for (uint64_t i = first_element(place, RPI_COPY_PIECE); i < call.count;
         i += step(place, RPI_COPY_PIECE))
        rpi_copy_piece(from, to, i, (int)rpi_device_least(call.count - i, RPI_COPY_PIECE));
}

static uint64_t octets(const rpi_device_call *call) {
    return (call->count + RPI_OCTET - 1) / RPI_OCTET;
}

static uint64_t pieces(const rpi_device_call *call) {
    return (call->count + RPI_COPY_PIECE - 1) / RPI_COPY_PIECE;
}

static cudaError_t launch(rpi_list_kernel kernel, rpi_device_list *list, cudaStream_t stream) {
    return rpi_list_launch(kernel, list, octets, RPI_BLOCK, stream);
}

cudaError_t rpi_copy_launch(rpi_device_list *list, int decodes, cudaStream_t stream) {
    rpi_list_kernel kernel = decodes ? copy_bytes<true> : copy_bytes<false>;
    return rpi_list_launch(kernel, list, pieces, RPI_BLOCK, stream);
}

/* Elements that travel as they are. */
static cudaError_t copy_all(const rpi_device_list *list, bool decodes, cudaStream_t stream) {
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < list->count && error == cudaSuccess; i++) {
        const rpi_device_call *call = &list->call[i];
        const void *from = decodes ? call->encoded : call->x;
        void *to = decodes ? call->y : call->encoded;
        size_t bytes = call->type == RPI_DEVICE_F32 ? 4 : 2;
        if (call->count)
            error = cudaMemcpyAsync(to, from, call->count * bytes, cudaMemcpyDefault, stream);
    }
    return error;
}

cudaError_t rpi_convert_launch_encode(rpi_device_list *list, cudaStream_t stream) {
    const rpi_device_call *first = &list->call[0];
    if (rpi_convert_is_copy(first, 0)) return copy_all(list, false, stream);
    return launch(encoder(first), list, stream);
}

cudaError_t rpi_convert_launch_decode(rpi_device_list *list, int adds, cudaStream_t stream) {
    const rpi_device_call *first = &list->call[0];
    if (rpi_convert_is_copy(first, adds)) return copy_all(list, true, stream);
    return launch(decoder(first, adds), list, stream);
}

cudaError_t rpi_convert_launch_divide(const rpi_device_call *call, cudaStream_t stream) {
    rpi_device_list list;
    list.count = 1;
    list.call[0] = *call;
    return launch(divide, &list, stream);
}
