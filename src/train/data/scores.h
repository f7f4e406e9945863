/* What data say of a model beside loss and accuracy: percentages with names. */
#ifndef RPI_TRAIN_SCORES_H
#define RPI_TRAIN_SCORES_H

#include <stdint.h>

enum { RPI_SCORES = 2 };

typedef struct rpi_score {
    const char *key, *label; /* "exact_match", "exact match" */
    double percent;          /* NaN: over nothing */
} rpi_score;

typedef struct rpi_scores {
    int count; /* 0: these data have none */
    rpi_score at[RPI_SCORES];
    int64_t over;     /* so many... */
    const char *unit; /* "questions" */
} rpi_scores;

#endif
