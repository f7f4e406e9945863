/* What the quantisers do with one element and with one bucket's range, for the plain kernels of
 * the CPU and for those of a GPU. docs/codecs.md is normative. */
#ifndef RPI_CODEC_QUANT_ARITHMETIC_H
#define RPI_CODEC_QUANT_ARITHMETIC_H

#include "base/float_bits.h"
#include "base/philox.h"

#include <stddef.h>

typedef struct rpi_quant_range {
    float min, max; /* over the elements that are numbers; start with +inf, -inf */
    int has_nan;
} rpi_quant_range;

typedef struct rpi_quant_scale {
    float min, unit;
} rpi_quant_scale;

enum { RPI_QUANT_HEAD = 8 }; /* bytes: the scale before the levels of a bucket */

/* Words 2 and 3 of the counter and the key under which blocks of random bits are drawn. */
typedef struct rpi_quant_stream {
    uint32_t key[2], name[2];
} rpi_quant_stream;

RPI_HOST_DEVICE size_t rpi_packed_bytes(size_t count, int bits) {
    return count / 8 * (size_t)bits + (count % 8 * (size_t)bits + 7) / 8;
}

/* ---- the range of a bucket, and its scale ---- */

RPI_HOST_DEVICE rpi_quant_range rpi_quant_no_range(void) {
    rpi_quant_range range;
    range.min = rpi_float_of_bits(0x7f800000u);
    range.max = rpi_float_of_bits(0xff800000u);
    range.has_nan = 0;
    return range;
}

RPI_HOST_DEVICE void rpi_quant_widen(rpi_quant_range *range, float y) {
    range->min = y < range->min ? y : range->min;
    range->max = y > range->max ? y : range->max;
    range->has_nan |= y != y;
}

RPI_HOST_DEVICE rpi_quant_scale rpi_quant_damaged_scale(void) {
    rpi_quant_scale scale;
    scale.min = rpi_float_of_bits(RPI_NAN_BITS);
    scale.unit = 0;
    return scale;
}

/* Of q1 to q8. A bucket that holds NaN or infinity, or whose levels would leave the range of
 * f32, is damaged as a whole. Adding 0 turns -0 into 0, whose order in a minimum is undefined.
 */
RPI_HOST_DEVICE rpi_quant_scale rpi_quant_scale_of(const rpi_quant_range *range, int bits) {
    float top = (float)((1 << bits) - 1);
    rpi_quant_scale scale;
    scale.min = range->min + 0.0f;
    scale.unit = (range->max - scale.min + 0.0f) / top;
    if (range->has_nan || !rpi_float_is_finite(scale.min + scale.unit * top))
        return rpi_quant_damaged_scale();
    return scale;
}

/* Any bytes may come: what is no number damages its run, as in encoding. */
RPI_HOST_DEVICE rpi_quant_scale rpi_quant_sound(rpi_quant_scale scale) {
    if (rpi_float_is_finite(scale.min) && rpi_float_is_finite(scale.unit)) return scale;
    return rpi_quant_damaged_scale();
}

/* ---- one element ---- */

/* No less than 0 when it is converted to an integer, so that the conversion is the floor. */
RPI_HOST_DEVICE uint32_t rpi_quant_level(float y, rpi_quant_scale scale, float r, float top) {
    float level = (y - scale.min) / scale.unit + r;
    level = level > 0 ? level : 0;
    return (uint32_t)(level < top ? level : top);
}

RPI_HOST_DEVICE float rpi_quant_value(uint32_t level, rpi_quant_scale scale) {
    return rpi_float_add(scale.min, scale.unit * (float)level);
}

/* What is added before the floor: 16 random bits as a number in (0, 1), exact in f32. */
RPI_HOST_DEVICE float rpi_quant_dither(uint32_t random16) {
    return ((float)random16 + 0.5f) * 0x1p-16f;
}

/* ---- random bits ---- */

/* The numbers of elements 8 block to 8 block + 7, two in each word. */
RPI_HOST_DEVICE rpi_philox_block rpi_quant_random_block(const rpi_quant_stream *stream,
                                                        uint64_t block) {
    return rpi_philox((uint32_t)block, (uint32_t)(block >> 32), stream->name[0],
                      stream->name[1], stream->key[0], stream->key[1]);
}

RPI_HOST_DEVICE uint32_t rpi_quant_random_of(const rpi_philox_block *block, uint64_t element) {
    return block->word[(element & 7) / 2] >> (16 * (element & 1)) & 0xffffu;
}

#endif
