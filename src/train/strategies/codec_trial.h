/* --codec auto: buckets are sent lossy if that makes all-reduces faster, and whole steps, too.
 * An all-reduce that is hidden by the backward pass costs no time, and encoding takes cores
 * from that pass.
 *
 *      the first lossy step: all-reduces are timed    (rpi_bit_chooser_compare)
 *      it and six more go exact, then seven lossy     (rp_step_trial)
 *      the next one: all ranks take the way whose steps were shorter */
#ifndef RPI_TRAIN_CODEC_TRIAL_H
#define RPI_TRAIN_CODEC_TRIAL_H

#include "train/strategies/bit_chooser.h"

typedef struct rpi_codec_trial {
    rpi_bit_chooser *chooser;
    rpi_buckets *buckets; /* the chooser works on their segments */
    rp_comm *comm;
    const char *algorithm;
    int64_t *lossy_from; /* training state (strategy.h), set by the result; NULL: no trial */
    int64_t found;       /* by the comparison of all-reduces */
    rp_step_trial steps;
    bool limited; /* the result is applied */
} rpi_codec_trial;

typedef struct rpi_trial_step {
    bool goes_exact;
    bool is_first_lossy;
    bool asks; /* rpi_codec_trial_ask() is due before its first bucket */
} rpi_trial_step;

/* Begins a step that may be lossy. */
rpi_trial_step rpi_codec_trial_begin(rpi_codec_trial *trial);
/* Collective; no other operation or computation may run at the same time. text: the result, if
 * there is one. */
rp_status rpi_codec_trial_ask(rpi_codec_trial *trial, char text[RP_COMPARISON_TEXT]);

#endif
