/** Local SGD and its kin: many steps of an optimizer on each rank between two exchanges.
 *
 * Every rank trains by itself; every `every` steps what the ranks have learnt is combined. The
 * combination is an optimizer too, the outer one, whose gradient is how far the ranks went:
 * the pseudo-gradient, G - x (old minus new), G being the parameters last agreed on. Steps of
 * an object are counted in windows of `every / fragments` steps; window k serves fragment
 * k mod fragments, a part of the tensors:
 *
 *     after step every/fragments - delay of the window   x is copied, its exchange begins
 *     after its last step                                 the exchange is waited for, the outer
 *                                                         optimizer steps, x is set
 *
 *     rp_local_sgd_defaults("diloco", &options);
 *     options.every = 100;
 *     rp_local_sgd_create(comm, tensors, count, &options, &local);
 *     for (...) {
 *         ... a step of the inner optimizer on x ...
 *         rp_local_sgd_step(local, data, learning_rate, &report);
 *     }
 *
 * An exchange goes on under the steps of the delay when the communicator has a progress thread;
 * else only inside of calls.
 */
#ifndef REDPOLL_LOCAL_SGD_H
#define REDPOLL_LOCAL_SGD_H

#include "redpoll/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rp_local_sgd rp_local_sgd;

/** An initializer of an rp_local_sgd_options, which begins with its size as all structs of
 * options do (redpoll/comm.h): rp_local_sgd_options o = RP_LOCAL_SGD_OPTIONS(). */
#define RP_LOCAL_SGD_OPTIONS(...)                                                              \
    { .size = sizeof(rp_local_sgd_options), __VA_ARGS__ }

/** Start from rp_local_sgd_defaults(): zeros are values here. Equal on all ranks, but for
 *  partner_context.
 *
 *  outer        what is exchanged, and what is done with it; g: the mean of G - x
 *  "average"    x becomes the mean of x. Local SGD
 *  "slowmo"     u = m u + g / lr, G -= a lr u, x = G; lr: the inner rate now. arXiv 1910.00643
 *  "diloco"     v = m v + g, G -= a (g + m v), x = G; without nesterov G -= a v. With fragments
 *               and a delay it is Streaming DiLoCo. arXiv 2311.08105, 2501.18512
 *  "noloco"     a random partner in place of all: d = m d - a (the pair's mean of G - x)
 *               - c (G - the pair's mean of G), G += d, x = G; G differs between ranks. With an
 *               odd number of ranks one is its own partner. arXiv 2506.10911
 *  "sparseloco" e = decay e + G - x, s = the codec's encoding of e, e -= s, G -= a (the mean of
 *               all ranks' s), x = G; each coordinate is divided by the number of ranks. The
 *               codec is topk as a rule, e the tensors' residuals. arXiv 2508.15706
 *
 *  a: outer_rate, m: outer_momentum, c: consensus_rate. */
typedef struct rp_local_sgd_options {
    size_t size;       /**< sizeof(rp_local_sgd_options): RP_LOCAL_SGD_OPTIONS() sets it. */
    const char *outer; /**< NULL: "average". */
    uint64_t every;    /**< Inner steps between two exchanges of the same tensor, at least 1. */
    uint64_t fragments;    /**< Divides `every`; at most as many as tensors. 1: all at once. */
    uint64_t delay;        /**< Steps from the begin of an exchange to its end, less than
                                every / fragments. 0: training waits for it. */
    double mixing;         /**< 0 to 1: what the ranks' own x counts when it is set:
                                x = (1 - mixing) G + mixing x; G stays as agreed. 0 throws away
                                the steps of the delay. */
    double outer_rate;     /**< Above 0. */
    double outer_momentum; /**< 0 to below 1. "average" and "sparseloco": 0. */
    double consensus_rate; /**< "noloco": above 0, below 2 (1 - outer_momentum^2), where ranks
                                stay together. */
    double residual_decay; /**< Residuals are multiplied by it before each encoding; 0 to 1. */
    int nesterov;          /**< "diloco". */
    const uint32_t *fragment_of; /**< Fragment of each tensor, each used at least once, copied;
                                      NULL: tensor i is in i mod fragments. */
    const char *algorithm;       /**< Of the all-reduce, as in rp_collective_options. */
    uint64_t seed;               /**< Of stochastic rounding and of partners. */
    /** "noloco": the partner of a rank in a round, itself for none; partner's partner is the
     *  rank, on all ranks alike. NULL: drawn anew for each round from the seed. */
    int (*partner)(void *context, uint64_t round, int rank);
    void *partner_context;
} rp_local_sgd_options;

