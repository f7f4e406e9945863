/* fp32, bf16 and fp16 on a device: every element alone. */
#ifndef RPI_CUDA_CONVERT_LANES_H
#define RPI_CUDA_CONVERT_LANES_H

#include "cuda/octet.h"

/* Elements that travel in their own type are copied, bit patterns of NaN included, unless
 * something is added to them. */
RPI_HOST_DEVICE int rpi_convert_is_copy(const rpi_device_call *call, int adds) {
    return call->type == call->wire_type && !call->residual && !adds;
}

RPI_HOST_DEVICE void rpi_convert_encode_element(const rpi_device_call *call, int type,
                                                int wire_type, int feedback, uint64_t i) {
    float y = rpi_element_load(type, call->x, i);
    if (feedback) y = rpi_float_add(y, call->residual[i]);
    rpi_element_store(wire_type, call->encoded, i, y);
    if (!feedback) return;
    float travelled = y;
    if (wire_type != RPI_DEVICE_F32)
        travelled = rpi_element_of_bits(wire_type, rpi_element_to_bits(wire_type, y));
    call->residual[i] = rpi_convert_lost(y, travelled);
}

RPI_HOST_DEVICE void rpi_convert_decode_element(const rpi_device_call *call, int type,
                                                int wire_type, int adds, uint64_t i) {
    float value = rpi_element_load(wire_type, call->encoded, i);
    float *sum = (float *)call->y;
    if (adds)
        sum[i] = rpi_float_add(sum[i], value);
    else
        rpi_element_store(type, call->y, i, value);
}

#endif
