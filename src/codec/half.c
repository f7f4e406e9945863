/* bf16 and fp16: every element alone in 16 bits, rounded to nearest even; finite values
 * saturate. Data that has the wire's type already travels as it is. */
#include "codec/codec.h"

#include "codec/codec_convert.h"

#include <string.h>

static int half_supports(const rp_codec *codec, rp_dtype dtype) {
    (void)codec;
    return dtype == RP_F32 || dtype == RP_F16 || dtype == RP_BF16;
}

static size_t half_encoded_bytes(const rp_codec *codec, rp_dtype dtype, size_t count) {
    (void)codec, (void)dtype;
    return 2 * count;
}

/* From one 16-bit type to the other, by way of f32. */
static void other_half(const rpi_convert_kernels *from, const rpi_convert_kernels *to,
                       const void *x, size_t count, void *y) {
    for (size_t i = 0, n; i < count; i += n) {
        float tile[RPI_TILE];
        n = count - i < RPI_TILE ? count - i : RPI_TILE;
        from->widen((const char *)x + 2 * i, n, tile);
        to->narrow(tile, n, (char *)y + 2 * i);
    }
}

static void half_encode(rp_dtype wire_type, rpi_isa isa, rp_dtype dtype, const void *x,
                        size_t count, float *residual, void *out) {
    const rpi_convert_kernels *wire = rpi_convert(wire_type, isa);
    if (residual)
        rpi_convert_feedback(dtype, wire_type, isa, x, count, residual, out);
    else if (dtype == wire_type)
        memcpy(out, x, 2 * count);
    else if (dtype == RP_F32)
        wire->narrow(x, count, out);
    else
        other_half(rpi_convert(dtype, isa), wire, x, count, out);
}

static void half_decode(rp_dtype wire_type, rpi_isa isa, rp_dtype dtype, const void *in,
                        size_t count, void *y) {
    const rpi_convert_kernels *wire = rpi_convert(wire_type, isa);
    if (dtype == wire_type)
        memcpy(y, in, 2 * count);
    else if (dtype == RP_F32)
        wire->widen(in, count, y);
    else
        other_half(wire, rpi_convert(dtype, isa), in, count, y);
}

static int bf16_is_exact(const rp_codec *codec, rp_dtype dtype) {
    (void)codec;
    return dtype == RP_BF16;
}

static size_t bf16_encode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *x,
                          size_t count, const rp_encode_context *context, void *out) {
    (void)codec;
    half_encode(RP_BF16, isa, dtype, x, count, context->residual, out);
    return 2 * count;
}

static void bf16_decode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                        size_t count, const rp_encode_context *context, void *y) {
    (void)codec, (void)context;
    half_decode(RP_BF16, isa, dtype, in, count, y);
}

static void bf16_decode_add(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                            size_t count, const rp_encode_context *context, void *sum) {
    (void)codec, (void)dtype, (void)context;
    rpi_convert(RP_BF16, isa)->widen_add(in, count, sum);
}

static int fp16_is_exact(const rp_codec *codec, rp_dtype dtype) {
    (void)codec;
    return dtype == RP_F16;
}

static size_t fp16_encode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *x,
                          size_t count, const rp_encode_context *context, void *out) {
    (void)codec;
    half_encode(RP_F16, isa, dtype, x, count, context->residual, out);
    return 2 * count;
}

static void fp16_decode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                        size_t count, const rp_encode_context *context, void *y) {
    (void)codec, (void)context;
    half_decode(RP_F16, isa, dtype, in, count, y);
}

static void fp16_decode_add(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                            size_t count, const rp_encode_context *context, void *sum) {
    (void)codec, (void)dtype, (void)context;
    rpi_convert(RP_F16, isa)->widen_add(in, count, sum);
}

const rpi_codec_kind rpi_codec_half[2] = {
    {
        .name = "bf16",
        .summary = "bfloat16: 8 bits of exponent, 8 of precision",
        .wire_id = 2,
        .supports = half_supports,
        .is_exact = bf16_is_exact,
        .encoded_bytes = half_encoded_bytes,
        .encode = bf16_encode,
        .decode = bf16_decode,
        .decode_add = bf16_decode_add,
    },
    {
        .name = "fp16",
        .summary = "IEEE half: 11 bits of precision, finite values saturate at 65504",
        .wire_id = 3,
        .supports = half_supports,
        .is_exact = fp16_is_exact,
        .encoded_bytes = half_encoded_bytes,
        .encode = fp16_encode,
        .decode = fp16_decode,
        .decode_add = fp16_decode_add,
    },
};
