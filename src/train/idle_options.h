/* Options that were given and change nothing with the present ranks. Scripts keep the same
 * options for several layouts and numbers of ranks, so a note is printed and the options are
 * not refused.
 *
 * What an option needs is a row in idle_options.c; every new option about ranks needs one.
 * Values that mean the default behaviour (fp32, 1f1b, 0), as in nanotron's files, are not
 * reported. */
#ifndef RPI_TRAIN_IDLE_OPTIONS_H
#define RPI_TRAIN_IDLE_OPTIONS_H

#include "train/train.h"

/* The properties of the ranks that options need. */
typedef struct rpi_idle_layout {
    int stages, tensor_ranks;
    int replica_ranks; /* of one replica */
    int holders;       /* ranks that have the same parameters, and sum gradients */
    bool keeps_copies; /* ranks of each host keep a second copy of parameters */
    bool all_reduces;  /* the strategy does, with --algorithm */
} rpi_idle_layout;

/* A line for each need that is not satisfied, with the options that need it: "--zero 1 and
 * --codec q4 change nothing: no other rank holds these parameters (-n 2)". Pure: the same on
 * all ranks. */
void rpi_idle_options_tell(const rpi_train_options *options, const rpi_idle_layout *layout,
                           void (*note)(void *context, const char *line), void *context);

#endif
