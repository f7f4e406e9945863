/* sign: of each element its sign, of each bucket the mean of the magnitudes. docs/codecs.md is
 * normative for the bytes and the arithmetic. */
#include "codec/codec.h"

#include "codec/codec_convert.h"
#include "codec/sign_kernels.h"

#include <math.h>
#include <string.h>

enum { MEAN_BYTES = 4 };

static const rpi_sign_kernels *kernels_for(rpi_isa isa) {
#if defined(__x86_64__)
    if (isa >= RPI_ISA_AVX2) return &rpi_sign_avx2;
#elif defined(__aarch64__)
    if (isa >= RPI_ISA_NEON) return &rpi_sign_neon;
#endif
    (void)isa;
    return &rpi_sign_scalar;
}

static size_t least_of(size_t a, size_t b) {
    return a < b ? a : b;
}

static int sign_supports(const rp_codec *codec, rp_dtype dtype) {
    (void)codec;
    return dtype == RP_F32 || dtype == RP_F16 || dtype == RP_BF16;
}

static int sign_is_exact(const rp_codec *codec, rp_dtype dtype) {
    (void)codec, (void)dtype;
    return 0;
}

static size_t bucket_bytes(size_t count) {
    return MEAN_BYTES + (count + 7) / 8;
}

static size_t sign_encoded_bytes(const rp_codec *codec, rp_dtype dtype, size_t count) {
    (void)dtype;
    size_t rest = count % codec->bucket;
    return count / codec->bucket * bucket_bytes(codec->bucket) +
           (rest ? bucket_bytes(rest) : 0);
}

/* ---- encode -------------------------------------------------------------------------- */

typedef struct encoder {
    const rpi_sign_kernels *kernels;
    const rpi_convert_kernels *convert; /* NULL: x are floats already */
    float tile[RPI_TILE];
} encoder;

static const float *floats_at(encoder *e, const void *x, size_t i, size_t count) {
    if (!e->convert) return (const float *)x + i;
    e->convert->widen((const char *)x + 2 * i, count, e->tile);
    return e->tile;
}

/* NaN where an element is NaN or infinite, or a tile's sum leaves the range of f32. */
static float mean_of(encoder *e, const void *x, const float *residual, size_t begin,
                     size_t count) {
    double sum = 0;
    for (size_t done = 0, n; done < count; done += n) {
        n = least_of(count - done, RPI_TILE);
        size_t i = begin + done;
        sum +=
            (double)e->kernels->sum(floats_at(e, x, i, n), residual ? residual + i : NULL, n);
    }
    return isfinite(sum) ? (float)(sum / (double)count) : NAN;
}

static void encode_bucket(encoder *e, const void *x, float *residual, size_t begin,
                          size_t count, uint8_t *out) {
    float mean = mean_of(e, x, residual, begin, count);
    memcpy(out, &mean, MEAN_BYTES);
    out += MEAN_BYTES;
    if (isnan(mean)) {
        memset(out, 0, (count + 7) / 8);
        if (residual) memset(residual + begin, 0, count * sizeof *residual);
        return;
    }
    for (size_t done = 0, n; done < count; done += n) {
        n = least_of(count - done, RPI_TILE);
        size_t i = begin + done;
        e->kernels->pack(floats_at(e, x, i, n), residual ? residual + i : NULL, n, mean,
                         out + done / 8);
    }
}

static size_t sign_encode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *x,
                          size_t count, const rp_encode_context *context, void *out) {
    encoder e; /* the tile is filled as it is needed */
    e.kernels = kernels_for(isa);
    e.convert = dtype == RP_F32 ? NULL : rpi_convert(dtype, isa);
    uint8_t *to = out;
    for (size_t i = 0; i < count; i += codec->bucket, to += bucket_bytes(codec->bucket))
        encode_bucket(&e, x, context->residual, i, least_of(count - i, codec->bucket), to);
    return sign_encoded_bytes(codec, dtype, count);
}

/* ---- decode -------------------------------------------------------------------------- */

/* Any bytes may come: what is no number damages its bucket, whatever its signs. */
static float read_mean(const uint8_t *in) {
    float mean;
    memcpy(&mean, in, MEAN_BYTES);
    return isfinite(mean) ? mean : NAN;
}

static void decode_tile(const rpi_sign_kernels *kernels, const uint8_t *in, size_t count,
                        float mean, float *y) {
    if (!isnan(mean)) {
        kernels->unpack(in, count, mean, y);
        return;
    }
    for (size_t i = 0; i < count; i++) y[i] = NAN;
}

static void decode_bucket(const rpi_sign_kernels *kernels, const rpi_convert_kernels *convert,
                          const uint8_t *in, size_t count, void *y) {
    float mean = read_mean(in);
    in += MEAN_BYTES;
    if (!convert) {
        decode_tile(kernels, in, count, mean, y);
        return;
    }
    for (size_t done = 0, n; done < count; done += n) {
        float tile[RPI_TILE];
        n = least_of(count - done, RPI_TILE);
        decode_tile(kernels, in + done / 8, n, mean, tile);
        convert->narrow(tile, n, (char *)y + 2 * done);
    }
}

static void sign_decode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                        size_t count, const rp_encode_context *context, void *y) {
    (void)context;
    const rpi_convert_kernels *convert = dtype == RP_F32 ? NULL : rpi_convert(dtype, isa);
    const uint8_t *from = in;
    for (size_t i = 0; i < count; i += codec->bucket, from += bucket_bytes(codec->bucket))
        decode_bucket(kernels_for(isa), convert, from, least_of(count - i, codec->bucket),
                      (char *)y + rp_dtype_bytes(dtype) * i);
}

static void sign_decode_add(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                            size_t count, const rp_encode_context *context, void *sum) {
    (void)dtype, (void)context; /* sums of all three types are floats */
    const rpi_sign_kernels *kernels = kernels_for(isa);
    const uint8_t *from = in;
    for (size_t i = 0; i < count; i += codec->bucket, from += bucket_bytes(codec->bucket)) {
        size_t n = least_of(count - i, codec->bucket);
        float mean = read_mean(from), *to = (float *)sum + i;
        if (!isnan(mean)) kernels->unpack_add(from + MEAN_BYTES, n, mean, to);
        for (size_t k = 0; isnan(mean) && k < n; k++) to[k] += mean;
    }
}

static const rpi_codec_option options[] = {
    RPI_CODEC_BUCKET(512, 8 * RPI_BUCKET_BYTES_MAX, "elements that share a mean magnitude"),
    {0},
};

const rpi_codec_kind rpi_codec_sign = {
    .name = "sign",
    .summary = "one bit an element, and the mean magnitude of its bucket",
    .wire_id = 7,
    .options = options,
    .supports = sign_supports,
    .is_exact = sign_is_exact,
    .encoded_bytes = sign_encoded_bytes,
    .encode = sign_encode,
    .decode = sign_decode,
    .decode_add = sign_decode_add,
};
