/* `redpoll plan gossip`: a topology's rounds, what they promise and what they cost. */
#ifndef RPI_CLI_PLAN_GOSSIP_H
#define RPI_CLI_PLAN_GOSSIP_H

#include "plan/cost.h"
#include "plan/gossip/gossip_fit.h"
#include "plan/topologies/topology_properties.h"
#include "redpoll/codec.h"

enum {
    RPI_GOSSIP_RULES = 16,  /* of the catalogue, at most */
    RPI_GOSSIP_JUDGED = 256 /* ranks up to which they are looked at */
};

typedef struct rpi_gossip_plan {
    const rpi_topology *topology;
    rpi_topology_properties properties;
    rpi_gossip_fit fits[RPI_GOSSIP_RULES]; /* of each rule of the catalogue */
    int64_t hosts;                         /* 0: each rank on its own */
    size_t bytes, encoded;
    char codec[64];
    const char *link, *local;
    int priced;             /* rounds that were priced; `rounds` sums them up */
    rpi_cost mean, slowest; /* of one round; of `mean` only time_s and wire_bytes */
    const rpi_algorithm *algorithm;
    rpi_cost all_reduce;
} rpi_gossip_plan;

enum { RPI_GOSSIP_SHOWN = 16 }; /* ranks up to which all edges are shown unasked */

/* A weight as "1/3", or "1". */
const char *rpi_gossip_fraction(rpi_fraction weight, char text[32]);
rp_status rpi_gossip_print(const rpi_gossip_plan *plan, bool all);
rp_status rpi_gossip_print_json(const rpi_gossip_plan *plan, bool all);

#endif
