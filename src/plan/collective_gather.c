/* Rank r gives block r; the root gets all. */
#include "plan/collective.h"

static bool gives(const rpi_seat *seat, int part) {
    return part == seat->rank;
}

static int wants(const rpi_seat *seat, int part) {
    return seat->rank == seat->root ? part : RPI_FROM_NOBODY;
}

const rpi_collective_kind rpi_collective_gather = {
    .id = RPI_GATHER,
    .name = "gather",
    .has_root = true,
    .has_blocks = true,
    .gives = gives,
    .wants = wants,
};