/** What a step has done. */
typedef struct rp_local_sgd_report {
    int started, finished; /**< Fragment whose exchange began, or ended; -1: none. */
    double gradient_norm;  /**< Of the mean pseudo-gradient of `finished`; NaN where none ended,
                              and of  "average" with exact codecs, which sends x itself. */
    double autocorrelation; /**< Cosine of it and the same fragment's before, from at most 65536
                                 elements; NaN: not known. */
    double wait_s;          /**< This step has waited so long. */
    const char *warning;    /**< The outer momentum does not fit the number of local steps: a
                                 line that says what to do, once an object; else NULL. Valid
                                 until the object is destroyed. */
} rp_local_sgd_report;

/** Fill *options, of which the size is set, for an outer optimizer, with the defaults of its
 *  paper: every 100, one
 *  fragment, no delay; slowmo 1 and .5, diloco .7 and .9 with nesterov, noloco .7, .5 and .7,
 *  sparseloco 1 and decay .95. With fewer steps less momentum is needed: rp_outer_momentum().
 * outer NULL: "average". RP_INVALID: unknown, with those there are; or the size is none. Pure;
 * any thread. */
RP_API rp_status rp_local_sgd_defaults(const char *outer, rp_local_sgd_options *options);

/** Are the numbers possible together? tensors: how many there are, 0 where that is not known
 *  yet. RP_INVALID names what cannot be and what can; RP_UNSUPPORTED: a field that this library
 *  does not know is set. Pure; any thread. */
RP_API rp_status rp_local_sgd_check(const rp_local_sgd_options *options, size_t tensors);

/** The outer momentum that is known to work with so many local steps: up to 20 of them 0.3 at
 *  most, up to 50 0.6, beyond that the paper's. outer: "slowmo", "diloco", "noloco", or
 *  "delayed-nesterov" (rp_delayed_nesterov), of which up to 50 steps have 0.3. 0: it has no
 *  momentum, or is unknown. `redpoll train` and PyTorch take it where none is given. Pure. */
RP_API double rp_outer_momentum(const char *outer, uint64_t every);

/** What should be known of these numbers before the first step, in a line: momentum beyond
 *  what is known to work, steps of a delay that are lost, ranks that never take what is agreed
 *  on. Empty: nothing. text: `bytes` long, 512 are enough. RP_INVALID: as
 *  rp_local_sgd_check(). Pure; any thread. */
RP_API rp_status rp_local_sgd_advise(const rp_local_sgd_options *options, char *text,
                                     size_t bytes);

/** Create an object over `count` tensors, whose x must be equal on all ranks and becomes the
 *  first G.
 *  comm: borrowed until rp_local_sgd_destroy(). Other collectives may be posted between steps,
 *  in the same order on every rank.
 *  tensors: copied; data: x, read now and not borrowed; f32 or f64. codec, tensor, residual as
 *  rp_segment has them: residuals are the caller's training state and borrowed for the
 *  object's life. What is encoded is the pseudo-gradient, never parameters: "average" sends x
 *  itself where all codecs are exact, and keeps G only where one is not; "noloco" sends G
 *  exact. "sparseloco" with a codec that is not exact needs residuals.
 *  Local. Memory, in copies of the tensors: G and momentum as the outer optimizer has them,
 *  one of the largest fragment in flight ("noloco" two, "sparseloco" two and all ranks'
 *  encodings).
 *  RP_INVALID as rp_local_sgd_check(); RP_UNSUPPORTED: a dtype, or a codec for it. */
RP_API rp_status rp_local_sgd_create(rp_comm *comm, const rp_segment *tensors, size_t count,
                                     const rp_local_sgd_options *options, rp_local_sgd **local);
