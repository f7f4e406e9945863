/* Nobody goes on before all have come: tokens only. */
#include "plan/collective.h"

static bool gives(const rpi_seat *seat, int part) {
    (void)seat;
    (void)part;
    return false;
}

static int wants(const rpi_seat *seat, int part) {
    (void)seat;
    (void)part;
    return RPI_FROM_NOBODY;
}

const rpi_collective_kind rpi_collective_barrier = {
    .id = RPI_BARRIER,
    .name = "barrier",
    .tokens_only = true,
    .gives = gives,
    .wants = wants,
};
