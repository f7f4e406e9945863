/* Telling a person how a run goes: a bar on a terminal, plain lines elsewhere. */
#ifndef RPI_CLI_PROGRESS_H
#define RPI_CLI_PROGRESS_H

#include "train/train.h"

#include <stdio.h>

typedef struct rpi_progress {
    FILE *stream;
    bool is_silent; /* rank 0 tells, and this is another */
    bool terminal;
    int64_t first_step, last_step, every; /* plain: a line every so many steps */
    int64_t started_ns, drawn_ns;
    double rate;   /* a second, smoothed */
    bool bar_open; /* the cursor stands behind a bar */
    int bar_width; /* of what stands there */
    /* Told behind the first line, with the steps that are left; NULL: nobody. */
    void (*begun)(const void *context, FILE *stream, int64_t steps);
    const void *begun_context;
} rpi_progress;

/* Is it a terminal, on which a line can be drawn anew? */
bool rpi_is_terminal(FILE *stream);

/* A terminal is recognised by itself. */
rpi_progress rpi_progress_on(FILE *stream);
/* Hooks that print to it; `progress` outlives the run. */
rpi_train_hooks rpi_progress_hooks(rpi_progress *progress);
/* End the bar's line, so that other text may follow. */
void rpi_progress_end(rpi_progress *progress);

/* How a step is told in at most `columns` (0: any number), with a bar where there is room; what
 * matters least is left out first. Returns text. */
typedef struct rpi_progress_step {
    int64_t step, last_step;
    double loss, rate, left_s;
    const char *unit; /* what the rate counts: "images" */
} rpi_progress_step;
const char *rpi_progress_text(const rpi_progress_step *step, bool bar, int columns, char *text,
                              size_t bytes);

#endif
