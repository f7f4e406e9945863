/* What the tests of this room share: the codecs to walk and the inputs to feed them. */
#ifndef CODEC_CODEC_CASES_H
#define CODEC_CODEC_CASES_H

#include "base/rng.h"
#include "codec/codec.h"
#include "harness/check.h"

#include <stdlib.h>

static inline int codec_has(const rpi_codec_kind *kind, const char *option) {
    return rpi_codec_option_find(kind, option) != NULL;
}

/* Options of the kind's own: as they are by default, least, and in between. */
static inline int codec_vary_own(rp_codec *codec, int way) {
    const rpi_codec_option *option;
    int own = 0;
    for (int i = 0; (option = rpi_codec_option_at(codec->kind, i)) != NULL; i++) {
        if (option->offset < offsetof(rp_codec, option)) continue;
        uint32_t values[] = {option->initial, option->min, (option->min + option->max) / 3};
        rpi_codec_option_set(codec, option, values[way % 3]);
        own++;
    }
    return own;
}

static inline int codec_is_sound(const rp_codec *codec) {
    char why[RPI_CODEC_FAULT_BYTES];
    return !rpi_codec_fault(codec, why);
}

/* Every kind of the catalogue, every number of bits, several buckets, both roundings. */
static inline int codec_cases(rp_codec *codecs, int capacity) {
    static const uint32_t buckets[] = {1, 7, 16, 33, 64, 100, 512, 1500};
    int count = 0;
    const rpi_codec_kind *kind;
    for (int k = 0; (kind = rpi_codec_at(k)) != NULL; k++)
        for (int bits = kind->bits_min; bits <= kind->bits_max; bits++)
            for (int b = 0; b < (codec_has(kind, "bucket") ? 8 : 1); b++)
                for (int way = 0; way < (codec_has(kind, "rounding") ? 2 : 3); way++) {
                    rp_codec codec = rpi_codec_default(kind, bits);
                    if (codec_has(kind, "bucket")) codec.bucket = buckets[b];
                    if (codec_has(kind, "rounding")) codec.rounding = (uint8_t)way;
                    int own = codec_vary_own(&codec, way);
                    if (way && !own && !codec_has(kind, "rounding")) continue;
                    if (count < capacity && codec_is_sound(&codec)) codecs[count++] = codec;
                }
    return count;
}

enum { CODEC_CASES_MAX = 512 };

/* Shapes of data that have hurt quantisers. */
typedef enum codec_input {
    INPUT_NORMAL,
    INPUT_CONSTANT,
    INPUT_ZEROS, /* of both signs */
    INPUT_SUBNORMAL,
    INPUT_TINY_RANGE, /* a few units in the last place around 1 */
    INPUT_LARGE,      /* the range overflows f32 */
    INPUT_DAMAGED,    /* some NaN and infinities */
    INPUT_ANY_BITS,
    INPUT_COUNT
} codec_input;

static inline float codec_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t codec_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float codec_input_value(codec_input input, rpi_rng *rng) {
    uint32_t word = rpi_rng_u32(rng);
    switch (input) {
    case INPUT_NORMAL: return rpi_rng_normal(rng);
    case INPUT_CONSTANT: return -2.7182817f;
    case INPUT_ZEROS: return word & 1 ? 0.0f : -0.0f;
    case INPUT_SUBNORMAL: return codec_float(word & 0x8000003fu);
    case INPUT_TINY_RANGE: return codec_float(0x3f800000u + word % 5);
    case INPUT_LARGE: return (rpi_rng_uniform(rng) - 0.5f) * 0x1.fffffep127f * 2;
    case INPUT_DAMAGED:
        if (word % 300 == 0) return word & 0x10000 ? NAN : -NAN;
        if (word % 300 == 1) return word & 0x10000 ? INFINITY : -INFINITY;
        return rpi_rng_normal(rng);
    default: return codec_float(word);
    }
}

/* `count` elements of dtype; the floats of 16 bits get what fits them. */
static inline void codec_fill(void *x, rp_dtype dtype, size_t count, codec_input input,
                              rpi_rng *rng) {
    for (size_t i = 0; i < count; i++) {
        float value = codec_input_value(input, rng);
        uint16_t half = dtype == RP_BF16 ? rp_f32_to_bf16(value) : rp_f32_to_f16(value);
        double wide = value;
        uint64_t bits = ((uint64_t)rpi_rng_u32(rng) << 32) | codec_bits(value);
        uint64_t any[2] = {bits, ~bits}; /* as long as the longest dtype */
        size_t bytes = rp_dtype_bytes(dtype);
        const void *from = dtype == RP_F32                       ? (const void *)&value
                           : dtype == RP_F64                     ? (const void *)&wide
                           : dtype == RP_F16 || dtype == RP_BF16 ? (const void *)&half
                                                                 : (const void *)any;
        memcpy((char *)x + i * bytes, from, bytes);
    }
}

static const rp_dtype codec_dtypes[] = {RP_F32, RP_F16, RP_BF16, RP_F64, RP_I8,
                                        RP_U8,  RP_I16, RP_I32,  RP_I64, RP_U16,
                                        RP_U32, RP_U64, RP_BOOL, RP_C64, RP_C128};
enum { CODEC_DTYPES = sizeof codec_dtypes / sizeof codec_dtypes[0] };

/* Of exactly this size, so that the address sanitizer sees one byte too many. */
static inline void *codec_buffer(size_t bytes) {
    void *buffer = malloc(bytes ? bytes : 1);
    if (!buffer) abort();
    memset(buffer, 0xa5, bytes);
    return buffer;
}

/* Bit for bit: signs of zeros and payloads of NaN count. */
static inline int codec_same(const void *a, const void *b, size_t bytes) {
    return memcmp(a, b, bytes) == 0;
}

#endif
