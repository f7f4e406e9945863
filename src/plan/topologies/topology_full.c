/* Everybody with everybody: the average in one round, and what all-reduce does cheaper. */
#include "plan/topologies/topology.h"

static const rpi_option options[] = {RPI_TOPOLOGY_WEIGHTS, {0}};

static void mix(const rpi_topology *topology, int64_t step, rpi_mixing *mixing) {
    (void)step;
    for (int to = 0; to < topology->ranks && mixing->status == RP_OK; to++)
        for (int from = 0; from < topology->ranks; from++) rpi_mixing_link(mixing, from, to);
}

const rpi_topology_kind rpi_topology_full = {
    .name = "full",
    .summary = "everybody with everybody: exact in one round, as dear as it can be",
    .options = options,
    .weights = RPI_WEIGHTS_UNIFORM,
    .mix = mix,
};
