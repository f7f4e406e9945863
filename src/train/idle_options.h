/* Options that were said and change nothing among the ranks that there are. Scripts carry them
 * over layouts and numbers of ranks, so that they are noted, and not refused.
 *
 * What an option needs is a row in idle_options.c: a new option of ranks has one, too. Values
 * that are what happens anyway (fp32, 1f1b, 0), as nanotron's files hold them, say nothing. */
#ifndef RPI_TRAIN_IDLE_OPTIONS_H
#define RPI_TRAIN_IDLE_OPTIONS_H

#include "train/train.h"

/* Of the ranks what options need. */
typedef struct rpi_idle_layout {
    int stages, tensor_ranks;
    int replica_ranks; /* of one replica */
    int holders;       /* ranks that hold the same parameters, and sum gradients */
    bool keeps_copies; /* ranks of each host keep a second copy of parameters */
} rpi_idle_layout;

/* A line of each need that is not met and that options wait for: "--zero 1 and --codec q4
 * change nothing: no other rank holds these parameters (-n 2)". Pure: alike on all ranks. */
void rpi_idle_options_tell(const rpi_train_options *options, const rpi_idle_layout *layout,
                           void (*note)(void *context, const char *line), void *context);

#endif
