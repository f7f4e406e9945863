/* Rank r gives part r; everybody gets all parts. */
#include "plan/collective.h"

static bool gives(const rpi_seat *seat, int part) {
    return part == seat->rank;
}

static int wants(const rpi_seat *seat, int part) {
    (void)seat;
    return part;
}

const rpi_collective_kind rpi_collective_all_gather = {
    .id = RPI_ALL_GATHER,
    .name = "all-gather",
    .replicas = RPI_REPLICAS_ALL,
    .gives = gives,
    .wants = wants,
};
