/** Which all-reduces a lossy codec makes faster here: by trying, on all ranks alike. */
#ifndef REDPOLL_CODEC_COMPARISON_H
#define REDPOLL_CODEC_COMPARISON_H

#include "redpoll/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RP_LOSSY_NEVER     ((size_t)-1)
#define RP_COMPARISON_GAIN 0.1 /**< Of the time: less decides for exact. */
enum { RP_COMPARISON_TEXT = 256 };

typedef struct rp_codec_comparison {
    size_t lossy_from;   /**< Elements from which on all-reduces with the codec are clearly
                              (RP_COMPARISON_GAIN) faster than exact ones; RP_LOSSY_NEVER: none
                            that were   tried. */
    size_t count;        /**< Elements of the longest that were tried. */
    double exact_s;      /**< How long these take, exact: of the slowest rank, the least of a */
    double lossy_s;      /**< few; and with the codec. */
    double sent_bytes_s; /**< Bytes that a rank sends a second in the exact ones; 0: it sends
                              nothing. */
} rp_codec_comparison;

/** Time all-reduces of f32 (means, made-up values), exact and with `codec` in turns, of some
 *  lengths up to `most` elements: four times as long each, from 16,384 on, until an exact one
 *  takes a tenth of a second, up to 4,194,304. Afterwards *comparison is the same on all ranks,
 * so that ranks that follow it do the same; two calls may differ, as times do. codec: of the
 * lossy ones; equal on all ranks, as are the other arguments. most: at least 1. feedback: 1:
 * with error feedback, as in training. algorithm: of both; NULL: chosen. Collective; blocks for
 * about 0.2 s a length, of which there are five at most, and on slow links for four turns of
 * the longest. Nothing else should travel or compute meanwhile, or it is timed, too. Allocates
 * 4 bytes an element of the longest, with feedback 8, for the call. In a world of one nothing
 * is tried and nothing is faster. One caller at a time, as for posting. RP_INVALID: an argument
 * is NULL, 0 or of no such name, or the codec is no codec. RP_NOMEM: on any rank, on all.
 * RP_UNSUPPORTED: the algorithm takes exact codecs only. Else as rp_all_reduce(). */
RP_API rp_status rp_codec_compare(rp_comm *comm, const rp_codec *codec, size_t most,
                                  int feedback, const char *algorithm,
                                  rp_codec_comparison *comparison);

/** What was chosen and why, in a line: "fp32: 4.19 MB take 5.1 ms exact (6.5 Gbit/s sent by a
 *  rank), 12 ms as q4:bucket=512". RP_COMPARISON_TEXT bytes are enough. Returns `text`; "" of
 *  NULL. Pure; any thread. */
RP_API const char *rp_codec_comparison_text(const rp_codec_comparison *comparison,
                                            const rp_codec *codec,
                                            char text[RP_COMPARISON_TEXT]);

#ifdef __cplusplus
}
#endif
#endif
