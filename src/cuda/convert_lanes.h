/* fp32, bf16 and fp16 on a device: every element alone, eight of them a thread, so that enough
 * bytes are on their way. */
#ifndef RPI_CUDA_CONVERT_LANES_H
#define RPI_CUDA_CONVERT_LANES_H

#include "cuda/octet.h"

/* Elements that travel in their own type are copied, bit patterns of NaN included, unless
 * something is added to them. */
RPI_HOST_DEVICE int rpi_convert_is_copy(const rpi_device_call *call, int adds) {
    return call->type == call->wire_type && !call->residual && !adds;
}

/* n of 8 elements from element i on. */
RPI_HOST_DEVICE void rpi_convert_encode_octet(const rpi_device_call *call, int type,
                                              int wire_type, int feedback, uint64_t i, int n) {
    rpi_octet y;
    rpi_octet_feed(type, call->x, feedback ? call->residual : NULL, i, n, &y);
    rpi_octet_write(wire_type, call->encoded, i, n, &y);
    if (!feedback) return;
    for (int k = 0; k < RPI_OCTET; k++) {
        float travelled = y.value[k];
        if (wire_type != RPI_DEVICE_F32)
            travelled =
                rpi_element_of_bits(wire_type, rpi_element_to_bits(wire_type, travelled));
        y.value[k] = rpi_convert_lost(y.value[k], travelled);
    }
    rpi_octet_store(RPI_DEVICE_F32, call->residual, i, n, &y);
}

RPI_HOST_DEVICE void rpi_convert_decode_octet(const rpi_device_call *call, int type,
                                              int wire_type, int adds, uint64_t i, int n) {
    rpi_octet y;
    rpi_octet_read(wire_type, call->encoded, i, n, &y);
    rpi_octet_deliver(call, type, adds, i, n, &y);
}

/* At most 16 bytes from byte i on, as they are. */
enum { RPI_COPY_PIECE = 16 };

RPI_HOST_DEVICE void rpi_copy_piece(const uint8_t *from, uint8_t *to, uint64_t i, int n) {
#ifdef __CUDA_ARCH__
    uint64_t both = (uintptr_t)from | (uintptr_t)to;
    if (n == RPI_COPY_PIECE && both % RPI_COPY_PIECE == 0) {
        *(uint4 *)(to + i) = *(const uint4 *)(from + i);
        return;
    }
    if (n % 4 == 0 && both % 4 == 0) {
        for (int k = 0; k < n; k += 4)
            *(uint32_t *)(to + i + k) = *(const uint32_t *)(from + i + k);
        return;
    }
#endif
    for (int k = 0; k < n; k++) to[i + (uint64_t)k] = from[i + (uint64_t)k];
}

/* A sum's mean. NaN stays what it is, as a CPU has it. */
RPI_HOST_DEVICE void rpi_convert_divide_octet(const rpi_device_call *call, uint64_t i, int n) {
    float divisor = (float)call->divisor;
    rpi_octet y;
    rpi_octet_load(RPI_DEVICE_F32, call->y, i, n, &y);
    RPI_UNROLL
    for (int k = 0; k < RPI_OCTET; k++)
        if (y.value[k] == y.value[k]) y.value[k] = y.value[k] / divisor;
    rpi_octet_store(RPI_DEVICE_F32, call->y, i, n, &y);
}

#endif
