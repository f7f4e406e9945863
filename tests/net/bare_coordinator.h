/* The coordinator of a control connection without its thread: a test says what it hears, has it
 * beat, and reads what it tells. */
#ifndef NET_BARE_COORDINATOR_H
#define NET_BARE_COORDINATOR_H

#include "net/control/control_state.h"

enum { BARE_COORDINATOR_MOST = 32 };

typedef struct bare_coordinator {
    rpi_control control;
    rpi_control_connection connections[BARE_COORDINATOR_MOST],
        far[BARE_COORDINATOR_MOST]; /* by rank */
} bare_coordinator;

bare_coordinator *
bare_coordinator_make(int world); /* rank 0 of so many, all of whom have come */
void bare_coordinator_free(bare_coordinator *coordinator);
/* A beat of a leaf, in the group of this scope ("abc", hexadecimal) or in that of all ("").
 * from: for whose frame it waits; -1: none. flags: RPI_BEAT_OVERDUE, RPI_BEAT_BLOCKED. */
void bare_coordinator_hear(bare_coordinator *coordinator, int rank, const char *scope,
                           uint64_t sequence, int from, uint64_t flags);

#endif
