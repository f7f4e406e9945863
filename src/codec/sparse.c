#include "codec/sparse.h"

#include "codec/codec_convert.h"

#include <math.h>
#include <string.h>

extern const rpi_codec_kind rpi_codec_exact, rpi_codec_half[2], rpi_codec_quant;

/* ---- how values travel ---- */

const char *const rpi_sparse_values[RPI_SPARSE_VALUES + 1] = {
    "bf16", "fp16", "fp32", "q2", "q3", "q4", "q5", "q6", "q7", "q8", NULL};

enum { FIRST_QUANTISED = 3, FIRST_BITS = 2 };

rp_codec rpi_sparse_values_of(const rp_codec *codec) {
    static const rpi_codec_kind *const as_they_are[FIRST_QUANTISED] = {
        &rpi_codec_half[0], &rpi_codec_half[1], &rpi_codec_exact};
    uint32_t way = codec->option[1];
    if (way < FIRST_QUANTISED) return (rp_codec){.kind = as_they_are[way]};
    return (rp_codec){.kind = &rpi_codec_quant,
                      .bucket = RPI_SPARSE_KEPT_MAX,
                      .bits = (uint8_t)(way - FIRST_QUANTISED + FIRST_BITS)};
}

size_t rpi_sparse_value_bytes(const rp_codec *codec, size_t kept) {
    uint32_t way =
        codec->option[1]; /* asked for every bucket: without a look at the catalogue */
    if (way < 2) return 2 * kept;
    if (way == 2) return 4 * kept;
    size_t bits = way - FIRST_QUANTISED + FIRST_BITS;
    return kept ? 8 + (kept * bits + 7) / 8 : 0;
}

void rpi_sparse_encode_values(const rp_codec *codec, rpi_isa isa, rpi_sparse_bucket *bucket,
                              void *out) {
    if (!bucket->kept) return;
    static const rp_encode_context none;
    rp_codec values = rpi_sparse_values_of(codec);
    values.kind->encode(&values, isa, RP_F32, bucket->value, bucket->kept, &none, out);
    rpi_sparse_decode_values(codec, isa, out, bucket);
}

void rpi_sparse_decode_values(const rp_codec *codec, rpi_isa isa, const void *in,
                              rpi_sparse_bucket *bucket) {
    if (!bucket->kept) return;
    static const rp_encode_context none;
    rp_codec values = rpi_sparse_values_of(codec);
    values.kind->decode(&values, isa, RP_F32, in, bucket->kept, &none, bucket->value);
}

/* ---- what codecs may be ---- */

int rpi_sparse_supports(const rp_codec *codec, rp_dtype dtype) {
    (void)codec;
    return dtype == RP_F32 || dtype == RP_F16 || dtype == RP_BF16;
}

int rpi_sparse_is_exact(const rp_codec *codec, rp_dtype dtype) {
    (void)codec, (void)dtype;
    return 0;
}

const char *rpi_sparse_conflict(const rp_codec *codec) {
    return codec->option[0] > codec->bucket ? "k is more than the bucket's elements" : NULL;
}

/* ---- elements ---- */

const float *rpi_sparse_feed(rp_dtype dtype, rpi_isa isa, const void *x, size_t count,
                             float *residual, float room[RPI_SPARSE_BUCKET_MAX]) {
    if (residual)
        rpi_convert(dtype, isa)->widen_add(x, count, residual);
    else if (dtype == RP_F32)
        return x;
    else
        rpi_convert(dtype, isa)->widen(x, count, room);
    return residual ? residual : room;
}

bool rpi_sparse_is_finite(const float *y, size_t count) {
    uint32_t most = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &y[i], sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most < 0x7f800000;
}

void rpi_sparse_settle(const rpi_sparse_bucket *bucket, float *residual) {
    for (size_t i = 0; i < bucket->kept; i++) residual[bucket->index[i]] -= bucket->value[i];
}

void rpi_sparse_scatter(const rpi_sparse_bucket *bucket, rp_dtype dtype, rpi_isa isa,
                        size_t count, void *y) {
    memset(y, 0, rp_dtype_bytes(dtype) * count);
    if (dtype == RP_F32) {
        for (size_t i = 0; i < bucket->kept; i++)
            ((float *)y)[bucket->index[i]] = bucket->value[i];
        return;
    }
    uint16_t narrow[RPI_SPARSE_KEPT_MAX];
    rpi_convert(dtype, isa)->narrow(bucket->value, bucket->kept, narrow);
    for (size_t i = 0; i < bucket->kept; i++) ((uint16_t *)y)[bucket->index[i]] = narrow[i];
}

void rpi_sparse_add(const rpi_sparse_bucket *bucket, float *sum) {
    for (size_t i = 0; i < bucket->kept; i++) sum[bucket->index[i]] += bucket->value[i];
}

void rpi_sparse_spoil(rp_dtype dtype, rpi_isa isa, size_t count, void *y) {
    const float nan = NAN;
    size_t bytes = rp_dtype_bytes(dtype);
    for (size_t i = 0; i < count; i++)
        rpi_convert(dtype, isa)->narrow(&nan, 1, (char *)y + bytes * i);
}

void rpi_sparse_spoil_sum(size_t count, float *sum) {
    for (size_t i = 0; i < count; i++) sum[i] += NAN;
}
