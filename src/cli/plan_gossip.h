/* `redpoll plan gossip`: a topology's rounds, their properties and their costs. */
#ifndef RPI_CLI_PLAN_GOSSIP_H
#define RPI_CLI_PLAN_GOSSIP_H

#include "plan/cost.h"
#include "plan/gossip/gossip_fit.h"
#include "plan/topologies/topology_properties.h"
#include "redpoll/codec.h"

enum {
    RPI_GOSSIP_RULES = 16,  /* the most rules of the catalogue */
    RPI_GOSSIP_JUDGED = 256 /* the fit is computed up to so many ranks */
};

typedef struct rpi_gossip_plan {
    const rpi_topology *topology;
    rpi_topology_properties properties;
    rpi_gossip_fit fits[RPI_GOSSIP_RULES]; /* one for each rule of the catalogue */
    int64_t hosts;                         /* 0: each rank is on a host of its own */
    size_t bytes, encoded;
    char codec[64];
    const char *link, *local;
    int priced;             /* the number of priced rounds; `rounds` has their sums */
    rpi_cost mean, slowest; /* of one round; `mean` has time_s and wire_bytes only */
    const rpi_algorithm *algorithm;
    rpi_cost all_reduce;
} rpi_gossip_plan;

enum { RPI_GOSSIP_SHOWN = 16 }; /* up to so many ranks, all edges are shown by default */

/* A weight as "1/3", or "1". */
const char *rpi_gossip_fraction(rpi_fraction weight, char text[32]);
rp_status rpi_gossip_print(const rpi_gossip_plan *plan, bool all);
rp_status rpi_gossip_print_json(const rpi_gossip_plan *plan, bool all);

#endif
