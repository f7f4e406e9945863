#include "cuda/device_codec.h"

#include "base/status.h"
#include "codec/codec.h"
#include "codec/quant_kernels.h"
#include "codec/sparse.h"

#include <string.h>

static bool type_of(rp_dtype dtype, int *type) {
    switch (dtype) {
    case RP_F32: *type = RPI_DEVICE_F32; return true;
    case RP_F16: *type = RPI_DEVICE_F16; return true;
    case RP_BF16: *type = RPI_DEVICE_BF16; return true;
    default: return false;
    }
}

static bool convert_to(rpi_device_call *call, int wire_type) {
    call->kind = RPI_DEVICE_CONVERT;
    call->wire_type = wire_type;
    return true;
}

/* Values of randk travel by another codec. */
static bool randk(const rp_codec *codec, const rp_encode_context *context,
                  rpi_device_call *call) {
    rp_codec values = rpi_sparse_values_of(codec);
    call->kind = RPI_DEVICE_RANDK;
    call->kept = codec->option[0];
    call->bits = values.bits;
    call->stream = rpi_randk_stream_of(context);
    call->wire_type = RPI_DEVICE_F32;
    const char *name = rpi_codec_kind_of(&values)->name;
    if (strcmp(name, "bf16") == 0) call->wire_type = RPI_DEVICE_BF16;
    if (strcmp(name, "fp16") == 0) call->wire_type = RPI_DEVICE_F16;
    return true;
}

/* False: kernels for a device have not been written for this kind. */
static bool kind_of(const rp_codec *codec, const rp_encode_context *context,
                    rpi_device_call *call) {
    const char *name = rpi_codec_kind_of(codec)->name;
    if (strcmp(name, "fp32") == 0) return convert_to(call, call->type); /* the exact codec */
    if (strcmp(name, "bf16") == 0) return convert_to(call, RPI_DEVICE_BF16);
    if (strcmp(name, "fp16") == 0) return convert_to(call, RPI_DEVICE_F16);
    if (strcmp(name, "randk") == 0) return randk(codec, context, call);
    call->kind = strcmp(name, "q") == 0 ? RPI_DEVICE_QUANT : RPI_DEVICE_SIGN;
    if (call->kind == RPI_DEVICE_QUANT && codec->rounding == RP_STOCHASTIC) {
        call->stochastic = 1;
        call->stream = rpi_quant_stream_of(context);
    }
    return call->kind == RPI_DEVICE_QUANT || strcmp(name, "sign") == 0;
}

rp_status rpi_device_call_of(const rp_codec *codec, rp_dtype dtype, size_t count,
                             const rp_encode_context *context, rpi_device_call *out) {
    static const rp_encode_context none;
    rpi_device_call call = {.bits = codec->bits, .bucket = codec->bucket, .count = count};
    if (!context) context = &none;
    char text[64];
    if (!type_of(dtype, &call.type))
        return RP_FAIL(UNSUPPORTED,
                       "elements of %s are not encoded on a GPU, which takes f32, "
                       "f16 and bf16; move them to the CPU",
                       rp_dtype_name(dtype));
    if (!kind_of(codec, context, &call))
        return RP_FAIL(UNSUPPORTED,
                       "codec %s has no kernels for a GPU; fp32, bf16, fp16, q1 to q8, sign "
                       "and randk have",
                       rp_codec_text(codec, text, sizeof text));
    if (context->residual) RP_TRY(rpi_codec_check_feedback(codec, dtype));
    call.first = context->first;
    call.residual = context->residual;
    *out = call;
    return RP_OK;
}
