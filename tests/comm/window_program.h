/* Random operations on windows, of which the answers are known: whatever the interleaving, sums
 * are what they were, p is what a vector of ones is, and a slot is never half of anything. */
#ifndef COMM_WINDOW_PROGRAM_H
#define COMM_WINDOW_PROGRAM_H

#include "redpoll/window.h"

#include <stdint.h>

typedef struct window_program {
    uint64_t seed;
    int operations; /* of each rank */
    int pauses_us;  /* the longest, now and then */
} window_program;

/* Collective: one rank's part. Failed checks are the harness's. */
void window_program_run(rp_comm *comm, const window_program *program);

#endif
