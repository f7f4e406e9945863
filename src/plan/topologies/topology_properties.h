/* What a topology promises: sums, connectedness, how fast ranks agree. */
#ifndef RPI_PLAN_TOPOLOGY_PROPERTIES_H
#define RPI_PLAN_TOPOLOGY_PROPERTIES_H

#include "plan/topologies/topology.h"

enum {
    RPI_PROPERTIES_RANKS = 256,   /* larger worlds have no `second` and no `exact_rounds` */
    RPI_PROPERTIES_DRAWN = 16,    /* rounds looked at where each step is drawn anew */
    RPI_PROPERTIES_ROUNDS = 1024, /* most rounds looked at */
    RPI_PROPERTIES_EXACT = 16     /* rounds in which to look for the exact average, at least */
};

typedef struct rpi_topology_properties {
    int64_t rounds;        /* looked at: one period, where there is one and it is not longer */
    bool whole_period;     /* and it was looked at */
    bool rows, columns;    /* all sums are 1, in every round; by rationals */
    bool symmetric;        /* every round's matrix */
    bool connected;        /* in those rounds, repeated, every rank hears of every other */
    int most_in, most_out; /* ranks that one rank hears from, and sends to, in a round */
    double mean_out;       /* ranks that the busiest rank sends to in a round, on average */
    /* After so many rounds from step 0 every rank has the exact average; 0: not within the
     * rounds looked at. `exact_proved`: by rationals; else they overflowed and it is so within
     * 1e-9. */
    int exact_rounds;
    bool exact_proved;
    /* Of the product of those rounds the second largest eigenvalue by modulus; 0 where the
     * average is exact; NAN: the world is too large, or no sums are 1. The spectral gap is
     * 1 - second. */
    double second;
    /* Per round: the root of it. What is left of a distance to the average after a round. */
    double factor;
} rpi_topology_properties;

/* Costs O(ranks^3) where the second eigenvalue is computed: by Gelfand's formula, the limit of
 * |A^m|^(1/m) for A = product - J, squaring A; complex pairs and defective matrices are as good
 * as others. RP_NOMEM, or what a round fails with. */
rp_status rpi_topology_examine(const rpi_topology *topology,
                               rpi_topology_properties *out_properties);

/* Are all row sums, and all column sums, of this round 1? Exact; sums that do not fit 63 bits
 * are not. */
rp_status rpi_mixing_sums(const rpi_mixing *mixing, bool *out_rows, bool *out_columns);

/* Does every rank hear of every other when `rounds` rounds from step 0 repeat? *out_from and
 * *out_to: where not, a rank and one that never hears of it. Either may be NULL. */
rp_status rpi_topology_connects(const rpi_topology *topology, int64_t rounds,
                                bool *out_connected, int *out_from, int *out_to);

/* How many rounds are looked at. */
int64_t rpi_topology_rounds(const rpi_topology *topology);

#endif
