/** Decentralised training over flat vectors: every rank has parameters of its own, steps them
 * by its own gradient and averages them with a few neighbours, in the rounds of a topology and
 * by the rule of an algorithm. Models and optimizers are the caller's.
 *
 *      rp_gossip_create(comm, &setup, &gossip);           x, gradient: the caller's memory
 *      in each step, on every rank:
 *          where `early` (awc): rp_gossip_post(gossip, step, 0, &request)
 *          ... the gradient at x ...
 *          elsewhere: rp_gossip_post(gossip, step, rate, &request)
 *          rp_request_wait(&request); rp_gossip_apply(gossip, rate);      x is the next
 *
 *  An optimizer with momentum or other state takes the place of plain gradient steps in
 *  algorithms that exchange one vector: what its step would take from x goes where the gradient
 *  is, and the rate is 1.
 *
 *  Topologies and algorithms: docs/topologies.md, docs/decentralised.md. Sources: BlueFog
 * (arXiv 2111.04287), exact diffusion (1702.05122), DIGing and push-DIGing (1607.03218),
 * push-sum (Kempe et al. 2003), CHOCO (1902.00340). */
#ifndef REDPOLL_GOSSIP_H
#define REDPOLL_GOSSIP_H

#include "redpoll/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What an algorithm needs, and what a topology promises it. */
typedef struct rp_gossip_info {
    int early;     /**< 1: what is sent does not depend on the gradient. */
    int exchanged; /**< Vectors a step: 1 or 2. */
    int states;    /**< Vectors kept from step to step, 0 to 3: they belong to checkpoints. */
    int pushes;    /**< 1: so does a number p, by which sums are divided. */
    int held;      /**< Vectors that rp_gossip_create() allocates, the states included. */
    int copies;    /**< 1: neighbours keep copies, and their changes are exchanged: residuals
                        are not used, and every round must have the same edges. */
    double gamma;  /**< Then, of rp_gossip_get_info(): how far a step goes towards them. */
    const char *topology; /**< What NULL means for this algorithm; static. */
} rp_gossip_info;

/** Do these go together? topology: "base", "ring:direction=left" ...; NULL: "base", of choco
 * and exact-diffusion "torus". algorithm: "awc", "atc", "exact-diffusion", "choco",
 *  "gradient-tracking", "push-sum", "push-diging"; NULL: "atc". ranks: of the world. info: set
 *  on success, NULL: not wanted. Pure; any thread. RP_INVALID, RP_UNSUPPORTED: no topology or
 *  algorithm of that name, or not for so many ranks, weights of which the average would be
 *  biased, edges that change where copies are kept, or ranks that would drift apart, by the
 *  spectral radius of what the algorithm does over the topology (exact-diffusion where that is
 *  not symmetric or changes): what would do. RP_IO, RP_NOT_FOUND, RP_CORRUPT: a topology's
 * file.
 */
RP_API rp_status rp_gossip_check(const char *topology, const char *algorithm, int ranks,
                                 rp_gossip_info *info);

/** An initializer of an rp_gossip_setup, which begins with its size as all structs of options
 * do (redpoll/comm.h): rp_gossip_setup setup = RP_GOSSIP_SETUP(.algorithm = "choco"). */
#define RP_GOSSIP_SETUP(...)                                                                   \
    { .size = sizeof(rp_gossip_setup), __VA_ARGS__ }

