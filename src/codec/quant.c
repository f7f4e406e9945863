/* q1 ... q8: the max-min bucket quantiser (CGX, Middleware '22). docs/codecs.md is normative
 * for the bytes and the arithmetic. */
#include "codec/codec.h"

#include "codec/codec_convert.h"
#include "codec/quant_kernels.h"

#include <math.h>
#include <string.h>

enum { SCALE_BYTES = 8, BLOCK = 8 };
enum { STEP = RPI_RANDOM_BLOCKS * BLOCK, WINDOW = RPI_TILE + STEP };

static const rpi_quant_kernels *kernels_for(rpi_isa isa) {
    static const rpi_quant_kernels *const table[RPI_ISA_COUNT] = {
        [RPI_ISA_SCALAR] = &rpi_quant_scalar,
#if defined(__x86_64__)
        [RPI_ISA_AVX2] = &rpi_quant_avx2,
        [RPI_ISA_AVX512] = &rpi_quant_avx512,
#elif defined(__aarch64__)
        [RPI_ISA_NEON] = &rpi_quant_neon,
#endif
    };
    while (!table[isa]) isa--;
    return table[isa];
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static int quant_supports(const rp_codec *codec, rp_dtype dtype) {
    (void)codec;
    return dtype == RP_F32 || dtype == RP_F16 || dtype == RP_BF16;
}

static int quant_is_exact(const rp_codec *codec, rp_dtype dtype) {
    (void)codec, (void)dtype;
    return 0;
}

static size_t bucket_bytes(const rp_codec *codec, size_t count) {
    return SCALE_BYTES + rpi_packed_bytes(count, codec->bits);
}

static size_t quant_encoded_bytes(const rp_codec *codec, rp_dtype dtype, size_t count) {
    (void)dtype;
    size_t rest = count % codec->bucket;
    return count / codec->bucket * bucket_bytes(codec, codec->bucket) +
           (rest ? bucket_bytes(codec, rest) : 0);
}

/* ---- randomness ---------------------------------------------------------------------- */

/* The random numbers of the elements around the one being encoded. */
typedef struct random_window {
    rpi_quant_stream stream;
    uint64_t first; /* element of bits[0], a multiple of BLOCK */
    size_t count;
    uint16_t bits[WINDOW];
} random_window;

/* Numbers of `count` elements from `element` on, drawn in advance for up to `remaining`. */
static const uint16_t *random_at(random_window *window, const rpi_quant_kernels *kernels,
                                 uint64_t element, size_t count, size_t remaining) {
    if (element < window->first || element + count > window->first + window->count) {
        window->first = element / BLOCK * BLOCK;
        size_t wanted = (size_t)(element - window->first) + least(remaining, RPI_TILE);
        window->count = (wanted + STEP - 1) / STEP * STEP;
        kernels->random(&window->stream, element / BLOCK, window->count / BLOCK, window->bits);
    }
    return window->bits + (element - window->first);
}

/* ---- encode -------------------------------------------------------------------------- */

typedef struct encoder {
    const rp_codec *codec;
    const rpi_quant_kernels *kernels;
    const rpi_convert_kernels *convert; /* NULL: x are floats already */
    const void *x;
    size_t count;
    float *residual;
    uint64_t first;
    random_window window;
    size_t held, held_count; /* which elements are in tile */
    float tile[RPI_TILE];
} encoder;

/* Up to RPI_TILE elements from i on, as floats. */
static const float *floats_at(encoder *e, size_t i, size_t count) {
    if (!e->convert) return (const float *)e->x + i;
    if (e->held != i || e->held_count != count) {
        e->convert->widen((const char *)e->x + 2 * i, count, e->tile);
        e->held = i;
        e->held_count = count;
    }
    return e->tile;
}

static float *residual_at(encoder *e, size_t i) {
    return e->residual ? e->residual + i : NULL;
}

static const rpi_quant_scale damaged = {NAN, 0};

/* A bucket that holds NaN or infinity, or whose levels would leave the range of f32, is
 * damaged as a whole. Adding 0 turns -0 into 0, whose order in a minimum is undefined. */
static rpi_quant_scale scale_of(const rpi_quant_range *range, int bits) {
    float top = (float)((1 << bits) - 1);
    float min = range->min + 0.0f;
    float unit = (range->max - min + 0.0f) / top;
    if (range->has_nan || !isfinite(min + unit * top)) return damaged;
    return (rpi_quant_scale){min, unit};
}

/* All elements are equal (or nearer than f32 can tell apart in 2^bits steps), or damaged. */
static void encode_flat(encoder *e, size_t begin, size_t count, float min, uint8_t *out) {
    memset(out, 0, rpi_packed_bytes(count, e->codec->bits));
    if (!e->residual) return;
    for (size_t done = 0, n; done < count; done += n) {
        n = least(count - done, RPI_TILE);
        const float *x = floats_at(e, begin + done, n);
        float *residual = e->residual + begin + done;
        for (size_t i = 0; i < n; i++)
            residual[i] = isnan(min) ? 0.0f : x[i] + residual[i] - min;
    }
}

static void encode_levels(encoder *e, size_t begin, size_t count, rpi_quant_scale scale,
                          uint8_t *out) {
    for (size_t done = 0, n; done < count; done += n) {
        size_t i = begin + done;
        n = least(count - done, RPI_TILE);
        const uint16_t *random = NULL;
        if (e->codec->rounding == RP_STOCHASTIC)
            random = random_at(&e->window, e->kernels, e->first + i, n, e->count - i);
        e->kernels->quantise(&(rpi_quant_run){
            .x = floats_at(e, i, n),
            .residual = residual_at(e, i),
            .random = random,
            .count = n,
            .bits = e->codec->bits,
            .scale = scale,
            .out = out + rpi_packed_bytes(done, e->codec->bits),
        });
    }
}

/* Two passes: the second one finds the bucket in the cache. */
static void encode_bucket(encoder *e, size_t begin, size_t count, uint8_t *out) {
    rpi_quant_range range = {INFINITY, -INFINITY, 0};
    for (size_t done = 0, n; done < count; done += n) {
        n = least(count - done, RPI_TILE);
        e->kernels->range(floats_at(e, begin + done, n), residual_at(e, begin + done), n,
                          &range);
    }
    rpi_quant_scale scale = scale_of(&range, e->codec->bits);
    memcpy(out, &scale.min, 4);
    memcpy(out + 4, &scale.unit, 4);
    if (scale.unit > 0)
        encode_levels(e, begin, count, scale, out + SCALE_BYTES);
    else
        encode_flat(e, begin, count, scale.min, out + SCALE_BYTES);
}

static size_t quant_encode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *x,
                           size_t count, const rp_encode_context *context, void *out) {
    encoder e; /* its buffers are filled when they are needed */
    e.codec = codec;
    e.kernels = kernels_for(isa);
    e.convert = dtype == RP_F32 ? NULL : rpi_convert(dtype, isa);
    e.x = x;
    e.count = count;
    e.residual = context->residual;
    e.first = context->first;
    e.window.first = 0;
    e.window.count = 0;
    e.held = e.held_count = 0;
    if (codec->rounding == RP_STOCHASTIC) e.window.stream = rpi_quant_stream_of(context);

    uint8_t *to = out;
    size_t stride = bucket_bytes(codec, codec->bucket);
    for (size_t i = 0; i < count; i += codec->bucket, to += stride)
        encode_bucket(&e, i, least(count - i, codec->bucket), to);
    return quant_encoded_bytes(codec, dtype, count);
}

