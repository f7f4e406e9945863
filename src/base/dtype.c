#include "redpoll/dtype.h"

#include "base/status.h"

#include <string.h>

size_t rp_dtype_bytes(rp_dtype dtype) {
    switch (dtype) {
#define RP_DTYPE_CASE(name, value, text, bytes, floating)                                      \
    case RP_##name: return bytes;
        RP_DTYPE_TABLE(RP_DTYPE_CASE)
#undef RP_DTYPE_CASE
    }
    return 0;
}

const char *rp_dtype_name(rp_dtype dtype) {
    switch (dtype) {
#define RP_DTYPE_CASE(name, value, text, bytes, floating)                                      \
    case RP_##name: return text;
        RP_DTYPE_TABLE(RP_DTYPE_CASE)
#undef RP_DTYPE_CASE
    }
    return "unknown";
}

int rp_dtype_is_float(rp_dtype dtype) {
    switch (dtype) {
#define RP_DTYPE_CASE(name, value, text, bytes, floating)                                      \
    case RP_##name: return floating;
        RP_DTYPE_TABLE(RP_DTYPE_CASE)
#undef RP_DTYPE_CASE
    }
    return 0;
}

rp_status rp_dtype_parse(const char *name, rp_dtype *dtype) {
    if (!name || !dtype) return RP_FAIL(INVALID, "no name of a dtype, or nowhere to put it");
#define RP_DTYPE_MATCH(constant, value, text, bytes, floating)                                 \
    if (strcmp(name, text) == 0) {                                                             \
        *dtype = RP_##constant;                                                                \
        return RP_OK;                                                                          \
    }
    RP_DTYPE_TABLE(RP_DTYPE_MATCH)
#undef RP_DTYPE_MATCH
#define RP_DTYPE_LISTED(constant, value, text, bytes, floating) " " text
    return RP_FAIL(INVALID, "dtype '%s' is unknown; use one of" RP_DTYPE_TABLE(RP_DTYPE_LISTED),
                   name);
#undef RP_DTYPE_LISTED
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint16_t rp_f32_to_bf16(float value) {
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float rp_bf16_to_f32(uint16_t bits) {
    return float_of((uint32_t)bits << 16);
}

/* Below 2^-14: in units of 2^-24, to nearest even. By integers, as all of these conversions, so
 * that the caller's direction of rounding does not matter. */
static uint32_t f16_subnormal(uint32_t magnitude) {
    uint32_t exponent = magnitude >> 23;
    if (exponent < 102) return 0; /* less than half a unit */
    uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u, shift = 126 - exponent;
    return (fraction + (1u << (shift - 1)) - 1 + (fraction >> shift & 1u)) >> shift;
}

uint16_t rp_f32_to_f16(float value) {
    uint32_t bits = bits_of(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds past 65504 */
    if (magnitude < 0x38800000u) return (uint16_t)(sign | f16_subnormal(magnitude));
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

float rp_f16_to_f32(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = (bits >> 10) & 0x1fu;
    uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0) {
        float magnitude = (float)fraction * 0x1p-24f; /* exact: at most ten bits */
        return float_of(sign | bits_of(magnitude));
    }
    if (exponent == 31)
        return float_of(sign | 0x7f800000u | (fraction << 13) | (fraction ? 0x400000u : 0));
    return float_of(sign | ((exponent + 112) << 23) | (fraction << 13));
}
