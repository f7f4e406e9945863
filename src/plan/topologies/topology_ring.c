/* Each rank and the one or two beside it. */
#include "base/status.h"
#include "plan/topologies/topology.h"

#include <string.h>

static const rpi_option options[] = {
    RPI_TOPOLOGY_ROW("direction", TEXT, direction, "both", 0, 0, "both|left|right",
                     "to whom a rank sends: left is the rank before it"),
    RPI_TOPOLOGY_WEIGHTS,
    {0},
};

static bool sends(const rpi_topology *topology, const char *side) {
    const char *direction = topology->options.direction;
    return strcmp(direction, side) == 0 || strcmp(direction, "both") == 0;
}

static rp_status check(const rpi_topology *topology) {
    if (sends(topology, "left") || sends(topology, "right")) return RP_OK;
    return RP_FAIL(INVALID, "direction is '%s'; both, left and right are allowed",
                   topology->options.direction);
}

static void mix(const rpi_topology *topology, int64_t step, rpi_mixing *mixing) {
    (void)step;
    int ranks = topology->ranks;
    for (int rank = 0; rank < ranks; rank++) {
        if (sends(topology, "left"))
            rpi_mixing_link(mixing, rank, rpi_topology_wrap(rank - 1, ranks));
        if (sends(topology, "right"))
            rpi_mixing_link(mixing, rank, rpi_topology_wrap(rank + 1, ranks));
    }
}

const rpi_topology_kind rpi_topology_ring = {
    .name = "ring",
    .summary = "each rank and those beside it; direction=both, left or right",
    .options = options,
    .weights = RPI_WEIGHTS_UNIFORM,
    .check = check,
    .mix = mix,
};
