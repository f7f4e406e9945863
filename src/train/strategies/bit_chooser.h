/* A level of bits for each tensor, from what all ranks measure in one step, for the steps after
 * it (redpoll/adaptive.h). All ranks choose from the same sums, and so alike. */
#ifndef RPI_TRAIN_BIT_CHOOSER_H
#define RPI_TRAIN_BIT_CHOOSER_H

#include "redpoll/adaptive.h"
#include "redpoll/codec_comparison.h"
#include "train/strategies/bucket.h"

#include <stdbool.h>

typedef struct rpi_bit_chooser {
    rp_codec like;
    rp_segment *segments; /* borrowed: one a tensor; exact ones are left alone */
    int count;
    uint8_t *levels; /* borrowed: training state, by rp_segment.tensor; 0: as `like` */
    bool *chooses;   /* by segment: those that travel as `like` when it opens */
    rp_level_choice *choices;
    double *measured; /* RP_MEASURED a segment, so far of this rank */
} rpi_bit_chooser;

enum { RPI_BIT_CHOICE_TEXT = 256 };

/* Of rpi_strategy_setup.lossy_from: elements of a bucket that would travel lossy. */
#define RPI_LOSSY_UNKNOWN (-1)
#define RPI_LOSSY_NEVER   INT64_MAX

rp_status rpi_bit_chooser_open(const rp_codec *like, rp_segment *segments, int count,
                               uint8_t *levels, rpi_bit_chooser *out);
void rpi_bit_chooser_close(rpi_bit_chooser *chooser); /* zeros are fine */
/* From how many elements on a bucket is faster with such bits than exact? Collective; times
 * all-reduces. text: the answer in words. */
rp_status rpi_bit_chooser_compare(const rpi_bit_chooser *chooser, const rpi_buckets *buckets,
                                  rp_comm *comm, const char *algorithm, int64_t *out_lossy_from,
                                  char text[RP_COMPARISON_TEXT]);
/* Buckets with fewer elements of those that it chooses for travel exact from now on; what was
 * held back of them goes out with the next step. */
void rpi_bit_chooser_limit(rpi_bit_chooser *chooser, const rpi_buckets *buckets,
                           int64_t lossy_from);
/* Does it choose for any? */
bool rpi_bit_chooser_is_needed(const rpi_bit_chooser *chooser);
/* Give segments the codecs that were chosen. */
void rpi_bit_chooser_apply(rpi_bit_chooser *chooser);
/* A step that measures begins. */
void rpi_bit_chooser_clear(rpi_bit_chooser *chooser);
/* This rank's gradient of a segment is there, not summed yet. */
rp_status rpi_bit_chooser_measure(rpi_bit_chooser *chooser, int segment);
/* Collective. text: what was chosen, in words; empty when it is what it was. */
rp_status rpi_bit_chooser_choose(rpi_bit_chooser *chooser, rp_comm *comm,
                                 char text[RPI_BIT_CHOICE_TEXT]);

#endif
