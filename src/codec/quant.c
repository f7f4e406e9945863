/* q1 ... q8: the max-min bucket quantiser (CGX, Middleware '22). docs/codecs.md is normative
 * for the bytes and the arithmetic. */
#include "codec/codec.h"

#include "codec/quant_run.h"

#include <string.h>

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t bucket_bytes(const rp_codec *codec, size_t count) {
    return RPI_QUANT_HEAD + rpi_packed_bytes(count, codec->bits);
}

static size_t quant_encoded_bytes(const rp_codec *codec, rp_dtype dtype, size_t count) {
    (void)dtype;
    size_t rest = count % codec->bucket;
    return count / codec->bucket * bucket_bytes(codec, codec->bucket) +
           (rest ? bucket_bytes(codec, rest) : 0);
}

/* ---- encode -------------------------------------------------------------------------- */

/* Two passes: the second one finds the bucket in the cache. */
static void encode_bucket(rpi_quant_encoder *e, size_t begin, size_t count, uint8_t *out) {
    rpi_quant_range range = rpi_quant_no_range();
    for (size_t done = 0, n; done < count; done += n) {
        n = least(count - done, RPI_TILE);
        e->kernels->range(rpi_quant_floats_at(e, begin + done, n),
                          rpi_quant_residual_at(e, begin + done), n, &range);
    }
    rpi_quant_scale scale = rpi_quant_scale_of(&range, e->codec->bits);
    memcpy(out, &scale.min, 4);
    memcpy(out + 4, &scale.unit, 4);
    out += RPI_QUANT_HEAD;
    if (scale.unit > 0) {
        rpi_quant_encode_levels(e, begin, count, e->codec->bits, scale, out);
    } else { /* all equal (or nearer than f32 tells apart in 2^bits steps), or damaged */
        memset(out, 0, rpi_packed_bytes(count, e->codec->bits));
        rpi_quant_settle_flat(e, begin, count, scale.min);
    }
}

/* Whether a kernel does many buckets in one call: all, or those that the tile has room for. */
static bool does_many(const rpi_quant_encoder *e) {
    return e->kernels->quantise_buckets && e->codec->rounding == RP_NEAREST &&
           (!e->convert || e->codec->bucket <= RPI_TILE);
}

static const char *const forms[] = {"plain", "fetch", "range-first", "fetch+range-first", NULL};

static bool run_form(int form, float *memory) {
    enum { COUNT = RPI_FORM_BYTES / sizeof(float), BUCKET = 512, BITS = 4 };
    uint8_t out[COUNT / BUCKET * RPI_QUANT_HEAD + COUNT * BITS / 8];
    const rpi_quant_kernels *kernels = rpi_quant_kernels_for(rpi_cpu_isa());
    if (!kernels->quantise_buckets) return false;
    kernels->quantise_buckets(&(rpi_quant_buckets){
        .x = memory, .count = COUNT, .bucket = BUCKET, .bits = BITS, .form = form, .out = out});
    return true;
}

rpi_kernel_form rpi_quant_form = {.kernel = "quantise", .names = forms, .run = run_form};

/* A tile of converted elements is in the cache. */
static int form_of(const rpi_quant_encoder *e) {
    int form = rpi_form_for(&rpi_quant_form, e->count * sizeof(float));
    return e->convert ? form & ~RPI_QUANT_FETCHES : form;
}

static void encode_many(rpi_quant_encoder *e, uint8_t *out) {
    size_t bucket = e->codec->bucket, step = e->convert ? RPI_TILE / bucket * bucket : e->count;
    const int form = form_of(e);
    for (size_t i = 0; i < e->count; i += step) {
        e->kernels->quantise_buckets(&(rpi_quant_buckets){
            .x = rpi_quant_floats_at(e, i, least(step, e->count - i)),
            .residual = rpi_quant_residual_at(e, i),
            .count = least(step, e->count - i),
            .bucket = bucket,
            .bits = e->codec->bits,
            .form = form,
            .out = out + i / bucket * bucket_bytes(e->codec, bucket),
        });
    }
}

static size_t quant_encode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *x,
                           size_t count, const rp_encode_context *context, void *out) {
    rpi_quant_encoder e;
    rpi_quant_begin(&e, codec, isa, dtype, x, count, context);
    size_t stride = bucket_bytes(codec, codec->bucket);
    uint8_t *to = out;
    if (does_many(&e))
        encode_many(&e, out);
    else
        for (size_t i = 0; i < count; i += codec->bucket, to += stride)
            encode_bucket(&e, i, least(count - i, codec->bucket), to);
    return quant_encoded_bytes(codec, dtype, count);
}

/* ---- decode -------------------------------------------------------------------------- */

static rpi_quant_scale read_scale(const uint8_t *in) {
    rpi_quant_scale scale;
    memcpy(&scale.min, in, 4);
    memcpy(&scale.unit, in + 4, 4);
    return rpi_quant_sound(scale);
}

static void quant_decode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                         size_t count, const rp_encode_context *context, void *y) {
    (void)context;
    const rpi_quant_kernels *kernels = rpi_quant_kernels_for(isa);
    const rpi_convert_kernels *convert = dtype == RP_F32 ? NULL : rpi_convert(dtype, isa);
    const uint8_t *from = in;
    size_t stride = bucket_bytes(codec, codec->bucket), element = rp_dtype_bytes(dtype);
    for (size_t i = 0; i < count; i += codec->bucket, from += stride)
        rpi_quant_decode_levels(kernels, convert, from + RPI_QUANT_HEAD, codec->bits,
                                read_scale(from), least(count - i, codec->bucket),
                                (char *)y + element * i);
}

static void quant_decode_sum(const rp_codec *codec, rpi_isa isa, const void *in, size_t count,
                             const rp_encode_context *context, const float *base, float *sum) {
    (void)context;
    const rpi_quant_kernels *kernels = rpi_quant_kernels_for(isa);
    const uint8_t *from = in;
    size_t stride = bucket_bytes(codec, codec->bucket);
    for (size_t i = 0; i < count; i += codec->bucket, from += stride)
        kernels->dequantise_sum(from + RPI_QUANT_HEAD, codec->bits, read_scale(from),
                                least(count - i, codec->bucket), base + i, sum + i);
}

/* Sums of all three types are floats. */
static void quant_decode_add(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                             size_t count, const rp_encode_context *context, void *sum) {
    (void)dtype;
    quant_decode_sum(codec, isa, in, count, context, sum, sum);
}

static const rpi_codec_option options[] = {
    RPI_CODEC_BUCKET(512, 8 * RPI_BUCKET_BYTES_MAX, "elements that share a scale"),
    RPI_QUANT_ROUNDING,
    {0},
};

const rpi_codec_kind rpi_codec_quant = {
    .name = "q",
    .summary = "max-min bucket quantiser, 1 to 8 bits an element, two f32 scales a bucket",
    .wire_id = 4,
    .bits_min = 1,
    .bits_max = 8,
    .options = options,
    .supports = rpi_quant_supports,
    .is_exact = rpi_quant_is_exact,
    .encoded_bytes = quant_encoded_bytes,
    .encode = quant_encode,
    .decode = quant_decode,
    .decode_add = quant_decode_add,
    .decode_sum = quant_decode_sum,
};
