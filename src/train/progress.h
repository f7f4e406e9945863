/* Telling a person how a run goes: a bar on a terminal, plain lines elsewhere. */
#ifndef RPI_TRAIN_PROGRESS_H
#define RPI_TRAIN_PROGRESS_H

#include "train/train.h"

#include <stdio.h>

typedef struct rpi_progress {
    FILE *stream;
    bool terminal;
    int64_t first_step, last_step, every; /* plain: a line every so many steps */
    int64_t started_ns, drawn_ns;
    double rate;   /* images/s, smoothed */
    bool bar_open; /* the cursor stands behind a bar */
} rpi_progress;

/* A terminal is recognised by itself. */
rpi_progress rpi_progress_on(FILE *stream);
/* Hooks that print to it; `progress` outlives the run. */
rpi_train_hooks rpi_progress_hooks(rpi_progress *progress);
/* End the bar's line, so that other text may follow. */
void rpi_progress_end(rpi_progress *progress);

#endif
