/* Everybody gives a vector of one part a rank; rank r gets the reduction of part r. */
#include "plan/collective.h"

static bool gives(const rpi_seat *seat, int part) {
    (void)seat;
    (void)part;
    return true;
}

static int wants(const rpi_seat *seat, int part) {
    return part == seat->rank ? RPI_FROM_ALL : RPI_FROM_NOBODY;
}

const rpi_collective_kind rpi_collective_reduce_scatter = {
    .id = RPI_REDUCE_SCATTER,
    .name = "reduce-scatter",
    .reduces = true,
    .gives = gives,
    .wants = wants,
};
