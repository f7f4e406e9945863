/** Bits where they are needed, from what is measured: bytes are least at the total error of one
 * codec for all. Each tensor travels as v1 to v8 at one of RP_LEVELS levels, and so gives its
 * own parts bits by their variance; tensors that matter little have low levels.
 *
 *      rp_adaptive_codec_parse("auto:like=q4,every=100", &codec);
 *      in a step that measures, for each tensor of this rank:
 *          rp_levels_measure(&codec.codec, gradient, residual, count, choice[i].measured);
 *      sum all `measured` over the ranks (rp_all_reduce, RP_F64: all ranks get the same bits);
 *      rp_levels_choose(&codec.codec, choice, tensors);
 *      until the next such step tensor i travels with rp_level_codec(..., choice[i].level). */
#ifndef REDPOLL_ADAPTIVE_H
#define REDPOLL_ADAPTIVE_H

#include "redpoll/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RP_ADAPTIVE_TEXT = 96,
    RP_LEVELS = 33,              /**< Level 0 is the codec whose error is met, 1 to 32 are v1,
                                      v1:quarters=1 ... v8:quarters=3. */
    RP_MEASURED = 2 * RP_LEVELS, /**< Numbers of a tensor: errors, then bytes, by level. */
};

/** How the tensors of a model travel: one codec, "auto:like=q4,every=100", or "auto". */
typedef struct rp_adaptive_codec {
    rp_codec codec; /**< Of all tensors; with `every`: the one whose error is met. */
    int64_t every;  /**< Steps after which bits are chosen anew; 0: the codec is as it is. */
    int fastest;    /**< 1 of "auto" without `like`: so only where that is faster than exact
                         (redpoll/codec_comparison.h), and then at the error of q4. */
} rp_adaptive_codec;

/** A codec's text, or auto's: `like` is q1 to q8, `every` 100 where it is absent. Options of
 * the codec behind `like` may stand anywhere behind it: "auto:like=q4,bucket=128". Without
 * `like`, "auto" or "auto:every=100", it is q4, and `fastest`. RP_INVALID says what is wrong;
 * *codec is set on success only. Pure; any thread. */
RP_API rp_status rp_adaptive_codec_parse(const char *text, rp_adaptive_codec *codec);

/** Canonical, and what rp_adaptive_codec_parse() reads. RP_ADAPTIVE_TEXT bytes are enough.
 *  Returns `text`. */
RP_API const char *rp_adaptive_codec_text(const rp_adaptive_codec *codec,
                                          char text[RP_ADAPTIVE_TEXT]);

/** The codec of a level, with the rounding of `like`. RP_INVALID: there is no such level, or
 *  `like` is not q1 to q8. Pure; any thread. */
RP_API rp_status rp_level_codec(const rp_codec *like, int level, rp_codec *out_codec);

/** What stands for all levels in predictions: as many bits an element as `like` on average, and
 *  about as fast as its neighbours. RP_INVALID: as above. Pure; any thread. */
RP_API rp_status rp_level_like(const rp_codec *like, rp_codec *out_codec);

typedef struct rp_level_choice {
    double measured[RP_MEASURED]; /**< Of all ranks: squared error of level l at l, its bytes at
                                       RP_LEVELS + l. */
    int level;                    /**< What is chosen. */
} rp_level_choice;

/** Add to measured[] what x + residual (NULL: x), f32, would lose and take at each level: its
 *  runs are encoded once with each number of bits, on the calling thread. RP_INVALID: `like` is
 *  not q1 to q8, or nothing to measure or nowhere to put it. RP_NOMEM. */
RP_API rp_status rp_levels_measure(const rp_codec *like, const float *x, const float *residual,
                                   size_t count, double measured[RP_MEASURED]);

/** Fill in `level` of all tensors. Afterwards neither the errors nor the bytes add up to more
 *  than those of level 0 for all. A tensor whose error is not finite (its gradient was not)
 * gets level 0 and counts for nothing. Pure: ranks that hold the same numbers choose alike.
 *  O(tensors^2). RP_INVALID: as above. */
RP_API rp_status rp_levels_choose(const rp_codec *like, rp_level_choice *tensors, size_t count);

/** Is a whole step of training faster lossy? What travels under the backward pass costs no
 * time, and what encodes takes cores from it; so some steps are taken each way. Zeros: none
 * yet. */
enum {
    RP_TRIAL_STEPS = 6, /**< That count each way, behind one that does not. */
    RP_TRIAL_EXACT = 0,
    RP_TRIAL_LOSSY = 1,
    RP_TRIAL_OVER = -1,
};
typedef struct rp_step_trial {
    int steps; /**< That have begun. */
    double began_s;
    double seconds[2][RP_TRIAL_STEPS];
} rp_step_trial;

/** A step begins, at `now_s` by any clock that does not go back: which way it goes.
 *  RP_TRIAL_OVER: all steps of the trial have ended, and this one is none; also of NULL. */
RP_API int rp_step_trial_begin(rp_step_trial *trial, double now_s);

/** The least times of a trial that is over, by way: what others took from it is least in these.
 * Let ranks agree on the largest (RP_MAX). RP_INVALID: something is NULL, or it is not over. */
RP_API rp_status rp_step_trial_times(const rp_step_trial *trial, double seconds[2]);

/** 1: lossy steps are clearly (a thirtieth) shorter. 0 of NULL. Pure; any thread. */
RP_API int rp_step_trial_gains(const double seconds[2]);

#ifdef __cplusplus
}
#endif
#endif
