/* Sequences that ranks share: each has two pieces of each, the last of which may be filled up.
 * Which lengths are such ones. */
#ifndef RPI_PLAN_CONTEXT_LENGTHS_H
#define RPI_PLAN_CONTEXT_LENGTHS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Has each rank at least as many tokens as pieces? */
bool rpi_context_length_fits(int64_t ranks, int64_t sequence);
/* Are all pieces full? */
bool rpi_context_length_divides(int64_t ranks, int64_t sequence);
/* The tokens of a sequence that each rank has, with what fills its pieces up. */
int64_t rpi_context_length_own(int64_t ranks, int64_t sequence);
/* RP_INVALID: the sequence is too short; the shortest that would do, if the model takes it
 * (positions: the most tokens that it does; 0: any), and how many ranks would, or what else. */
rp_status rpi_context_lengths_check(int64_t ranks, int64_t sequence, int64_t positions);

#endif
