/* Gossip over flat vectors: a rule (plan/gossip/gossip_rule.h), a topology's rounds and the
 * exchange with neighbours, put together. It knows no models: who trains says where parameters
 * and gradient lie, and which part travels in which codec.
 *
 *     rpi_gossip_start     a step begins; where the rule sends what needs no gradient (awc),
 * the exchange runs under the forward and backward pass
 *     ... the gradient at x ...
 *     rpi_gossip_finish    send the rest, wait for neighbours; x is the next
 */
#ifndef RPI_COMM_GOSSIP_H
#define RPI_COMM_GOSSIP_H

#include "comm/topology_rounds.h"
#include "plan/gossip/gossip_rule.h"

typedef struct rpi_gossip_setup {
    rp_comm *comm;
    const char *topology, *algorithm;
    rp_dtype dtype; /* RP_F32 or RP_F64 */
    size_t count;   /* elements of each vector */
    void *x, *gradient;
    /* How vectors travel: segments of `count` elements in all, whose data is not looked at; of
     * the first vector and, where the rule sends two, of the second. Copied. NULL: exact. */
    const rp_segment *layouts[2];
    size_t layout_counts[2];
    uint64_t seed; /* of stochastic rounding */
} rpi_gossip_setup;

typedef struct rpi_gossip rpi_gossip;

/* RP_INVALID, RP_UNSUPPORTED: a topology or an algorithm that is none, that is not for so many
 * ranks, or of which one does not do for the other: what would. */
rp_status rpi_gossip_check(const char *topology, const char *algorithm, int ranks);
rp_status rpi_gossip_open(const rpi_gossip_setup *setup, rpi_gossip **out_gossip);
/* Waits for an exchange in flight; NULL is fine. */
void rpi_gossip_close(rpi_gossip *gossip);

const rpi_gossip_rule *rpi_gossip_rule_of(const rpi_gossip *gossip);
/* What goes into a checkpoint beside x: the rule's states, `count` elements each, and p. */
void *rpi_gossip_state(rpi_gossip *gossip, int index);
double *rpi_gossip_push_weight(rpi_gossip *gossip);
/* x and the states are those of a checkpoint: the next step is not the first. */
void rpi_gossip_resume(rpi_gossip *gossip);

/* Not collective: waits for neighbours of the step's round alone. */
rp_status rpi_gossip_start(rpi_gossip *gossip, int64_t step);
rp_status rpi_gossip_finish(rpi_gossip *gossip, int64_t step, double rate);

#endif
