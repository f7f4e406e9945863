/* The catalogue of topologies. */
#include "plan/topologies/topology.h"

extern const rpi_topology_kind rpi_topology_ring, rpi_topology_mesh, rpi_topology_torus,
    rpi_topology_star, rpi_topology_full, rpi_topology_exponential, rpi_topology_one_peer,
    rpi_topology_base, rpi_topology_ceca, rpi_topology_equi, rpi_topology_hierarchical,
    rpi_topology_inner_outer_ring, rpi_topology_inner_outer_expo, rpi_topology_file;

static const rpi_topology_kind *const catalogue[] = {
    &rpi_topology_ring,
    &rpi_topology_mesh,
    &rpi_topology_torus,
    &rpi_topology_star,
    &rpi_topology_full,
    &rpi_topology_exponential,
    &rpi_topology_one_peer,
    &rpi_topology_base,
    &rpi_topology_ceca,
    &rpi_topology_equi,
    &rpi_topology_hierarchical,
    &rpi_topology_inner_outer_ring,
    &rpi_topology_inner_outer_expo,
    &rpi_topology_file,
    NULL,
};

enum { KINDS = sizeof catalogue / sizeof catalogue[0] };

const rpi_topology_kind *rpi_topology_kind_at(int index) {
    return index >= 0 && index < KINDS ? catalogue[index] : NULL;
}

rp_status rpi_topology_open(const char *text, int ranks, rpi_topology **out_topology) {
    return rpi_topology_open_of(catalogue, text, ranks, out_topology);
}
