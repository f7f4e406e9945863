/* Do ranks with parameters of their own still train one model? It judges by the distances that
 * evaluations and checkpoints measure in any case, and sends nothing. */
#ifndef RPI_TRAIN_CONSENSUS_WATCH_H
#define RPI_TRAIN_CONSENSUS_WATCH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct rpi_consensus_watch { /* zeros: nothing seen */
    int64_t step;                    /* of the latest distance */
    double latest;
    int rises; /* increases in a row, up to the latest */
    bool has_warned;
    char warning[256];
} rpi_consensus_watch;

/* Takes a distance measured after `step`; NaN: none. Returns, once, what the user should know;
 * NULL: nothing. That is if ranks differ by more than 0.3 of the norm of their mean, or if the
 * distance has grown four times in a row, by a fifth each time and beyond 0.1. */
const char *rpi_consensus_watch_take(rpi_consensus_watch *watch, int64_t step, double distance);

#endif
