#include "codec/quant_kernels.h"

#include <math.h>
#include <string.h>

static float feedback_of(const float *residual, size_t i, float x) {
    return residual ? x + residual[i] : x;
}

static void range(const float *x, const float *residual, size_t count, rpi_quant_range *range) {
    rpi_quant_range wider = *range;
    for (size_t i = 0; i < count; i++) rpi_quant_widen(&wider, feedback_of(residual, i, x[i]));
    *range = wider;
}

static void moments(const float *x, const float *residual, size_t count, double shift,
                    double out[2]) {
    double sum[RPI_MOMENT_LANES] = {0}, square[RPI_MOMENT_LANES] = {0};
    for (size_t i = 0; i < count; i++) {
        double d = (double)feedback_of(residual, i, x[i]) - shift;
        sum[i % RPI_MOMENT_LANES] += d;
        square[i % RPI_MOMENT_LANES] += d * d;
    }
    out[0] = rpi_moment_fold(sum);
    out[1] = rpi_moment_fold(square);
}

static void quantise(const rpi_quant_run *run) {
    float top = (float)((1 << run->bits) - 1);
    uint32_t held = 0;
    int held_bits = 0;
    uint8_t *out = run->out;
    for (size_t i = 0; i < run->count; i++) {
        float y = feedback_of(run->residual, i, run->x[i]);
        float r = run->random ? rpi_quant_dither(run->random[i]) : 0.5f;
        uint32_t level = rpi_quant_level(y, run->scale, r, top);
        if (run->residual) run->residual[i] = y - rpi_quant_value(level, run->scale);
        held |= level << held_bits;
        held_bits += run->bits;
        for (; held_bits >= 8; held_bits -= 8, held >>= 8) *out++ = (uint8_t)held;
    }
    if (held_bits) *out = (uint8_t)held;
}

typedef struct unpacker {
    const uint8_t *in;
    uint32_t held, mask;
    int held_bits, bits;
} unpacker;

static uint32_t next_level(unpacker *from) {
    if (from->held_bits < from->bits) {
        from->held |= (uint32_t)*from->in++ << from->held_bits;
        from->held_bits += 8;
    }
    uint32_t level = from->held & from->mask;
    from->held >>= from->bits;
    from->held_bits -= from->bits;
    return level;
}

static void dequantise(const uint8_t *in, int bits, rpi_quant_scale scale, size_t count,
                       float *y) {
    unpacker from = {.in = in, .mask = (1u << bits) - 1, .bits = bits};
    for (size_t i = 0; i < count; i++) y[i] = rpi_quant_value(next_level(&from), scale);
}

static void dequantise_sum(const uint8_t *in, int bits, rpi_quant_scale scale, size_t count,
                           const float *base, float *sum) {
    unpacker from = {.in = in, .mask = (1u << bits) - 1, .bits = bits};
    for (size_t i = 0; i < count; i++)
        sum[i] = base[i] + rpi_quant_value(next_level(&from), scale);
}

static void random_bits(const rpi_quant_stream *stream, uint64_t block, size_t blocks,
                        uint16_t *out) {
    for (size_t i = 0; i < blocks; i++) {
        rpi_philox_block drawn = rpi_quant_random_block(stream, block + i);
        for (int word = 0; word < 4; word++) {
            out[8 * i + 2 * (size_t)word] = (uint16_t)drawn.word[word];
            out[8 * i + 2 * (size_t)word + 1] = (uint16_t)(drawn.word[word] >> 16);
        }
    }
}

const rpi_quant_kernels rpi_quant_scalar = {range,      moments,        quantise,   NULL,
                                            dequantise, dequantise_sum, random_bits};
