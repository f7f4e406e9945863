/* Floats by their bits: conversions to and from 16 bits, by integers, so that the caller's
 * direction of rounding does not matter; and sums whose NaN is the same on every processor. */
#ifndef RPI_BASE_FLOAT_BITS_H
#define RPI_BASE_FLOAT_BITS_H

#include "base/host_device.h"

#include <stdint.h>
#include <string.h>

#define RPI_NAN_BITS 0x7fc00000u

RPI_HOST_DEVICE uint32_t rpi_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

RPI_HOST_DEVICE float rpi_float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

RPI_HOST_DEVICE int rpi_float_is_finite(float value) {
    return (rpi_float_bits(value) & 0x7f800000u) != 0x7f800000u;
}

/* a + b. A GPU makes every NaN 0x7fffffff; x86 keeps that of the first operand that is one. */
RPI_HOST_DEVICE float rpi_float_add(float a, float b) {
    float sum = a + b;
#ifdef __CUDA_ARCH__
    if (sum != sum) {
        uint32_t quiet = 0x00400000u;
        if (a != a) return rpi_float_of_bits(rpi_float_bits(a) | quiet);
        if (b != b) return rpi_float_of_bits(rpi_float_bits(b) | quiet);
        return rpi_float_of_bits(RPI_NAN_BITS | 0x80000000u);
    }
#endif
    return sum;
}

RPI_HOST_DEVICE uint16_t rpi_f32_to_bf16(float value) {
    uint32_t bits = rpi_float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

RPI_HOST_DEVICE float rpi_bf16_to_f32(uint16_t bits) {
    return rpi_float_of_bits((uint32_t)bits << 16);
}

/* Below 2^-14: in units of 2^-24, to nearest even. */
RPI_HOST_DEVICE uint32_t rpi_f16_subnormal(uint32_t magnitude) {
    uint32_t exponent = magnitude >> 23;
    if (exponent < 102) return 0; /* less than half a unit */
    uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u, shift = 126 - exponent;
    return (fraction + (1u << (shift - 1)) - 1 + (fraction >> shift & 1u)) >> shift;
}

RPI_HOST_DEVICE uint16_t rpi_f32_to_f16(float value) {
    uint32_t bits = rpi_float_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds past 65504 */
    if (magnitude < 0x38800000u) return (uint16_t)(sign | rpi_f16_subnormal(magnitude));
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

RPI_HOST_DEVICE float rpi_f16_to_f32(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = (bits >> 10) & 0x1fu;
    uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0) {
        float magnitude = (float)fraction * 0x1p-24f; /* exact: at most ten bits */
        return rpi_float_of_bits(sign | rpi_float_bits(magnitude));
    }
    if (exponent == 31)
        return rpi_float_of_bits(sign | 0x7f800000u | (fraction << 13) |
                                 (fraction ? 0x400000u : 0));
    return rpi_float_of_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
}

#endif
