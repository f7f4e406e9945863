/* One rank in the middle, which all others talk to. */
#include "base/status.h"
#include "plan/topologies/topology.h"

static const rpi_option options[] = {
    RPI_TOPOLOGY_ROW("centre", COUNT, centre, "0", 0, RPI_TOPOLOGY_RANKS - 1, "R",
                     "the rank in the middle"),
    RPI_TOPOLOGY_WEIGHTS,
    {0},
};

static rp_status check(const rpi_topology *topology) {
    if (topology->options.centre < topology->ranks) return RP_OK;
    return RP_FAIL(INVALID, "centre is %lld; the ranks are 0 to %d",
                   (long long)topology->options.centre, topology->ranks - 1);
}

static void mix(const rpi_topology *topology, int64_t step, rpi_mixing *mixing) {
    (void)step;
    int centre = (int)topology->options.centre;
    for (int rank = 0; rank < topology->ranks; rank++) {
        rpi_mixing_link(mixing, centre, rank);
        rpi_mixing_link(mixing, rank, centre);
    }
}

const rpi_topology_kind rpi_topology_star = {
    .name = "star",
    .summary = "all ranks and one in the middle; centre=R",
    .options = options,
    .weights = RPI_WEIGHTS_METROPOLIS,
    .check = check,
    .mix = mix,
};
