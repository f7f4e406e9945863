/* The iteration that a rule really runs over a topology, as a linear map: a period of rounds
 * over all ranks' parameters and states, where every rank descends step / 2 x^2 (`step`: the
 * learning rate times the curvature). By its own lines and the topology's own weights, so that
 * no rule is known here.
 *
 * What ranks differ by is taken by itself: rules keep the mean of all apart from it. Where a
 * rule pushes, p is what it becomes in the long run. */
#ifndef RPI_PLAN_GOSSIP_ITERATION_H
#define RPI_PLAN_GOSSIP_ITERATION_H

#include "plan/gossip/gossip_rule.h"
#include "plan/topologies/topology.h"

enum {
    RPI_ITERATION_DENSE = 160, /* vectors of all ranks up to which the radius is exact */
    RPI_ITERATION_DRAWN = 256  /* rounds looked at where each step is drawn anew */
};

/* *out_radius: by how much what ranks differ by grows in a step, in the long run: the spectral
 * radius of a period's map, to the power of one step. Above 1 it has no bound. Up to
 * RPI_ITERATION_DENSE vectors (parameters and states of each rank) by the matrix, within 1e-9;
 * above by what becomes of random vectors, within a thousandth or so. step 0: nothing but the
 * exchange. gamma: of a rule with copies. The topology has one vector a rank. Pure. RP_NOMEM,
 * or what a round fails with. */
rp_status rpi_gossip_radius(const rpi_gossip_rule *rule, const rpi_topology *topology,
                            double step, double gamma, double *out_radius);

#endif
