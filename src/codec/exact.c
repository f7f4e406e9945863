/* fp32, the exact codec: elements travel as they are, whatever their dtype. */
#include "codec/codec.h"

#include "codec/codec_convert.h"

#include <string.h>

static int exact_supports(const rp_codec *codec, rp_dtype dtype) {
    (void)codec;
    return rp_dtype_bytes(dtype) != 0;
}

static int exact_is_exact(const rp_codec *codec, rp_dtype dtype) {
    return exact_supports(codec, dtype);
}

static size_t exact_encoded_bytes(const rp_codec *codec, rp_dtype dtype, size_t count) {
    (void)codec;
    return rp_dtype_bytes(dtype) * count;
}

/* What error feedback held back goes out with the elements: training that changes from a lossy
 * codec to this one loses nothing. */
static void encode_f64_feedback(const double *x, size_t count, float *residual, char *out) {
    for (size_t i = 0; i < count; i++) {
        double y = x[i] + (double)residual[i];
        memcpy(out + 8 * i, &y, sizeof y);
        residual[i] = 0.0f;
    }
}

static size_t exact_encode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *x,
                           size_t count, const rp_encode_context *context, void *out) {
    (void)codec;
    if (!context->residual)
        memcpy(out, x, rp_dtype_bytes(dtype) * count);
    else if (dtype == RP_F64)
        encode_f64_feedback(x, count, context->residual, out);
    else
        rpi_convert_feedback(dtype, dtype, isa, x, count, context->residual, out);
    return rp_dtype_bytes(dtype) * count;
}

static void exact_decode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                         size_t count, const rp_encode_context *context, void *y) {
    (void)codec, (void)isa, (void)context;
    memcpy(y, in, rp_dtype_bytes(dtype) * count);
}

/* Integers add as unsigned: wrapping around is then defined, and the bits are the same. */
#define ADD(name, type)                                                                        \
    static void add_##name(const void *in, size_t count, type *sum) {                          \
        for (size_t i = 0; i < count; i++) {                                                   \
            type value;                                                                        \
            memcpy(&value, (const char *)in + sizeof value * i, sizeof value);                 \
            sum[i] = (type)(sum[i] + value);                                                   \
        }                                                                                      \
    }
ADD(f64, double)
ADD(u8, uint8_t)
ADD(u16, uint16_t)
ADD(u32, uint32_t)
ADD(u64, uint64_t)
#undef ADD

/* Truth values add by "or". */
static void add_bool(const uint8_t *in, size_t count, uint8_t *sum) {
    for (size_t i = 0; i < count; i++) sum[i] |= in[i];
}

static void exact_decode_add(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                             size_t count, const rp_encode_context *context, void *sum) {
    (void)codec, (void)context;
    switch (dtype) {
    case RP_F32:
    case RP_F16:
    case RP_BF16: rpi_convert(dtype, isa)->widen_add(in, count, sum); break;
    case RP_F64: add_f64(in, count, sum); break;
    case RP_I8:
    case RP_U8: add_u8(in, count, sum); break;
    case RP_BOOL: add_bool(in, count, sum); break;
    case RP_I16:
    case RP_U16: add_u16(in, count, sum); break;
    case RP_I32:
    case RP_U32: add_u32(in, count, sum); break;
    case RP_I64:
    case RP_U64: add_u64(in, count, sum); break;
    case RP_C64: rpi_convert(RP_F32, isa)->widen_add(in, 2 * count, sum); break;
    case RP_C128: add_f64(in, 2 * count, sum); break;
    }
}

const rpi_codec_kind rpi_codec_exact = {
    .name = "fp32",
    .summary = "exact: elements as they are, whatever their type",
    .wire_id = 1,
    .supports = exact_supports,
    .is_exact = exact_is_exact,
    .encoded_bytes = exact_encoded_bytes,
    .encode = exact_encode,
    .decode = exact_decode,
    .decode_add = exact_decode_add,
};
