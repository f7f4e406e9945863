#include "cli/elements.h"

#include "base/status.h"

#include <string.h>

void rpi_elements_store(rp_dtype dtype, const float *values, size_t count, void *out,
                        size_t first) {
    if (dtype == RP_F32) {
        memcpy((float *)out + first, values, count * sizeof(float));
        return;
    }
    uint16_t *halves = (uint16_t *)out + first;
    for (size_t i = 0; i < count; i++)
        halves[i] = dtype == RP_F16 ? rp_f32_to_f16(values[i]) : rp_f32_to_bf16(values[i]);
}

float rpi_element_load(rp_dtype dtype, const void *data, size_t i) {
    if (dtype == RP_F16) return rp_f16_to_f32(((const uint16_t *)data)[i]);
    if (dtype == RP_BF16) return rp_bf16_to_f32(((const uint16_t *)data)[i]);
    return ((const float *)data)[i];
}

rp_status rpi_parse_float_dtype(const char *text, rp_dtype *out_dtype) {
    RP_TRY(rp_dtype_parse(text, out_dtype));
    if (*out_dtype == RP_F32 || *out_dtype == RP_F16 || *out_dtype == RP_BF16) return RP_OK;
    return RP_FAIL(INVALID, "%s is not one of f32, f16, bf16", text);
}
