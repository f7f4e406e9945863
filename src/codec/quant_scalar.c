#include "codec/quant_kernels.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

static float feedback_of(const float *residual, size_t i, float x) {
    return residual ? x + residual[i] : x;
}

static void range(const float *x, const float *residual, size_t count, rpi_quant_range *range) {
    float min = range->min, max = range->max;
    int has_nan = range->has_nan;
    for (size_t i = 0; i < count; i++) {
        float y = feedback_of(residual, i, x[i]);
        min = y < min ? y : min;
        max = y > max ? y : max;
        has_nan |= y != y;
    }
    *range = (rpi_quant_range){min, max, has_nan};
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

/* No less than 0 when it is converted to an integer, so that the conversion is the floor. */
static uint32_t level_of(float y, rpi_quant_scale scale, float r, float top) {
    float level = (y - scale.min) / scale.unit + r;
    level = level > 0 ? level : 0;
    return (uint32_t)(level < top ? level : top);
}

static float value_of(uint32_t level, rpi_quant_scale scale) {
    return scale.min + scale.unit * (float)level;
}

static void quantise(const rpi_quant_run *run) {
    float top = (float)((1 << run->bits) - 1);
    uint32_t held = 0;
    int held_bits = 0;
    uint8_t *out = run->out;
    for (size_t i = 0; i < run->count; i++) {
        float y = feedback_of(run->residual, i, run->x[i]);
        float r = run->random ? ((float)run->random[i] + 0.5f) * 0x1p-16f : 0.5f;
        uint32_t level = level_of(y, run->scale, r, top);
        if (run->residual) run->residual[i] = y - value_of(level, run->scale);
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
    for (size_t i = 0; i < count; i++) y[i] = value_of(next_level(&from), scale);
}

static void dequantise_add(const uint8_t *in, int bits, rpi_quant_scale scale, size_t count,
                           float *sum) {
    unpacker from = {.in = in, .mask = (1u << bits) - 1, .bits = bits};
    for (size_t i = 0; i < count; i++) sum[i] += value_of(next_level(&from), scale);
}

static void random_bits(const rpi_quant_stream *stream, uint64_t block, size_t blocks,
                        uint16_t *out) {
    for (size_t i = 0; i < blocks; i++) {
        uint64_t number = block + i;
        uint32_t counter[4] = {(uint32_t)number, (uint32_t)(number >> 32), stream->name[0],
                               stream->name[1]};
        uint32_t words[4];
        rp_philox4x32(counter, stream->key, words);
        for (int word = 0; word < 4; word++) {
            out[8 * i + 2 * (size_t)word] = (uint16_t)words[word];
            out[8 * i + 2 * (size_t)word + 1] = (uint16_t)(words[word] >> 16);
        }
    }
}

const rpi_quant_kernels rpi_quant_scalar = {range,      moments,        quantise,
                                            dequantise, dequantise_add, random_bits};
