/* The root gives a block for each rank. */
#include "plan/collective.h"

static bool gives(const rpi_seat *seat, int part) {
    (void)part;
    return seat->rank == seat->root;
}

static int wants(const rpi_seat *seat, int part) {
    return part == seat->rank ? seat->root : RPI_FROM_NOBODY;
}

const rpi_collective_kind rpi_collective_scatter = {
    .id = RPI_SCATTER,
    .name = "scatter",
    .has_root = true,
    .has_blocks = true,
    .gives = gives,
    .wants = wants,
};
