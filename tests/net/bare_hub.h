/* The hub of a control connection without its thread: a test says what it hears, has it beat,
 * and reads what it tells. */
#ifndef NET_BARE_HUB_H
#define NET_BARE_HUB_H

#include "net/control/control_state.h"

enum { BARE_HUB_MOST = 32 };

typedef struct bare_hub {
    rpi_control control;
    rpi_control_line lines[BARE_HUB_MOST], far[BARE_HUB_MOST]; /* by rank */
} bare_hub;

bare_hub *bare_hub_make(int world); /* rank 0 of so many, all of whom have come */
void bare_hub_free(bare_hub *hub);
/* A beat of a leaf, in the group of this scope ("abc", hexadecimal) or in that of all ("").
 * from: for whose frame it waits; -1: none. flags: RPI_BEAT_OVERDUE, RPI_BEAT_BLOCKED. */
void bare_hub_hear(bare_hub *hub, int rank, const char *scope, uint64_t sequence, int from,
                   uint64_t flags);

#endif
