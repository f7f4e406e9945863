/** Codecs: how elements become bytes on the wire, and back.
 *
 * A codec is a small value, not an object: copy it freely, there is nothing to destroy. All
 * zeros is the exact codec. Granule: the smallest run of elements that is encoded by itself
 * (a quantisation bucket; 1 for codecs that treat each element alone). Encodings concatenate:
 * for any cut at a granule, encode(a followed by b) is encode(a) followed by encode(b).
 */
#ifndef REDPOLL_CODEC_H
#define REDPOLL_CODEC_H

#include "redpoll/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rp_rounding { RP_NEAREST = 0, RP_STOCHASTIC = 1 } rp_rounding;

typedef struct rp_codec {
    const struct rpi_codec_kind *kind; /**< Row of the catalogue; NULL is the exact codec. */
    uint32_t bucket;                   /**< Elements a scale; 0 where the codec has none. */
    uint8_t bits;                      /**< Bits an element; 0 where the dtype decides. */
    uint8_t rounding;                  /**< An rp_rounding. */
    uint32_t option[2];                /**< The kind's own options; zeros where it has none. */
} rp_codec;

/** Where randomness and error feedback of one encoding come from. Zeros: none needed. Decoding
 *  takes the seed, step, tensor and first of the encoding; it looks at nothing else. */
typedef struct rp_encode_context {
    uint64_t seed;   /**< Of the run. */
    uint64_t step;   /**< Of the training loop, or a call counter. */
    uint32_t tensor; /**< Identity of the tensor among all tensors of the run. */
    uint32_t role;   /**< 0 sender's encoding, 1 owner's encoding of the sum; plus 2 x rank. */
    uint64_t first;  /**< Index in the tensor of the first element encoded. */
    float *residual; /**< NULL, or `count` floats of error feedback, read and rewritten:
                          encodes y = x + residual and leaves y - decoded, all in f32. The
                          exact codec so pays out what lossy steps held back. */
} rp_encode_context;

/** Parse "fp32", "bf16", "fp16", "q4", "q4:bucket=1024,rounding=stochastic", "v4" ...
 *  `fp32` is the exact codec: elements travel as they are, whatever their dtype.
 *  RP_INVALID names what is wrong, with the nearest known name. *codec is set on success only.
 *  Pure; any thread. */
RP_API rp_status rp_codec_parse(const char *text, rp_codec *codec);

/** Canonical text of a codec, which rp_codec_parse() reads back: "q4:bucket=512". Returns
 *  `text`, always terminated; 64 bytes are enough for every codec. */
RP_API const char *rp_codec_text(const rp_codec *codec, char *text, size_t bytes);

/** 1 when decode(encode(x)) is x for every input of this dtype. */
RP_API int rp_codec_is_exact(const rp_codec *codec, rp_dtype dtype);

/** 1 when the codec takes elements of this dtype. */
RP_API int rp_codec_supports(const rp_codec *codec, rp_dtype dtype);

/** Elements a granule, at least 1. */
RP_API size_t rp_codec_granule(const rp_codec *codec);

/** The most bytes that `count` elements encode to, known without the data. 0 for count 0.
 *  Codecs other than topk and v1 to v8 always give so many. */
RP_API size_t rp_codec_encoded_bytes(const rp_codec *codec, rp_dtype dtype, size_t count);

/** Encode `count` elements.
 *  x: count elements of dtype, any alignment that the dtype has, borrowed for the call.
 *  context: NULL for no randomness key and no error feedback (stochastic rounding then uses
 *  seed 0, step 0, tensor 0).
 *  out: rp_codec_encoded_bytes() bytes, any alignment; must not overlap x.
 *  out_bytes: how many of them were written; NULL where that is not asked.
 *  NaN and infinity: codecs that treat each element alone keep them as they are. A bucket that
 *  holds one (or whose range leaves f32) decodes to NaN in every element, so that every rank
 *  sees the damage (of v1 to v8, a run of 256 elements). Their residuals become 0. No finite
 *  element becomes an infinity.
 *  Deterministic: the bytes depend on the arguments only, not on processor, thread or
 *  floating-point environment (rounding, flushing of subnormals, traps), which stays as it is.
 *  RP_UNSUPPORTED: dtype not taken by the codec. RP_INVALID: a codec that rp_codec_parse() does
 *  not make, a NULL x or out, a residual for integers, or one for 1 bit with stochastic
 *  rounding, under which residuals double at every step. */
RP_API rp_status rp_codec_encode(const rp_codec *codec, rp_dtype dtype, const void *x,
                                 size_t count, const rp_encode_context *context, void *out,
                                 size_t *out_bytes);

/** Decode `count` elements into y (count elements of dtype, overwritten).
 *  in, bytes: an encoding of exactly `count` elements; RP_CORRUPT when the codec cannot have
 *  made it: too long, too short, or places out of order. Any bytes are accepted as levels,
 *  scales and values: no input can overrun y. Finite values beyond the range of f16 are stored
 *  as its largest finite value.
 *  context: that of the encoding, for codecs whose positions follow from it (randk); NULL:
 *  zeros. */
RP_API rp_status rp_codec_decode(const rp_codec *codec, rp_dtype dtype, const void *in,
                                 size_t bytes, size_t count, const rp_encode_context *context,
                                 void *y);

/** Decode and add: sum[i] += decoded[i]. The sum of f16 and bf16 data is kept in f32, so `sum`
 *  holds floats for f32, f16 and bf16, else elements of dtype (integers wrap around). */
RP_API rp_status rp_codec_decode_add(const rp_codec *codec, rp_dtype dtype, const void *in,
                                     size_t bytes, size_t count,
                                     const rp_encode_context *context, void *sum);

#ifdef __cplusplus
}
#endif
#endif
