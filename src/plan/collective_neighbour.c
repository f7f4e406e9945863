/* Everybody gives a vector and gets a weighted sum of its own and those of its neighbours. */
#include "plan/collective.h"

static bool gives(const rpi_seat *seat, int part) {
    (void)seat;
    (void)part;
    return true;
}

static int wants(const rpi_seat *seat, int part) {
    (void)seat;
    (void)part;
    return RPI_FROM_ALL;
}

const rpi_collective_kind rpi_collective_neighbour_all_reduce = {
    .id = RPI_NEIGHBOUR_ALL_REDUCE,
    .name = "neighbor-all-reduce",
    .mixes = true,
    .gives = gives,
    .wants = wants,
};
