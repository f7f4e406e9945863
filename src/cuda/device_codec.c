#include "cuda/device_codec.h"

#include "base/status.h"
#include "codec/codec.h"
#include "codec/quant_kernels.h"
#include "codec/sparse.h"
#include "cuda/topk_lanes.h"
#include "cuda/varied_lanes.h"

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

static bool quantises(const rp_codec *codec, rpi_device_kind kind,
                      const rp_encode_context *context, rpi_device_call *call) {
    call->kind = kind;
    if (codec->rounding != RP_STOCHASTIC) return true;
    call->stochastic = 1;
    call->stream = rpi_quant_stream_of(context);
    return true;
}

/* What is kept of a bucket travels by another codec. */
static bool keeps(const rp_codec *codec, rpi_device_kind kind, rpi_device_call *call) {
    rp_codec values = rpi_sparse_values_of(codec);
    call->kind = kind;
    call->kept = codec->option[0];
    call->bits = values.bits;
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
    if (strcmp(name, "topk") == 0) return keeps(codec, RPI_DEVICE_TOPK, call);
    if (strcmp(name, "randk") == 0) {
        call->stream = rpi_randk_stream_of(context);
        return keeps(codec, RPI_DEVICE_RANDK, call);
    }
    if (strcmp(name, "q") == 0) return quantises(codec, RPI_DEVICE_QUANT, context, call);
    if (strcmp(name, "v") == 0) {
        call->quarters = codec->option[0];
        return quantises(codec, RPI_DEVICE_VARIED, context, call);
    }
    call->kind = RPI_DEVICE_SIGN;
    return strcmp(name, "sign") == 0;
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
        return RP_FAIL(UNSUPPORTED, "codec %s has no kernels for a GPU",
                       rp_codec_text(codec, text, sizeof text));
    if (context->residual) RP_TRY(rpi_codec_check_feedback(codec, dtype));
    call.first = context->first;
    call.residual = context->residual;
    *out = call;
    return RP_OK;
}

static void topk_offsets(const rpi_device_call *call, uint64_t *out) {
    uint64_t at = 0;
    for (uint64_t i = 0; i < rpi_device_buckets(call); i++) {
        out[i] = at;
        uint32_t kept = rpi_topk_head(call, i);
        at += kept == RPI_TOPK_DAMAGED ? (uint64_t)RPI_TOPK_HEAD : rpi_topk_bytes(call, kept);
    }
}

static void varied_offsets(const rpi_device_call *call, uint64_t *out) {
    uint64_t at = 0;
    for (uint64_t i = 0; i < rpi_varied_all_runs(call); i++) {
        out[i] = at;
        at += rpi_varied_bytes(rpi_varied_place_of(call, i).count, call->encoded[at]);
    }
}

uint64_t rpi_device_places(const rpi_device_call *call) {
    switch (call->kind) {
    case RPI_DEVICE_TOPK: return rpi_device_buckets(call);
    case RPI_DEVICE_VARIED: return rpi_varied_all_runs(call);
    default: return 0;
    }
}

rp_status rpi_device_offsets(const rp_codec *codec, rp_dtype dtype, size_t count,
                             const void *encoded, size_t bytes, uint64_t *out) {
    rpi_device_call call;
    RP_TRY(rpi_device_call_of(codec, dtype, count, NULL, &call));
    if (!rpi_device_places(&call)) return RP_OK;
    RP_TRY(rpi_codec_check_encoding(codec, dtype, encoded, bytes, count));
    call.encoded = (uint8_t *)(uintptr_t)encoded; /* is only read */
    call.offsets = out;
    if (call.kind == RPI_DEVICE_TOPK)
        topk_offsets(&call, out);
    else
        varied_offsets(&call, out);
    return RP_OK;
}
