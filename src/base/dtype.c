#include "redpoll/dtype.h"

#include "base/float_bits.h"
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

uint16_t rp_f32_to_bf16(float value) {
    return rpi_f32_to_bf16(value);
}

float rp_bf16_to_f32(uint16_t bits) {
    return rpi_bf16_to_f32(bits);
}

uint16_t rp_f32_to_f16(float value) {
    return rpi_f32_to_f16(value);
}

float rp_f16_to_f32(uint16_t bits) {
    return rpi_f16_to_f32(bits);
}