/** Waits for an exchange in flight. NULL is fine. */
RP_API void rp_local_sgd_destroy(rp_local_sgd *local);

/** The inner optimizer has stepped: begin or end an exchange where one is due.
 *  data: x of each tensor, in the order of creation, borrowed for the call; written in the
 *  steps that end an exchange, only tensors of its fragment. learning_rate: the inner
 *  optimizer's now, which "slowmo" divides by; else without meaning. report: NULL for none.
 *  Called on every rank after each of its steps. Blocks in the step that ends an exchange, for
 *  all ranks or the partner. After all-reduces G is equal on all ranks bit for bit.
 *  A failure is the exchange's; the object can only be destroyed then. */
RP_API rp_status rp_local_sgd_step(rp_local_sgd *local, void *const *data, double learning_rate,
                                   rp_local_sgd_report *report);

/** Begin anew after `step` inner steps in all: G is x, momentum 0, nothing in flight that is
 *  not 0. data as in rp_local_sgd_step(), equal on all ranks. Residuals stay. Waits for an
 *  exchange in flight. */
RP_API rp_status rp_local_sgd_restart(rp_local_sgd *local, void *const *data, uint64_t step);

/** ---- Checkpoints: x, residuals, the number of steps and the vectors below are all. ----
 *
 *  To save: rp_local_sgd_settle(), then copy the vectors. To go on, on as many ranks, bit for
 *  bit: rp_local_sgd_resume(), then write the vectors. */

/** Wait for an exchange in flight, so that its result is in the vectors; training goes on as
 *  if it had not been called. Waits for other ranks, who must come as far. RP_STATE: an
 *  exchange has failed before. */
RP_API rp_status rp_local_sgd_settle(rp_local_sgd *local);
/** Inner steps so far. 0 of NULL. */
RP_API uint64_t rp_local_sgd_steps(const rp_local_sgd *local);
/** Fragment in flight; -1: none. -1 of NULL. */
RP_API int rp_local_sgd_in_flight(const rp_local_sgd *local);
/** How many vectors there are. 0 of NULL. */
RP_API int rp_local_sgd_state_count(const rp_local_sgd *local);
/** "anchor" (G), "momentum", "in_flight", "in_flight_anchor"; NULL past the end. Static. */
RP_API const char *rp_local_sgd_state_name(const rp_local_sgd *local, int index);
/** A tensor's part of a vector, as long as the tensor and of its dtype, to read or write after
 *  rp_local_sgd_settle() or _resume(); valid until the next step. NULL: it has none, since its
 *  fragment is not in flight. */
RP_API void *rp_local_sgd_state(rp_local_sgd *local, int index, size_t tensor);
/** The vectors are, or will be written with, those saved after `step` inner steps. Waits for an
 *  exchange in flight. */
RP_API rp_status rp_local_sgd_resume(rp_local_sgd *local, uint64_t step);

/** ---- Does the outer momentum fit the local steps? ----
 *
 *  rp_local_sgd_step() reports it. This is for those who exchange by themselves, as by
 *  rp_parameter_server_push(). Successive pseudo-gradients that point the same way momentum
 *  adds up, and an outer step goes much further than the ranks have been. */
typedef struct rp_momentum_watch rp_momentum_watch;

/** count: elements of a pseudo-gradient, above 0. Local. Memory: 65536 floats at most.
 *  RP_INVALID: numbers that are not finite. */
RP_API rp_status rp_momentum_watch_create(size_t count, double outer_rate,
                                          double outer_momentum, rp_momentum_watch **watch);
RP_API void rp_momentum_watch_destroy(rp_momentum_watch *watch);
/** Of the next exchange. gradient: `count` floats. local_steps: that it is of, for the warning.
 *  *autocorrelation: its cosine with the one before; NaN: that, or this, has no length.
 *  *warning: what the user should know, once, valid until the watch is destroyed; NULL:
 *  nothing. Local, does not block; one thread at a time. */
RP_API rp_status rp_momentum_watch_look(rp_momentum_watch *watch, const float *gradient,
                                        uint64_t local_steps, double *autocorrelation,
                                        const char **warning);

#ifdef __cplusplus
}
#endif
#endif
