/* --codec auto: buckets travel lossy where all-reduces are faster so, and where whole steps
 * are: what travels under the backward pass costs no time, and what encodes takes cores from
 * it.
 *
 *      the first lossy step: all-reduces are timed    (rpi_bit_chooser_compare)
 *      it and six more go exact, then seven lossy     (rp_step_trial)
 *      the next one: all ranks settle for the way whose steps were shorter
 */
#ifndef RPI_TRAIN_CODEC_TRIAL_H
#define RPI_TRAIN_CODEC_TRIAL_H

#include "train/strategies/bit_chooser.h"

typedef struct rpi_codec_trial {
    rpi_bit_chooser *chooser;
    rpi_buckets *buckets; /* whose segments the chooser has */
    rp_comm *comm;
    const char *algorithm;
    int64_t
        *lossy_from; /* training state (strategy.h), set when it is settled; NULL: no trial */
    int64_t found;   /* by the comparison */
    rp_step_trial steps;
    bool limited; /* what is settled is followed */
} rpi_codec_trial;

typedef struct rpi_trial_step {
    bool goes_exact;
    bool is_first_lossy;
    bool asks; /* rpi_codec_trial_ask() is due before its first bucket */
} rpi_trial_step;

/* A step begins that is to be lossy. */
rpi_trial_step rpi_codec_trial_begin(rpi_codec_trial *trial);
/* Collective; nothing else travels or computes meanwhile. text: what was found, if anything. */
rp_status rpi_codec_trial_ask(rpi_codec_trial *trial, char text[RP_COMPARISON_TEXT]);

#endif
