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
#include "base/kernel_form.h"
#include "redpoll/codec.h"

#include <stdbool.h>
#include <stddef.h>

/* A bucket travels in one frame, with room left beside it: cuts lie between buckets, and pieces
 * are a little longer or shorter than their share. */
enum { RPI_BUCKET_BYTES_MAX = 256 * 1024 };

/* One option of a kind, as users write it behind the colon: bucket=512. Its place in rp_codec
 * is given, so that parsing, checking, printing and comparing need to know no kind. */
typedef struct rpi_codec_option {
    const char *name;         /* NULL ends a list of options */
    const char *const *words; /* what may be written, ended by NULL; NULL: a whole number */
    const char *unit;         /* of a number, with a blank behind it: "elements " */
    const char *help;         /* behind the option's range, in `redpoll info` */
    uint32_t initial, min, max;
    size_t offset, bytes; /* in rp_codec */
} rpi_codec_option;

#define RPI_CODEC_FIELD(field)                                                                 \
    .offset = offsetof(rp_codec, field), .bytes = sizeof((rp_codec){0}.field)
#define RPI_CODEC_BUCKET(elements, most, words)                                                \
    {                                                                                          \
        .name = "bucket", .unit = "elements ", .help = words, .initial = elements, .min = 1,   \
        .max = most, RPI_CODEC_FIELD(bucket)                                                   \
    }

typedef struct rpi_codec_kind {
    const char *name;           /* as users write it before the bits: "fp32", "bf16", "q" */
    const char *summary;        /* one line for `redpoll info` */
    uint8_t wire_id;            /* in frames; never reused */
    uint8_t bits_min, bits_max; /* 0, 0: the name carries no bits */
    const rpi_codec_option *options; /* NULL: it has none */
    bool varies;                     /* encodings may be shorter than encoded_bytes() says */
    bool sparse;       /* elements come back as 0: of use only where a residual keeps them */
    bool uses_context; /* decoding does: seed, step, tensor and first are agreed on */

    int (*supports)(const rp_codec *codec, rp_dtype dtype);
    int (*is_exact)(const rp_codec *codec, rp_dtype dtype);
    size_t (*encoded_bytes)(const rp_codec *codec, rp_dtype dtype, size_t count);
    /* Returns how many bytes it wrote. */
    size_t (*encode)(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *x,
                     size_t count, const rp_encode_context *context, void *out);
    /* `in` has encoded_bytes() bytes of anything; of kinds that vary, what check() has passed.
     */
    void (*decode)(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                   size_t count, const rp_encode_context *context, void *y);
    void (*decode_add)(const rp_codec *codec, rpi_isa isa, rp_dtype dtype, const void *in,
                       size_t count, const rp_encode_context *context, void *sum);
    /* Of RP_F32, sum = base + what decode() gives; NULL: by a copy and decode_add(). */
    void (*decode_sum)(const rp_codec *codec, rpi_isa isa, const void *in, size_t count,
                       const rp_encode_context *context, const float *base, float *sum);
    /* Kinds that vary: RP_CORRUPT unless encode() can have made these bytes. */
    rp_status (*check)(const rp_codec *codec, rp_dtype dtype, const void *in, size_t bytes,
                       size_t count);
    /* Optional: why options that are in range do not go together; NULL: they do. */
    const char *(*conflict)(const rp_codec *codec);
} rpi_codec_kind;

/* The kernels of this room that have forms; NULL past the end. */
rpi_kernel_form *rpi_codec_form_at(int index);

/* The catalogue: index 0 is the exact codec; NULL past the end. */
const rpi_codec_kind *rpi_codec_at(int index);
/* By the id in a frame; NULL when there is none such. */
const rpi_codec_kind *rpi_codec_by_wire_id(uint8_t wire_id);
/* RP_INVALID: this codec has no error feedback for this dtype. */
rp_status rpi_codec_check_feedback(const rp_codec *codec, rp_dtype dtype);
/* RP_CORRUPT, with the reason: this codec cannot have made these bytes of count elements. */
rp_status rpi_codec_check_encoding(const rp_codec *codec, rp_dtype dtype, const void *in,
                                   size_t bytes, size_t count);
/* rp_codec_decode_add() of RP_F32 to what lies in base, in one pass; base and sum may be one,
 * and overlap in no other way. */
rp_status rpi_codec_decode_sum(const rp_codec *codec, const void *in, size_t bytes,
                               size_t count, const rp_encode_context *context,
                               const float *base, float *sum);
/* codec->kind, or the exact kind where that is NULL. */
const rpi_codec_kind *rpi_codec_kind_of(const rp_codec *codec);

/* ---- options (codec_options.c) ---- */

/* NULL past the end. */
const rpi_codec_option *rpi_codec_option_at(const rpi_codec_kind *kind, int index);
/* NULL: the kind has none of this name. */
const rpi_codec_option *rpi_codec_option_find(const rpi_codec_kind *kind, const char *name);
uint32_t rpi_codec_option_get(const rp_codec *codec, const rpi_codec_option *option);
void rpi_codec_option_set(rp_codec *codec, const rpi_codec_option *option, uint32_t value);
/* Largest number that is allowed for this codec: a bucket must fit a frame, too. */
uint32_t rpi_codec_option_max(const rp_codec *codec, const rpi_codec_option *option);
/* The same as rp_codec_parse(), for who takes only codecs that send each element: of a name
 * that is none it lists these. Others are for the caller to refuse. */
rp_status rpi_codec_parse_dense(const char *text, rp_codec *codec);
/* NULL for a codec that rp_codec_parse() makes; else what is wrong with it, in `text` or not.
 */
enum { RPI_CODEC_FAULT_BYTES = 96 };
const char *rpi_codec_fault(const rp_codec *codec, char text[RPI_CODEC_FAULT_BYTES]);
/* A kind's codec with every option as it is by default. */
rp_codec rpi_codec_default(const rpi_codec_kind *kind, int bits);
/* "bucket=512 (1 to 2097088): elements that share a scale; ..." for help; returns text. */
const char *rpi_codec_options_text(const rpi_codec_kind *kind, char *text, size_t bytes);

#endif
