/* One round of gossip as a sparse matrix: y = W x, where W[i][j] is what rank i puts on the
 * vector of rank j.
 *
 *   rows     sum to 1: ranks that agree stay agreed (a receiver's weights)
 *   columns  sum to 1: the sum over all ranks stays what it is (a sender's weights)
 *
 * Averages are right where both do. Every entry is an edge between two ranks, or what a rank
 * keeps of its own vector. A few topologies (ceca) have two vectors a rank, 0 and 1: an edge
 * then says which is sent and to which it is added. */
#ifndef RPI_PLAN_MIXING_H
#define RPI_PLAN_MIXING_H

#include "plan/plan.h"

enum { RPI_MIXING_EDGES = 4 * 1024 * 1024 }; /* most edges of a round */

typedef struct rpi_edge {
    int rank;            /* at the other end */
    uint8_t from, into;  /* vectors: of the sender, of the receiver; 0 where there is one */
    rpi_fraction weight; /* in lowest terms, over > 0; its value: rpi_edge_weight */
} rpi_edge;

typedef struct rpi_edges { /* borrowed from the mixing */
    const rpi_edge *list;
    int count;
} rpi_edges;

/* How unweighted links get their weights. */
typedef enum rpi_weight_rule {
    RPI_WEIGHTS_GIVEN,   /* what the kind or the file says; a rank keeps the rest of its row */
    RPI_WEIGHTS_UNIFORM, /* the receiver's choice: 1 / (sources + 1). Rows sum to 1 */
    RPI_WEIGHTS_SENDER,  /* the sender's choice: 1 / (destinations + 1). Columns sum to 1 */
    RPI_WEIGHTS_METROPOLIS, /* 1 / max of both ends' neighbours, each counting itself: both sums
                               are 1. Links in both directions only */
    RPI_WEIGHT_RULES
} rpi_weight_rule;

/* "given", "uniform", "sender", "metropolis-hastings"; NULL past the end. */
const char *rpi_weight_rule_name(int rule);

typedef struct rpi_mixing_entry { /* as it is being written */
    int to, from;
    uint8_t into_vector, from_vector;
    rpi_fraction weight; /* zeros: by the rule */
} rpi_mixing_entry;

typedef struct rpi_mixing { /* zeros: empty */
    int ranks, vectors;
    /* Edges of rank r are first[r] ... first[r + 1] - 1. */
    rpi_edge *in, *out, *own;
    int *in_first, *out_first, *own_first;
    rpi_mixing_entry *links; /* written since rpi_mixing_start */
    size_t used, room;
    rp_status status;
} rpi_mixing;

void rpi_mixing_free(rpi_mixing *mixing); /* zeros are fine */

/* ---- for readers ---- */

/* Sources, and destinations, of a rank without itself, rising; and what it keeps of its own:
 * one edge with one vector, up to four with two. */
rpi_edges rpi_mixing_in(const rpi_mixing *mixing, int rank);
rpi_edges rpi_mixing_out(const rpi_mixing *mixing, int rank);
rpi_edges rpi_mixing_own(const rpi_mixing *mixing, int rank);

/* How many ranks an edge list names: a vector that goes to a rank for two sums goes once. */
int rpi_edges_ranks(rpi_edges edges);

static inline double rpi_edge_weight(const rpi_edge *edge) {
    return (double)edge->weight.times / (double)edge->weight.over;
}

/* ---- for writers ---- */

/* Memory of an earlier round is used again. */
void rpi_mixing_start(rpi_mixing *mixing, int ranks, int vectors);
/* The first failure sticks. A link to itself is what the rank keeps; without one, and with one
 * vector, it keeps what is missing to a row sum of 1. Weights of equal links are added; links
 * without weights count once. */
void rpi_mixing_link(rpi_mixing *mixing, int from, int to);
void rpi_mixing_weigh(rpi_mixing *mixing, int from, int to, rpi_fraction weight);
void rpi_mixing_weigh_vector(rpi_mixing *mixing, rpi_mixing_entry link);
/* All ranks of the list with one another, each with the weight 1 / count. */
void rpi_mixing_clique(rpi_mixing *mixing, const int *ranks, int count);
/* Weights and order. RP_INVALID: the rule does not fit the links, a weight is negative or does
 * not fit 31 bits. RP_UNSUPPORTED: too many edges. */
rp_status rpi_mixing_finish(rpi_mixing *mixing, rpi_weight_rule rule);

#endif
