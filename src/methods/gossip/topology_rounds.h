/* One rank's part of the rounds of a topology, as rp_neighbor_all_reduce takes it. Where the
 * topology has few rounds each is made once and kept, since making one costs as much as making
 * the parts of all ranks. */
#ifndef RPI_METHODS_TOPOLOGY_ROUNDS_H
#define RPI_METHODS_TOPOLOGY_ROUNDS_H

#include "plan/topologies/topology.h"
#include "redpoll/comm.h"

typedef struct rpi_topology_rounds rpi_topology_rounds;

/* As rpi_topology_open; RP_UNSUPPORTED: ranks have more than one vector in this topology. */
rp_status rpi_topology_rounds_open(const char *text, int ranks, int rank,
                                   rpi_topology_rounds **out_rounds);
void rpi_topology_rounds_close(rpi_topology_rounds *rounds); /* NULL is fine */
const rpi_topology *rpi_topology_rounds_of(const rpi_topology_rounds *rounds);
/* Of a step, 0 or more; good until the next call. */
rp_status rpi_topology_rounds_at(rpi_topology_rounds *rounds, int64_t step,
                                 const rp_neighbors **out_neighbors);

#endif
