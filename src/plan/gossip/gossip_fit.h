/* Does an algorithm of gossip training go with a topology, for so many ranks? By what is
 * computed of both: sums of weights, and the iteration that they make together
 * (gossip_iteration.h). */
#ifndef RPI_PLAN_GOSSIP_FIT_H
#define RPI_PLAN_GOSSIP_FIT_H

#include "plan/gossip/gossip_rule.h"
#include "plan/topologies/topology.h"

typedef enum rpi_gossip_verdict {
    RPI_GOSSIP_FITS,
    RPI_GOSSIP_SLOW,     /* it does, with rates far below those of gradient descent */
    RPI_GOSSIP_VECTORS,  /* ranks have more than one vector in this topology */
    RPI_GOSSIP_BIASED,   /* sums of weights are not what the algorithm divides by */
    RPI_GOSSIP_CHANGES,  /* the algorithm keeps copies, and edges change */
    RPI_GOSSIP_DIVERGES, /* what ranks differ by does not vanish, even without gradients */
    RPI_GOSSIP_UNSTABLE  /* nor with the smallest rates that would be of use */
} rpi_gossip_verdict;

typedef struct rpi_gossip_fit {
    rpi_gossip_verdict verdict;
    /* What a step leaves of what ranks differ by, in the long run; NAN: not computed. */
    double radius;
} rpi_gossip_fit;

/* Learning rate times curvature. Gradient descent is stable below 2. */
#define RPI_GOSSIP_LEAST_STEP 0.1 /* whoever does not bear it is refused */
#define RPI_GOSSIP_SMALL_STEP 0.2 /* and who does not bear this one is slow */

/* Pure. RP_NOMEM, or what a round fails with. */
rp_status rpi_gossip_examine(const rpi_gossip_rule *rule, const rpi_topology *topology,
                             rpi_gossip_fit *out_fit);
static inline bool rpi_gossip_fits(const rpi_gossip_fit *fit) {
    return fit->verdict <= RPI_GOSSIP_SLOW;
}

/* "fits", "biased", "diverges" ... */
const char *rpi_gossip_verdict_name(rpi_gossip_verdict verdict);

/* RP_INVALID, RP_UNSUPPORTED: it does not fit; which topologies do, of as many ranks. */
rp_status rpi_gossip_check_fit(const rpi_gossip_rule *rule, const rpi_topology *topology,
                               rpi_gossip_fit *out_fit);

/* Something that the user should know of one that fits; empty: nothing. */
enum { RPI_GOSSIP_ADVICE = 768 };
void rpi_gossip_advise(const rpi_gossip_rule *rule, const rpi_topology *topology,
                       const rpi_gossip_fit *fit, char out_text[RPI_GOSSIP_ADVICE]);

#endif
