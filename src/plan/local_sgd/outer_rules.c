#include "plan/local_sgd/outer_rule.h"

#include "base/rng.h"
#include "base/status.h"
#include "base/suggest.h"

#include <string.h>

/* ---- the equations ---- */

#define UPDATES(type, suffix)                                                                  \
    static void average_##suffix(const rpi_outer_rates *rates, size_t count,                   \
                                 const rpi_outer_vectors *v) {                                 \
        type *anchor = v->anchor;                                                              \
        const type *g = v->gradient;                                                           \
        (void)rates;                                                                           \
        for (size_t i = 0; i < count; i++) anchor[i] -= g[i];                                  \
    }                                                                                          \
    static void slowmo_##suffix(const rpi_outer_rates *rates, size_t count,                    \
                                const rpi_outer_vectors *v) {                                  \
        type *anchor = v->anchor, *u = v->momentum;                                            \
        const type *g = v->gradient;                                                           \
        type inner = (type)rates->inner, momentum = (type)rates->momentum;                     \
        type rate = (type)rates->outer * inner;                                                \
        for (size_t i = 0; i < count; i++) {                                                   \
            u[i] = momentum * u[i] + g[i] / inner;                                             \
            anchor[i] -= rate * u[i];                                                          \
        }                                                                                      \
    }                                                                                          \
    static void diloco_##suffix(const rpi_outer_rates *rates, size_t count,                    \
                                const rpi_outer_vectors *v) {                                  \
        type *anchor = v->anchor, *momenta = v->momentum;                                      \
        const type *g = v->gradient;                                                           \
        type momentum = (type)rates->momentum, rate = (type)rates->outer;                      \
        for (size_t i = 0; i < count; i++) {                                                   \
            momenta[i] = momentum * momenta[i] + g[i];                                         \
            anchor[i] -= rate * (rates->nesterov ? g[i] + momentum * momenta[i] : momenta[i]); \
        }                                                                                      \
    }                                                                                          \
    static void noloco_##suffix(const rpi_outer_rates *rates, size_t count,                    \
                                const rpi_outer_vectors *v) {                                  \
        type *anchor = v->anchor, *delta = v->momentum;                                        \
        const type *g = v->gradient, *pair = v->pair_anchor;                                   \
        type momentum = (type)rates->momentum, rate = (type)rates->outer;                      \
        type consensus = (type)rates->consensus;                                               \
        for (size_t i = 0; i < count; i++) {                                                   \
            delta[i] = momentum * delta[i] - rate * g[i] - consensus * (anchor[i] - pair[i]);  \
            anchor[i] += delta[i];                                                             \
        }                                                                                      \
    }                                                                                          \
    static void sparseloco_##suffix(const rpi_outer_rates *rates, size_t count,                \
                                    const rpi_outer_vectors *v) {                              \
        type *anchor = v->anchor;                                                              \
        const type *g = v->gradient;                                                           \
        type rate = (type)rates->outer;                                                        \
        for (size_t i = 0; i < count; i++) anchor[i] -= rate * g[i];                           \
    }                                                                                          \
    static void difference_##suffix(size_t count, const type *anchor, const type *x,           \
                                    type *out) {                                               \
        for (size_t i = 0; i < count; i++) out[i] = anchor[i] - x[i];                          \
    }                                                                                          \
    static void mix_##suffix(type mixing, size_t count, const type *agreed, type *x) {         \
        for (size_t i = 0; i < count; i++) {                                                   \
            type step = x[i] - agreed[i];                                                      \
            x[i] = mixing < (type)0.5 ? agreed[i] + mixing * step                              \
                                      : x[i] - step * ((type)1 - mixing);                      \
        }                                                                                      \
    }

UPDATES(float, f32)
UPDATES(double, f64)

/* ---- the catalogue ---- */

