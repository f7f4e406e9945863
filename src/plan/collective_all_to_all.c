/* Everybody gives a block for each rank. Blocks are numbered by distance, those received behind
 * those sent: part 0 is the rank's own, part world + d comes from the rank d before. */
#include "plan/collective.h"

static bool gives(const rpi_seat *seat, int part) {
    return part < seat->world;
}

static int wants(const rpi_seat *seat, int part) {
    if (part == 0) return seat->rank;
    int distance = part - seat->world;
    if (distance <= 0) return RPI_FROM_NOBODY;
    return (seat->rank - distance + seat->world) % seat->world;
}

const rpi_collective_kind rpi_collective_all_to_all = {
    .id = RPI_ALL_TO_ALL,
    .name = "all-to-all",
    .has_blocks = true,
    .both_ways = true,
    .gives = gives,
    .wants = wants,
};
