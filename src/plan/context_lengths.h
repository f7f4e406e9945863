/* Sequences that ranks share: each has two equal pieces of each. Which lengths are such ones.
 */
#ifndef RPI_PLAN_CONTEXT_LENGTHS_H
#define RPI_PLAN_CONTEXT_LENGTHS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

bool rpi_context_length_fits(int64_t ranks, int64_t sequence);
/* RP_INVALID: no such length; the nearest that are, up to `positions` tokens, the longest that
 * the model takes (0: any), or, where there are none, what would do. */
rp_status rpi_context_lengths_check(int64_t ranks, int64_t sequence, int64_t positions);

#endif
