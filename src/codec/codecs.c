/* The catalogue of codecs, and the public functions, which check what kinds then trust. */
#include "codec/codec.h"

#include "base/fpenv.h"
#include "base/memory.h"
#include "base/status.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the wire is little-endian, and so must the processor be");

extern const rpi_codec_kind rpi_codec_exact, rpi_codec_half[2], rpi_codec_quant, rpi_codec_topk,
    rpi_codec_randk, rpi_codec_sign, rpi_codec_varied;
extern rpi_kernel_form rpi_quant_form;

static const rpi_codec_kind *const catalogue[] = {
    &rpi_codec_exact, &rpi_codec_half[0], &rpi_codec_half[1], &rpi_codec_quant,
    &rpi_codec_topk,  &rpi_codec_randk,   &rpi_codec_sign,    &rpi_codec_varied,
};

enum { KINDS = sizeof catalogue / sizeof catalogue[0] };

const rpi_codec_kind *rpi_codec_at(int index) {
    return index >= 0 && index < KINDS ? catalogue[index] : NULL;
}

static rpi_kernel_form *const forms[] = {&rpi_quant_form, NULL};

rpi_kernel_form *rpi_codec_form_at(int index) {
    return forms[index];
}

const rpi_codec_kind *rpi_codec_by_wire_id(uint8_t wire_id) {
    for (int i = 0; i < KINDS; i++)
        if (catalogue[i]->wire_id == wire_id) return catalogue[i];
    return NULL;
}

const rpi_codec_kind *rpi_codec_kind_of(const rp_codec *codec) {
    return codec && codec->kind ? codec->kind : catalogue[0];
}

/* A codec is a plain value that anybody can fill in wrongly. */
static bool is_sound(const rp_codec *codec) {
    char why[RPI_CODEC_FAULT_BYTES];
    return !rpi_codec_fault(codec, why);
}

static rp_status check(const rp_codec *codec, rp_dtype dtype, size_t count) {
    const rpi_codec_kind *kind = rpi_codec_kind_of(codec);
    if (count > RPI_ELEMENTS_MAX)
        return RP_FAIL(INVALID, "%zu elements are more than can be; is that negative?", count);
    char text[RPI_CODEC_FAULT_BYTES];
    const char *why = rpi_codec_fault(codec, text);
    if (why) return RP_FAIL(INVALID, "this codec %s is none: %s", kind->name, why);
    if (!kind->supports(codec, dtype))
        return RP_FAIL(UNSUPPORTED, "codec %s does not take elements of type %s", kind->name,
                       rp_dtype_name(dtype));
    return RP_OK;
}

int rp_codec_supports(const rp_codec *codec, rp_dtype dtype) {
    return is_sound(codec) && rpi_codec_kind_of(codec)->supports(codec, dtype);
}

int rp_codec_is_exact(const rp_codec *codec, rp_dtype dtype) {
    return rp_codec_supports(codec, dtype) && rpi_codec_kind_of(codec)->is_exact(codec, dtype);
}

size_t rp_codec_granule(const rp_codec *codec) {
    if (!codec || !codec->kind || !codec->bucket) return 1;
    return rpi_codec_option_find(codec->kind, "bucket") ? codec->bucket : 1;
}

size_t rp_codec_encoded_bytes(const rp_codec *codec, rp_dtype dtype, size_t count) {
    if (count == 0 || count > RPI_ELEMENTS_MAX || !is_sound(codec)) return 0;
    return rpi_codec_kind_of(codec)->encoded_bytes(codec, dtype, count);
}

/* With two levels, stochastic rounding may miss by the whole range, the next range is then
 * twice as wide, and training would end in NaN about 120 steps later. */
rp_status rpi_codec_check_feedback(const rp_codec *codec, rp_dtype dtype) {
    if (!rp_dtype_is_float(dtype))
        return RP_FAIL(INVALID, "error feedback needs floating data; these are %s",
                       rp_dtype_name(dtype));
    if (codec && codec->bits == 1 && codec->rounding == RP_STOCHASTIC)
        return RP_FAIL(INVALID, "error feedback diverges with 1 bit and stochastic rounding; "
                                "use rounding=nearest or 2 bits");
    return RP_OK;
}

