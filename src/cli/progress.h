/* Shows the progress of a run: a bar on a terminal, plain lines elsewhere. */
#ifndef RPI_CLI_PROGRESS_H
#define RPI_CLI_PROGRESS_H

#include "train/train.h"

#include <stdio.h>

typedef struct rpi_progress {
    FILE *stream;
    bool is_silent; /* this rank is not rank 0, which shows it */
    bool terminal;
    /* every: without a bar, the steps between two lines */
    int64_t first_step, last_step, every;
    int64_t started_ns, drawn_ns;
    double rate;   /* steps a second, smoothed */
    bool bar_open; /* the cursor is behind a bar */
    int bar_width; /* of the bar that is shown */
    /* Called after the first line, with the steps that are left; NULL: not called. */
    void (*begun)(const void *context, FILE *stream, int64_t steps);
    const void *begun_context;
} rpi_progress;

/* Is it a terminal, on which a line can be redrawn? */
bool rpi_is_terminal(FILE *stream);

/* Recognises a terminal by itself. */
rpi_progress rpi_progress_on(FILE *stream);
/* Hooks that print to it; `progress` must outlive the run. */
rpi_train_hooks rpi_progress_hooks(rpi_progress *progress);
/* Ends the bar's line, so that other text may follow. */
void rpi_progress_end(rpi_progress *progress);

/* The text about a step in at most `columns` (0: any number), with a bar if there is room; the
 * least important parts are left out first. Returns text. */
typedef struct rpi_progress_step {
    int64_t step, last_step;
    double loss, rate, left_s;
    const char *unit; /* what the rate counts: "images" */
} rpi_progress_step;
const char *rpi_progress_text(const rpi_progress_step *step, bool bar, int columns, char *text,
                              size_t bytes);

#endif
