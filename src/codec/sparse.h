/* What the sparse codecs share: of each bucket some elements are kept, whose values travel by
 * another codec; the others are 0, and wait in the residual where there is one. */
#ifndef RPI_CODEC_SPARSE_H
#define RPI_CODEC_SPARSE_H

#include "codec/codec.h"
#include "codec/quant_arithmetic.h"
#include "codec/sparse_arithmetic.h"

/* Rows of the options: option[0] is k, option[1] says how values travel. */
#define RPI_SPARSE_OPTIONS                                                                     \
    {.name = "k",                                                                              \
     .unit = "elements ",                                                                      \
     .help = "kept of each bucket",                                                            \
     .initial = 32,                                                                            \
     .min = 1,                                                                                 \
     .max = RPI_SPARSE_KEPT_MAX,                                                               \
     RPI_CODEC_FIELD(option[0])},                                                              \
        RPI_CODEC_BUCKET(4096, RPI_SPARSE_BUCKET_MAX, "elements of which k are kept"),         \
        {.name = "values",                                                                     \
         .words = rpi_sparse_values,                                                           \
         .help = "how kept values travel",                                                     \
         .max = RPI_SPARSE_VALUES - 1,                                                         \
         RPI_CODEC_FIELD(option[1])},                                                          \
    {                                                                                          \
        0                                                                                      \
    }

enum { RPI_SPARSE_VALUES = 10 };
extern const char *const rpi_sparse_values[RPI_SPARSE_VALUES + 1];

/* Elements of one bucket that are kept, in rising order of their index. */
typedef struct rpi_sparse_bucket {
    size_t kept;
    uint16_t index[RPI_SPARSE_KEPT_MAX];
    float value[RPI_SPARSE_KEPT_MAX];
} rpi_sparse_bucket;

int rpi_sparse_supports(const rp_codec *codec, rp_dtype dtype);
int rpi_sparse_is_exact(const rp_codec *codec, rp_dtype dtype);
const char *rpi_sparse_conflict(const rp_codec *codec);

/* By which codec values travel: one bucket of the quantiser holds all of one of ours. */
rp_codec rpi_sparse_values_of(const rp_codec *codec);
size_t rpi_sparse_value_bytes(const rp_codec *codec, size_t kept);
/* Values of `bucket` into out; what they decode to takes their place. */
void rpi_sparse_encode_values(const rp_codec *codec, rpi_isa isa, rpi_sparse_bucket *bucket,
                              void *out);
void rpi_sparse_decode_values(const rp_codec *codec, rpi_isa isa, const void *in,
                              rpi_sparse_bucket *bucket);

/* From which randk draws its places. */
rpi_quant_stream rpi_randk_stream_of(const rp_encode_context *context);

/* x + residual as floats: x itself, the residual (which it then replaces), or `room`. */
const float *rpi_sparse_feed(rp_dtype dtype, rpi_isa isa, const void *x, size_t count,
                             float *residual, float room[RPI_SPARSE_BUCKET_MAX]);
bool rpi_sparse_is_finite(const float *y, size_t count);
/* The residual, which is y so far, without what the receiver gets. */
void rpi_sparse_settle(const rpi_sparse_bucket *bucket, float *residual);
/* Write `count` elements, or add them to floats. */
void rpi_sparse_scatter(const rpi_sparse_bucket *bucket, rp_dtype dtype, rpi_isa isa,
                        size_t count, void *y);
void rpi_sparse_add(const rpi_sparse_bucket *bucket, float *sum);
/* A damaged bucket is NaN in every element. */
void rpi_sparse_spoil(rp_dtype dtype, rpi_isa isa, size_t count, void *y);
void rpi_sparse_spoil_sum(size_t count, float *sum);

#endif