static const rp_encode_context no_context = {0};

rp_status rp_codec_encode(const rp_codec *codec, rp_dtype dtype, const void *x, size_t count,
                          const rp_encode_context *context, void *out, size_t *out_bytes) {
    RPI_FPENV_SCOPE;
    RP_TRY(check(codec, dtype, count));
    if (count && (!x || !out))
        return RP_FAIL(INVALID, "encoding %zu elements %s NULL", count, x ? "to" : "from");
    if (!context) context = &no_context;
    if (count && context->residual) RP_TRY(rpi_codec_check_feedback(codec, dtype));
    size_t bytes = 0;
    if (count)
        bytes = rpi_codec_kind_of(codec)->encode(codec, rpi_cpu_isa(), dtype, x, count, context,
                                                 out);
    if (out_bytes) *out_bytes = bytes;
    return RP_OK;
}

rp_status rpi_codec_check_encoding(const rp_codec *codec, rp_dtype dtype, const void *in,
                                   size_t bytes, size_t count) {
    const rpi_codec_kind *kind = rpi_codec_kind_of(codec);
    size_t most = rp_codec_encoded_bytes(codec, dtype, count);
    bool varies = count && kind->varies;
    if (varies ? bytes > most : bytes != most)
        return RP_FAIL(CORRUPT,
                       "%zu elements of type %s take %s%zu bytes in codec %s; %zu came", count,
                       rp_dtype_name(dtype), varies ? "at most " : "", most, kind->name, bytes);
    return varies ? kind->check(codec, dtype, in, bytes, count) : RP_OK;
}

static rp_status check_decode(const rp_codec *codec, rp_dtype dtype, const void *in,
                              size_t bytes, size_t count, const void *y) {
    RP_TRY(check(codec, dtype, count));
    if (count && (!in || !y))
        return RP_FAIL(INVALID, "decoding %zu elements %s NULL", count, in ? "to" : "from");
    return rpi_codec_check_encoding(codec, dtype, in, bytes, count);
}

rp_status rp_codec_decode(const rp_codec *codec, rp_dtype dtype, const void *in, size_t bytes,
                          size_t count, const rp_encode_context *context, void *y) {
    RPI_FPENV_SCOPE;
    RP_TRY(check_decode(codec, dtype, in, bytes, count, y));
    if (count)
        rpi_codec_kind_of(codec)->decode(codec, rpi_cpu_isa(), dtype, in, count,
                                         context ? context : &no_context, y);
    return RP_OK;
}

rp_status rp_codec_decode_add(const rp_codec *codec, rp_dtype dtype, const void *in,
                              size_t bytes, size_t count, const rp_encode_context *context,
                              void *sum) {
    RPI_FPENV_SCOPE;
    RP_TRY(check_decode(codec, dtype, in, bytes, count, sum));
    if (count)
        rpi_codec_kind_of(codec)->decode_add(codec, rpi_cpu_isa(), dtype, in, count,
                                             context ? context : &no_context, sum);
    return RP_OK;
}

rp_status rpi_codec_decode_sum(const rp_codec *codec, const void *in, size_t bytes,
                               size_t count, const rp_encode_context *context,
                               const float *base, float *sum) {
    RPI_FPENV_SCOPE;
    const rpi_codec_kind *kind = rpi_codec_kind_of(codec);
    if (!count || !kind->decode_sum || !base) {
        if (count && base && sum && base != sum) memcpy(sum, base, count * sizeof *sum);
        return rp_codec_decode_add(codec, RP_F32, in, bytes, count, context, sum);
    }
    RP_TRY(check_decode(codec, RP_F32, in, bytes, count, sum));
    kind->decode_sum(codec, rpi_cpu_isa(), in, count, context ? context : &no_context, base,
                     sum);
    return RP_OK;
}
