/* Do ranks with parameters of their own still train one model? By the distances that
 * evaluations and checkpoints measure anyway: nothing is sent for it. */
#ifndef RPI_TRAIN_CONSENSUS_WATCH_H
#define RPI_TRAIN_CONSENSUS_WATCH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct rpi_consensus_watch { /* zeros: nothing seen */
    int64_t step;                    /* of the latest distance */
    double latest;
    int rises; /* in a row, up to the latest */
    bool has_warned;
    char warning[256];
} rpi_consensus_watch;

/* A distance, measured behind `step`; NaN: none. What the user should know, once; NULL:
 * nothing: ranks are apart by more than 0.3 of the norm of their mean, or it was more four
 * times in a row, by a fifth each time and past 0.1. */
const char *rpi_consensus_watch_take(rpi_consensus_watch *watch, int64_t step, double distance);

#endif
