/* Which gradients of a step have been reported to a strategy: each element of the arena once,
 * in order, and all of them before any parameter is updated. */
#ifndef RPI_TRAIN_GRADIENTS_SEEN_H
#define RPI_TRAIN_GRADIENTS_SEEN_H

#include "redpoll/status.h"

#include <stdint.h>

typedef struct rpi_gradients_seen { /* zeros: a step begins */
    int64_t count;                  /* elements reported, from the arena's first */
} rpi_gradients_seen;

/* RP_INTERNAL: [first, first + count) does not begin where the last range ended. */
rp_status rpi_gradients_seen_add(rpi_gradients_seen *seen, int64_t first, int64_t count);
/* RP_INTERNAL: of `all` elements some were not reported. */
rp_status rpi_gradients_seen_check(const rpi_gradients_seen *seen, int64_t all);

#endif
