/** Bits for each tensor of a model, from what is measured: bytes are least at the total error
 * of one codec for all. Elements of large tensors that matter little travel with fewer bits,
 *  those that make the error with more.
 *
 *      rp_adaptive_codec_parse("auto:like=q4,every=100", &codec);
 *      in a step that measures, for each tensor of this rank:
 *          rp_bits_measure(&codec.codec, gradient, residual, count, choice[i].lost);
 *      sum all `lost` over the ranks (rp_all_reduce, RP_F64: all ranks get the same bits);
 *      rp_bits_choose(&codec.codec, 2, choice, tensors);
 *      until the next such step tensor i travels with codec.codec of choice[i].bits bits. */
#ifndef REDPOLL_ADAPTIVE_H
#define REDPOLL_ADAPTIVE_H

#include "redpoll/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { RP_BITS_MOST = 8, RP_ADAPTIVE_TEXT = 96 };

/** How the tensors of a model travel: one codec, or "auto:like=q4,every=100". */
typedef struct rp_adaptive_codec {
    rp_codec codec; /**< Of all tensors; with `every`: the one whose error is met. */
    int64_t every;  /**< Steps after which bits are chosen anew; 0: the codec is as it is. */
} rp_adaptive_codec;

/** A codec's text, or auto's: `like` is q1 to q8, `every` 100 where it is absent. Options of
 * the codec behind `like` may stand anywhere behind it: "auto:like=q4,bucket=128". RP_INVALID
 * says what is wrong; *codec is set on success only. Pure; any thread. */
RP_API rp_status rp_adaptive_codec_parse(const char *text, rp_adaptive_codec *codec);

/** Canonical, and what rp_adaptive_codec_parse() reads. RP_ADAPTIVE_TEXT bytes are enough.
 *  Returns `text`. */
RP_API const char *rp_adaptive_codec_text(const rp_adaptive_codec *codec,
                                          char text[RP_ADAPTIVE_TEXT]);

typedef struct rp_bits_choice {
    size_t count;                  /**< Elements of the tensor. */
    double lost[RP_BITS_MOST + 1]; /**< Squared error with b bits, of all ranks; [0] unused. */
    uint8_t bits;                  /**< What is chosen. */
} rp_bits_choice;

/** Add to lost[b] what `like` with b bits would lose of x + residual (NULL: of x), f32, for b
 *  from 1 to 8: as often encoded and decoded, on the calling thread. RP_INVALID: `like` has no
 *  bits to choose (is not q1 to q8). RP_NOMEM. */
RP_API rp_status rp_bits_measure(const rp_codec *like, const float *x, const float *residual,
                                 size_t count, double lost[RP_BITS_MOST + 1]);

/** Fill in `bits` of all tensors. Afterwards neither the sum of lost[bits] nor the bytes are
 *  more than with like->bits for all. A tensor whose error is not finite (its gradient was not)
 *  gets like->bits and counts for nothing. Pure: ranks that hold the same numbers choose alike.
 *  least: fewest bits of the others; 2 with error feedback, under which one bit does not
 *  settle. O(tensors^2). RP_INVALID: as above, or `least` is not 1 to 8. */
RP_API rp_status rp_bits_choose(const rp_codec *like, int least, rp_bits_choice *tensors,
                                size_t count);

#ifdef __cplusplus
}
#endif
#endif
