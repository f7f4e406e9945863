/* One element between f32 and 16 bits, for the plain kernels of the CPU and for those of a GPU.
 * Narrowing saturates: a finite value never becomes an infinity. */
#ifndef RPI_CODEC_CONVERT_ARITHMETIC_H
#define RPI_CODEC_CONVERT_ARITHMETIC_H

#include "base/float_bits.h"

RPI_HOST_DEVICE float rpi_clamp_finite(float x, float largest) {
    if (!rpi_float_is_finite(x)) return x;
    return x > largest ? largest : x < -largest ? -largest : x;
}

RPI_HOST_DEVICE uint16_t rpi_narrow_f16(float x) {
    return rpi_f32_to_f16(rpi_clamp_finite(x, 65504.0f));
}

RPI_HOST_DEVICE uint16_t rpi_narrow_bf16(float x) {
    return rpi_f32_to_bf16(rpi_clamp_finite(x, 0x1.fep127f));
}

/* What a codec that treats each element alone has lost of y; nothing of NaN and infinity. */
RPI_HOST_DEVICE float rpi_convert_lost(float y, float decoded) {
    float lost = y - decoded;
    return lost == lost ? lost : 0.0f;
}

#endif
