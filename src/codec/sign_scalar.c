#include "codec/sign_kernels.h"

#include <math.h>

static float fed(const float *x, const float *residual, size_t i) {
    return residual ? x[i] + residual[i] : x[i];
}

static float sum(const float *x, const float *residual, size_t count) {
    float lane[RPI_SIGN_LANES] = {0};
    size_t i = 0;
    for (; i + RPI_SIGN_LANES <= count; i += RPI_SIGN_LANES)
        for (size_t k = 0; k < RPI_SIGN_LANES; k++) lane[k] += fabsf(fed(x, residual, i + k));
    for (size_t k = 0; i + k < count; k++) lane[k] += fabsf(fed(x, residual, i + k));
    return rpi_sign_fold(lane);
}

static void pack(const float *x, float *residual, size_t count, float mean, uint8_t *out) {
    for (size_t i = 0; i < count; i += 8) {
        size_t n = count - i < 8 ? count - i : 8;
        unsigned byte = 0;
        for (size_t k = 0; k < n; k++) {
            float y = fed(x, residual, i + k);
            unsigned negative = y < 0;
            byte |= negative << k;
            if (residual) residual[i + k] = y - (negative ? -mean : mean);
        }
        *out++ = (uint8_t)byte;
    }
}

static float value_at(const uint8_t *in, size_t i, float mean) {
    return in[i / 8] >> (i % 8) & 1 ? -mean : mean;
}

static void unpack(const uint8_t *in, size_t count, float mean, float *y) {
    for (size_t i = 0; i < count; i++) y[i] = value_at(in, i, mean);
}

static void unpack_add(const uint8_t *in, size_t count, float mean, float *y) {
    for (size_t i = 0; i < count; i++) y[i] += value_at(in, i, mean);
}

const rpi_sign_kernels rpi_sign_scalar = {sum, pack, unpack, unpack_add};
