/* How far the gradients of a step have been told to a strategy: each element of the arena once,
 * in order, and all of them before anything is stepped. */
#ifndef RPI_TRAIN_GRADIENTS_SEEN_H
#define RPI_TRAIN_GRADIENTS_SEEN_H

#include "redpoll/status.h"

#include <stdint.h>

typedef struct rpi_gradients_seen { /* zeros: a step begins */
    int64_t count;                  /* elements, from the arena's first */
} rpi_gradients_seen;

/* RP_INTERNAL: [first, first + count) does not begin where the last range ended. */
rp_status rpi_gradients_seen_add(rpi_gradients_seen *seen, int64_t first, int64_t count);
/* RP_INTERNAL: elements are missing to `all`. */
rp_status rpi_gradients_seen_check(const rpi_gradients_seen *seen, int64_t all);

#endif
