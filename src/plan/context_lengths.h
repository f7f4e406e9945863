/* The lengths of sequences that ranks can share. Each rank has two pieces of a sequence; the
 * last piece may be padded. */
#ifndef RPI_PLAN_CONTEXT_LENGTHS_H
#define RPI_PLAN_CONTEXT_LENGTHS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Whether each rank has at least as many tokens as it has pieces. */
bool rpi_context_length_fits(int64_t ranks, int64_t sequence);
/* Are all pieces full? */
bool rpi_context_length_divides(int64_t ranks, int64_t sequence);
/* The number of tokens of a sequence on each rank, padding included. */
int64_t rpi_context_length_own(int64_t ranks, int64_t sequence);
/* RP_INVALID: the sequence is too short. The message has the shortest possible length, if the
 * model takes it (positions: the most tokens of the model; 0: any), and the number of ranks
 * that would fit, or what else to do. */
rp_status rpi_context_lengths_check(int64_t ranks, int64_t sequence, int64_t positions);

#endif
