/* Everybody gives a vector; the root gets the reduction of all. */
#include "plan/collective.h"

static bool gives(const rpi_seat *seat, int part) {
    (void)seat;
    (void)part;
    return true;
}

static int wants(const rpi_seat *seat, int part) {
    (void)part;
    return seat->rank == seat->root ? RPI_FROM_ALL : RPI_FROM_NOBODY;
}

const rpi_collective_kind rpi_collective_reduce = {
    .id = RPI_REDUCE,
    .name = "reduce",
    .has_root = true,
    .reduces = true,
    .rank_order = true,
    .gives = gives,
    .wants = wants,
};
