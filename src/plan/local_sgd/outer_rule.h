/* Outer optimizers of local SGD: what becomes of the agreed parameters G (the anchor) once the
 * ranks' pseudo-gradients G - x were combined. Pure functions over vectors; who exchanges, and
 * when, is methods/local_sgd/local_sgd.c's. <redpoll/local_sgd.h> has the equations. */
#ifndef RPI_PLAN_OUTER_RULE_H
#define RPI_PLAN_OUTER_RULE_H

#include "redpoll/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum rpi_outer_exchange {
    RPI_OUTER_ALL_REDUCE,
    RPI_OUTER_PAIR,   /* with one partner a round, the anchor too */
    RPI_OUTER_GATHER, /* all ranks' encodings, decoded by each */
} rpi_outer_exchange;

typedef struct rpi_outer_rates {
    double outer, momentum, consensus, inner;
    bool nesterov;
} rpi_outer_rates;

/* Of `count` elements of one dtype. */
typedef struct rpi_outer_vectors {
    void *anchor, *momentum; /* updated; momentum NULL where the rule has none */
    const void *gradient;    /* the combined pseudo-gradient */
    const void *pair_anchor; /* RPI_OUTER_PAIR: the pair's mean of anchors */
} rpi_outer_vectors;

typedef struct rpi_outer_rule {
    const char *name, *summary;
    rpi_outer_exchange exchange;
    bool has_momentum;
    bool averages;            /* the new anchor is the mean of x, which may be sent itself */
    bool needs_inner_rate;    /* above 0 */
    rpi_outer_rates defaults; /* a rate of 0 has no meaning for the rule */
    double residual_decay;
    void (*update_f32)(const rpi_outer_rates *rates, size_t count, const rpi_outer_vectors *v);
    void (*update_f64)(const rpi_outer_rates *rates, size_t count, const rpi_outer_vectors *v);
} rpi_outer_rule;

/* The catalogue; NULL past the end. */
const rpi_outer_rule *rpi_outer_rule_at(int index);
/* RP_INVALID names those there are, and the nearest. */
rp_status rpi_outer_rule_find(const char *name, const rpi_outer_rule **out_rule);

/* f32 and f64; all products, then sums, are rounded. */
void rpi_outer_update(const rpi_outer_rule *rule, const rpi_outer_rates *rates, rp_dtype dtype,
                      size_t count, const rpi_outer_vectors *v);
/* out = anchor - x; out may be x. */
void rpi_outer_difference(rp_dtype dtype, size_t count, const void *anchor, const void *x,
                          void *out);
/* x = (1 - mixing) agreed + mixing x, rounded as PyTorch's lerp does; 0: a copy. */
void rpi_outer_mix(rp_dtype dtype, double mixing, size_t count, const void *agreed, void *x);

/* Rank's partner in a round: a random matching of all, drawn from (seed, round), the same on
 * every rank; of an odd number one is its own. order: room for `world` ranks. */
int rpi_outer_partner(uint64_t seed, uint64_t round, int rank, int world, int *order);

#endif