/* ---- decode -------------------------------------------------------------------------- */

/* Any bytes may come: what is no number damages its bucket, as in encoding. */
static rpi_quant_scale read_scale(const uint8_t *in) {
    rpi_quant_scale scale;
    memcpy(&scale.min, in, 4);
    memcpy(&scale.unit, in + 4, 4);
    return isfinite(scale.min) && isfinite(scale.unit) ? scale : damaged;
}

static void decode_bucket(const rp_codec *codec, const rpi_quant_kernels *kernels,
                          const rpi_convert_kernels *convert, const uint8_t *in, size_t count,
                          void *y) {
    rpi_quant_scale scale = read_scale(in);
    in += SCALE_BYTES;
    if (!convert) {
        kernels->dequantise(in, codec->bits, scale, count, y);
        return;
    }
    for (size_t done = 0, n; done < count; done += n) {
        float tile[RPI_TILE];
        n = least(count - done, RPI_TILE);
        kernels->dequantise(in + rpi_packed_bytes(done, codec->bits), codec->bits, scale, n,
                            tile);
        convert->narrow(tile, n, (char *)y + 2 * done);
    }
}

static void quant_decode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                         size_t count, const rp_encode_context *context, void *y) {
    (void)context;
    const rpi_quant_kernels *kernels = kernels_for(isa);
    const rpi_convert_kernels *convert = dtype == RP_F32 ? NULL : rpi_convert(dtype, isa);
    const uint8_t *from = in;
    size_t stride = bucket_bytes(codec, codec->bucket), element = rp_dtype_bytes(dtype);
    for (size_t i = 0; i < count; i += codec->bucket, from += stride)
        decode_bucket(codec, kernels, convert, from, least(count - i, codec->bucket),
                      (char *)y + element * i);
}

static void quant_decode_add(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                             size_t count, const rp_encode_context *context, void *sum) {
    (void)dtype, (void)context; /* sums of all three types are floats */
    const rpi_quant_kernels *kernels = kernels_for(isa);
    const uint8_t *from = in;
    size_t stride = bucket_bytes(codec, codec->bucket);
    for (size_t i = 0; i < count; i += codec->bucket, from += stride)
        kernels->dequantise_add(from + SCALE_BYTES, codec->bits, read_scale(from),
                                least(count - i, codec->bucket), (float *)sum + i);
}

static const char *const roundings[] = {"nearest", "stochastic", NULL};

static const rpi_codec_option options[] = {
    RPI_CODEC_BUCKET(512, 8 * RPI_BUCKET_BYTES_MAX, "elements that share a scale"),
    {.name = "rounding",
     .words = roundings,
     .help = "of levels; stochastic is unbiased",
     .max = RP_STOCHASTIC,
     RPI_CODEC_FIELD(rounding)},
    {0},
};

const rpi_codec_kind rpi_codec_quant = {
    .name = "q",
    .summary = "max-min bucket quantiser, 1 to 8 bits an element, two f32 scales a bucket",
    .wire_id = 4,
    .bits_min = 1,
    .bits_max = 8,
    .options = options,
    .supports = quant_supports,
    .is_exact = quant_is_exact,
    .encoded_bytes = quant_encoded_bytes,
    .encode = quant_encode,
    .decode = quant_decode,
    .decode_add = quant_decode_add,
};