static const rpi_outer_rule catalogue[] = {
    {
        .name = "average",
        .summary = "local SGD: parameters become their mean",
        .exchange = RPI_OUTER_ALL_REDUCE,
        .averages = true,
        .defaults = {.outer = 1},
        .residual_decay = 1,
        .update_f32 = average_f32,
        .update_f64 = average_f64,
    },
    {
        .name = "slowmo",
        .summary = "slow momentum over the averages, in units of the inner rate",
        .exchange = RPI_OUTER_ALL_REDUCE,
        .has_momentum = true,
        .needs_inner_rate = true,
        .defaults = {.outer = 1, .momentum = .5},
        .residual_decay = 1,
        .update_f32 = slowmo_f32,
        .update_f64 = slowmo_f64,
    },
    {
        .name = "diloco",
        .summary = "SGD with Nesterov's momentum on the mean pseudo-gradient",
        .exchange = RPI_OUTER_ALL_REDUCE,
        .has_momentum = true,
        .defaults = {.outer = .7, .momentum = .9, .nesterov = true},
        .residual_decay = 1,
        .update_f32 = diloco_f32,
        .update_f64 = diloco_f64,
    },
    {
        .name = "noloco",
        .summary = "a random partner each time in place of an all-reduce",
        .exchange = RPI_OUTER_PAIR,
        .has_momentum = true,
        .defaults = {.outer = .7, .momentum = .5, .consensus = .7},
        .residual_decay = 1,
        .update_f32 = noloco_f32,
        .update_f64 = noloco_f64,
    },
    {
        .name = "sparseloco",
        .summary = "the largest entries of pseudo-gradients, the rest kept with a decay",
        .exchange = RPI_OUTER_GATHER,
        .defaults = {.outer = 1},
        .residual_decay = .95,
        .update_f32 = sparseloco_f32,
        .update_f64 = sparseloco_f64,
    },
};
enum { RULES = sizeof catalogue / sizeof catalogue[0] };

const rpi_outer_rule *rpi_outer_rule_at(int index) {
    return index >= 0 && index < RULES ? &catalogue[index] : NULL;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    return index < RULES ? catalogue[index].name : NULL;
}

rp_status rpi_outer_rule_find(const char *name, const rpi_outer_rule **out_rule) {
    int index = 0;
    RP_TRY(rpi_name_find("outer optimizer", name, name_at, NULL, &index));
    *out_rule = &catalogue[index];
    return RP_OK;
}

/* ---- by dtype ---- */

void rpi_outer_update(const rpi_outer_rule *rule, const rpi_outer_rates *rates, rp_dtype dtype,
                      size_t count, const rpi_outer_vectors *v) {
    (dtype == RP_F64 ? rule->update_f64 : rule->update_f32)(rates, count, v);
}

void rpi_outer_difference(rp_dtype dtype, size_t count, const void *anchor, const void *x,
                          void *out) {
    if (dtype == RP_F64)
        difference_f64(count, anchor, x, out);
    else
        difference_f32(count, anchor, x, out);
}

void rpi_outer_mix(rp_dtype dtype, double mixing, size_t count, const void *agreed, void *x) {
    if (mixing == 0)
        memcpy(x, agreed, count * rp_dtype_bytes(dtype));
    else if (dtype == RP_F64)
        mix_f64(mixing, count, agreed, x);
    else
        mix_f32((float)mixing, count, agreed, x);
}

/* ---- partners ---- */

int rpi_outer_partner(uint64_t seed, uint64_t round, int rank, int world, int *order) {
    rpi_rng rng = rpi_rng_make(seed, RPI_RNG_TOPOLOGY, round);
    for (int i = 0; i < world; i++) order[i] = i;
    for (int i = world - 1; i > 0; i--) {
        int j = (int)rpi_rng_below(&rng, (uint32_t)i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    for (int i = 0; i < world; i++)
        if (order[i] == rank) return (i ^ 1) < world ? order[i ^ 1] : rank;
    return rank;
}
