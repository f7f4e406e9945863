/* Rank 0 of two sends what it has to rank 1, which says first that it is ready. */
#include "plan/collective.h"

static bool gives(const rpi_seat *seat, int part) {
    (void)part;
    return seat->rank == 0;
}

static int wants(const rpi_seat *seat, int part) {
    (void)part;
    return seat->rank == 1 ? 0 : RPI_FROM_NOBODY;
}

const rpi_collective_kind rpi_collective_sendrecv = {
    .id = RPI_SENDRECV,
    .name = "send-recv",
    .token_first = true,
    .gives = gives,
    .wants = wants,
};
