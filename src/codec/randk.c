/* randk: k elements of each bucket at places that follow from seed, step, tensor and position,
 * the same on every rank: nothing but values travels, and sums of what ranks kept are kept
 * whole. docs/codecs.md is normative for places and bytes. */
#include "codec/quant_kernels.h"
#include "codec/sparse.h"

#include <math.h>
#include <string.h>

/* Stands for the role in the names of the stream: places depend on no rank. */
enum { ROLE = 0x646e6172 };

static size_t least_of(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t kept_of(const rp_codec *codec, size_t count) {
    return rpi_randk_kept(codec->option[0], codec->bucket, count);
}

static size_t bucket_bytes(const rp_codec *codec, size_t count) {
    return rpi_sparse_value_bytes(codec, kept_of(codec, count));
}

static size_t randk_encoded_bytes(const rp_codec *codec, rp_dtype dtype, size_t count) {
    (void)dtype;
    size_t rest = count % codec->bucket;
    return count / codec->bucket * bucket_bytes(codec, codec->bucket) +
           (rest ? bucket_bytes(codec, rest) : 0);
}

rpi_quant_stream rpi_randk_stream_of(const rp_encode_context *context) {
    rp_encode_context places = *context;
    places.role = ROLE;
    return rpi_quant_stream_of(&places);
}

static void choose(const rp_codec *codec, const rpi_quant_stream *stream, uint64_t number,
                   size_t count, rpi_sparse_bucket *b) {
    rpi_philox_block drawn = {{0}};
    uint64_t block = rpi_randk_block(codec->option[0], number);
    b->kept = kept_of(codec, count);
    uint32_t n = (uint32_t)count, kept = (uint32_t)b->kept, from = 0;
    for (uint32_t i = 0; i < kept; i++) {
        if (i % RPI_RANDK_WORDS == 0)
            drawn = rpi_quant_random_block(stream, block + i / RPI_RANDK_WORDS);
        uint32_t to = rpi_randk_run(i + 1, n, kept);
        b->index[i] = (uint16_t)rpi_randk_place(from, to, drawn.word[i % RPI_RANDK_WORDS]);
        from = to;
    }
}

/* What is left out waits in the residual; damage anywhere in the bucket is told by its values.
 */
static void encode_bucket(const rp_codec *codec, rpi_isa isa, rpi_sparse_bucket *b,
                          const float *y, size_t count, float *residual, uint8_t *out) {
    bool finite = rpi_sparse_is_finite(y, count);
    for (size_t i = 0; i < b->kept; i++) b->value[i] = finite ? y[b->index[i]] : NAN;
    rpi_sparse_encode_values(codec, isa, b, out);
    if (finite && !rpi_sparse_is_finite(b->value, b->kept)) {
        for (size_t i = 0; i < b->kept; i++) b->value[i] = NAN;
        rpi_sparse_encode_values(codec, isa, b, out);
        finite = false;
    }
    if (!residual) return;
    if (finite)
        rpi_sparse_settle(b, residual);
    else
        memset(residual, 0, count * sizeof *residual);
}

static size_t randk_encode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *x,
                           size_t count, const rp_encode_context *context, void *out) {
    rpi_quant_stream stream = rpi_randk_stream_of(context);
    rpi_sparse_bucket b;
    float room[RPI_SPARSE_BUCKET_MAX];
    uint8_t *to = out;
    for (size_t i = 0, n; i < count; i += n) {
        n = least_of(count - i, codec->bucket);
        float *residual = context->residual ? context->residual + i : NULL;
        const float *y = rpi_sparse_feed(
            dtype, isa, (const char *)x + rp_dtype_bytes(dtype) * i, n, residual, room);
        choose(codec, &stream, (context->first + i) / codec->bucket, n, &b);
        encode_bucket(codec, isa, &b, y, n, residual, to);
        to += bucket_bytes(codec, n);
    }
    return (size_t)(to - (uint8_t *)out);
}

/* False: the bucket is damaged. */
static bool read_bucket(const rp_codec *codec, rpi_isa isa, const rpi_quant_stream *stream,
                        uint64_t element, size_t count, const uint8_t *in,
                        rpi_sparse_bucket *b) {
    choose(codec, stream, element / codec->bucket, count, b);
    rpi_sparse_decode_values(codec, isa, in, b);
    return rpi_sparse_is_finite(b->value, b->kept);
}

static void randk_decode(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                         size_t count, const rp_encode_context *context, void *y) {
    rpi_quant_stream stream = rpi_randk_stream_of(context);
    rpi_sparse_bucket b;
    const uint8_t *from = in;
    for (size_t i = 0, n; i < count; i += n, from += bucket_bytes(codec, n)) {
        n = least_of(count - i, codec->bucket);
        char *to = (char *)y + rp_dtype_bytes(dtype) * i;
        if (read_bucket(codec, isa, &stream, context->first + i, n, from, &b))
            rpi_sparse_scatter(&b, dtype, isa, n, to);
        else
            rpi_sparse_spoil(dtype, isa, n, to);
    }
}

static void randk_decode_add(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                             size_t count, const rp_encode_context *context, void *sum) {
    (void)dtype; /* sums of all three types are floats */
    rpi_quant_stream stream = rpi_randk_stream_of(context);
    rpi_sparse_bucket b;
    const uint8_t *from = in;
    for (size_t i = 0, n; i < count; i += n, from += bucket_bytes(codec, n)) {
        n = least_of(count - i, codec->bucket);
        if (read_bucket(codec, isa, &stream, context->first + i, n, from, &b))
            rpi_sparse_add(&b, (float *)sum + i);
        else
            rpi_sparse_spoil_sum(n, (float *)sum + i);
    }
}

static const rpi_codec_option options[] = {RPI_SPARSE_OPTIONS};

const rpi_codec_kind rpi_codec_randk = {
    .name = "randk",
    .summary = "k elements of each bucket at random places that all ranks know",
    .wire_id = 6,
    .options = options,
    .sparse = true,
    .uses_context = true,
    .supports = rpi_sparse_supports,
    .is_exact = rpi_sparse_is_exact,
    .encoded_bytes = randk_encoded_bytes,
    .encode = randk_encode,
    .decode = randk_decode,
    .decode_add = randk_decode_add,
    .conflict = rpi_sparse_conflict,
};
