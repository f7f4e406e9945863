/* Everybody gives a vector and gets the reduction of all. */
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

const rpi_collective_kind rpi_collective_all_reduce = {
    .id = RPI_ALL_REDUCE,
    .name = "all-reduce",
    .reduces = true,
    .replicas = RPI_REPLICAS_ALL,
    .gives = gives,
    .wants = wants,
};
