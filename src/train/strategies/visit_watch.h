/* What successive visits of a worker to servers tell of the outer momentum: where they bring
 * the same again and again (few local steps), it adds them up, and an outer step goes much
 * further than workers have been; where they turn back, outer steps overshoot. */
#ifndef RPI_TRAIN_VISIT_WATCH_H
#define RPI_TRAIN_VISIT_WATCH_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* A worker's. Zeros are fine to close. */
typedef struct rpi_visit_watch {
    size_t stride;
    float *before; /* samples of what the visit before has brought */
} rpi_visit_watch;

rp_status rpi_visit_watch_open(int64_t count, rpi_visit_watch *watch);
void rpi_visit_watch_close(rpi_visit_watch *watch);
/* Cosine of what this visit brings and what the one before did; NaN: not known. */
double rpi_visit_watch_look(rpi_visit_watch *watch, const float *gradient, int64_t count);

/* The first server's, over all workers. */
typedef struct rpi_visit_advice {
    double rate, momentum; /* of the outer optimizer */
    double mean;           /* autocorrelation of the latest rounds */
    int known;
    int has_warned;
    char text[320];
} rpi_visit_advice;

/* Of a round. What the user should know, once; NULL: nothing. */
const char *rpi_visit_advice_take(rpi_visit_advice *advice, double autocorrelation,
                                  int64_t local_steps);

#endif
