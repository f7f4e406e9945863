/* Everybody gets what the root has. */
#include "plan/collective.h"

static bool gives(const rpi_seat *seat, int part) {
    (void)part;
    return seat->rank == seat->root;
}

static int wants(const rpi_seat *seat, int part) {
    (void)part;
    return seat->root;
}

const rpi_collective_kind rpi_collective_broadcast = {
    .id = RPI_BROADCAST,
    .name = "broadcast",
    .has_root = true,
    .replicas = RPI_REPLICAS_BUT_THE_ROOT,
    .gives = gives,
    .wants = wants,
};
