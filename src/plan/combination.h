/* Which ranks' contributions are in a value, and with which coefficients: what the check
 * (plan_check.h) computes with instead of numbers. Coefficients are rationals, so that a mean
 * or a gossip weight is counted exactly.
 *
 * A combination is a list of spans (ranks that follow each other with one coefficient), rising:
 * partial sums of rings, trees and hosts are a span or a few, so that worlds of hundreds of
 * ranks can be proved. Combinations never change once made, and all lie in one pool. */
#ifndef RPI_PLAN_COMBINATION_H
#define RPI_PLAN_COMBINATION_H

#include "plan/plan.h"

typedef struct rpi_combination {
    size_t first; /* of its spans in the pool */
    int spans;    /* 0: nobody */
} rpi_combination;

typedef struct rpi_span {
    int first, last; /* ranks */
    int64_t times, over;
} rpi_span;

typedef struct rpi_combinations { /* zeros: empty */
    rpi_span *spans;
    size_t used, room;
} rpi_combinations;

void rpi_combinations_free(rpi_combinations *pool);

/* All of RP_NOMEM when there is none. */
rp_status rpi_combine_one(rpi_combinations *pool, int rank, rpi_combination *out);
/* RP_INTERNAL: a coefficient does not fit 63 bits. */
rp_status rpi_combine_weigh(rpi_combinations *pool, rpi_combination a, rpi_fraction weight,
                            rpi_combination *out);
/* Coefficient by coefficient. RP_INTERNAL as above. */
rp_status rpi_combine_add(rpi_combinations *pool, rpi_combination a, rpi_combination b,
                          rpi_combination *out);
/* Who is in a or in b, each once. */
rp_status rpi_combine_unite(rpi_combinations *pool, rpi_combination a, rpi_combination b,
                            rpi_combination *out);

/* Exactly the ranks first ... last, each with this weight. */
bool rpi_combination_is(const rpi_combinations *pool, rpi_combination a, int first, int last,
                        rpi_fraction weight);
/* The same ranks with the same weights. */
bool rpi_combination_same(const rpi_combinations *pool, rpi_combination a, rpi_combination b);
/* One rank alone. */
bool rpi_combination_is_single(const rpi_combinations *pool, rpi_combination a);
int rpi_combination_lowest(const rpi_combinations *pool, rpi_combination a);
int rpi_combination_highest(const rpi_combinations *pool, rpi_combination a);
/* "ranks 0-3, 1/4 x rank 5"; "nobody". Returns text. */
const char *rpi_combination_text(const rpi_combinations *pool, rpi_combination a, char *text,
                                 size_t bytes);

#endif