/** Zeros mean the defaults. Equal on all ranks, but for the pointers. */
typedef struct rp_gossip_setup {
    size_t size; /**< sizeof(rp_gossip_setup): RP_GOSSIP_SETUP() sets it. */
    const char *topology, *algorithm; /**< As of rp_gossip_check(). */
    rp_dtype dtype;                   /**< RP_F32 or RP_F64. */
    size_t count;                     /**< Elements of each vector. */
    void *x;                          /**< Parameters; borrowed until rp_gossip_destroy(). */
    void *gradient; /**< At x, or an optimizer's step; borrowed as x is. It is overwritten by
                         each exchange. */
    /** How vectors travel: segments of `count` elements in all, of which the data is not looked
     *  at; of the first vector and, where two are exchanged, of the second. Copied; residuals
     *  are borrowed as x is. NULL: exact. */
    const rp_segment *layouts[2];
    size_t layout_counts[2];
    uint64_t seed; /**< Of stochastic rounding. */
    double gamma;  /**< Of choco, up to 1: how far a step goes from x towards the mean of its
                        neighbours' copies. 0: chosen by what the codec loses of a random
                        vector, less the more it does; far beyond that ranks drift apart. A
                        codec that adds more than it takes (1 bit) is refused with any. */
} rp_gossip_setup;

typedef struct rp_gossip rp_gossip;

/** Local. comm: borrowed until the last rp_gossip_post(). RP_INVALID: the size is none;
 *  RP_UNSUPPORTED: a field that this library does not know is set; RP_NOMEM; and what
 *  rp_gossip_check() says. */
RP_API rp_status rp_gossip_create(rp_comm *comm, const rp_gossip_setup *setup,
                                  rp_gossip **gossip);
/** The request of an exchange must be complete. NULL is fine. */
RP_API void rp_gossip_destroy(rp_gossip *gossip);

/** Of this one. NULL: info stays as it is. */
RP_API void rp_gossip_get_info(const rp_gossip *gossip, rp_gossip_info *info);
/** What should be known before the first step, in a line: rates that the topology does not
 * bear, a gamma or a codec with which ranks may drift apart. Empty: nothing. text: `bytes`
 * long, 1024 are enough. Local; measures the codecs. RP_INVALID: an argument is NULL; RP_NOMEM.
 */
RP_API rp_status rp_gossip_advise(const rp_gossip *gossip, char *text, size_t bytes);
/** Vector `index` of the states, `count` elements; NULL past the last. What goes into a
 *  checkpoint beside x and the residuals of layouts, after rp_gossip_apply(). */
RP_API void *rp_gossip_state(rp_gossip *gossip, int index);
/** p; 1 where the algorithm has none; 0 of NULL. */
RP_API double rp_gossip_push_weight(const rp_gossip *gossip);
/** x and the states have been set to those of a checkpoint: the next step is not the first.
 *  push_weight: as rp_gossip_push_weight() told. RP_INVALID: it is not above 0. */
RP_API rp_status rp_gossip_resume(rp_gossip *gossip, double push_weight);

/** Send what the algorithm sends to the neighbours of the step's round. Until the request is
 *  complete x, the gradient and the states may be read, and not be written; in early algorithms
 *  the gradient may be. Not collective: this rank waits for those of the round alone, but every
 *  rank posts every step. Does not block. step: 0 or more. rate: what the gradient is
 *  multiplied by; early algorithms ignore it. RP_STATE: the last exchange was not applied;
 *  else as rp_neighbor_all_reduce_start(). After a failed exchange x is what this rank sent. */
RP_API rp_status rp_gossip_post(rp_gossip *gossip, int64_t step, double rate,
                                rp_request **request);
/** What the request of rp_gossip_post() has brought becomes the next x. It must have completed
 *  with RP_OK. RP_STATE: nothing was posted. */
RP_API rp_status rp_gossip_apply(rp_gossip *gossip, double rate);
/** In place of rp_gossip_apply(), when the post or its request has failed: x becomes what it
 *  would be if this rank had had no neighbours in that step, its own step taken. What the
 *  algorithm keeps is of no use from then on: destroy this one, and create another with the
 *  survivors (rp_comm_survivors()), whose average is what they have. RP_STATE: nothing was
 *  posted. RP_UNSUPPORTED: a pushing algorithm, of whose sum the dead have had a part. */
RP_API rp_status rp_gossip_alone(rp_gossip *gossip, double rate);

#ifdef __cplusplus
}
#endif
#endif
