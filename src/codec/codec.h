/* The contract of a codec kind: what codecs.c (the catalogue) lists and <redpoll/codec.h>
 * calls. A new codec is one file that exports one `const rpi_codec_kind`, one row in codecs.c
 * and one word in CMakeLists.txt.
 *
 * Every function is pure, never blocks, may run on any thread, and trusts its arguments (the
 * public functions have checked them). `count` is at least 1, `context` never NULL. Only the
 * last granule may be short. Kernels of all instruction sets give the same bytes as the scalar
 * one. */
#ifndef RPI_CODEC_CODEC_H
#define RPI_CODEC_CODEC_H

#include "base/cpu.h"
#include "redpoll/codec.h"

/* A bucket travels in one frame, with room left beside it: cuts lie between buckets, and pieces
 * are a little longer or shorter than their share. */
enum { RPI_BUCKET_BYTES_MAX = 256 * 1024 };

typedef struct rpi_codec_kind {
    const char *name;           /* as users write it before the bits: "fp32", "bf16", "q" */
    const char *summary;        /* one line for `redpoll info` */
    uint8_t wire_id;            /* in frames; never reused */
    uint8_t bits_min, bits_max; /* 0, 0: the name carries no bits */
    uint32_t default_bucket;    /* 0: takes no bucket */
    int takes_rounding;

    int (*supports)(const rp_codec *codec, rp_dtype dtype);
    int (*is_exact)(const rp_codec *codec, rp_dtype dtype);
    size_t (*encoded_bytes)(const rp_codec *codec, rp_dtype dtype, size_t count);
    void (*encode)(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *x,
                   size_t count, const rp_encode_context *context, void *out);
    void (*decode)(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                   size_t count, void *y);
    void (*decode_add)(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                       size_t count, void *sum);
} rpi_codec_kind;

/* The catalogue: index 0 is the exact codec; NULL past the end. */
const rpi_codec_kind *rpi_codec_at(int index);
/* By the id in a frame; NULL when there is none such. */
const rpi_codec_kind *rpi_codec_by_wire_id(uint8_t wire_id);
/* RP_INVALID: this codec has no error feedback for this dtype. */
rp_status rpi_codec_check_feedback(const rp_codec *codec, rp_dtype dtype);
/* codec->kind, or the exact kind where that is NULL. */
const rpi_codec_kind *rpi_codec_kind_of(const rp_codec *codec);
/* Elements of the largest bucket that this kind may have with these bits; 0: it has none. */
uint32_t rpi_codec_bucket_max(const rp_codec *codec);

#endif
