/* Chooses the number of bits of each tensor, from what all ranks measure in one step, for the
 * steps after it (redpoll/adaptive.h). All ranks choose from the same sums, and so choose
 * alike. */
#ifndef RPI_TRAIN_BIT_CHOOSER_H
#define RPI_TRAIN_BIT_CHOOSER_H

#include "redpoll/adaptive.h"
#include "redpoll/codec_comparison.h"
#include "train/strategies/bucket.h"

#include <stdbool.h>

typedef struct rpi_bit_chooser {
    rp_codec like;
    rp_segment *segments; /* borrowed: one a tensor; exact ones are not changed */
    int count;
    uint8_t *levels; /* borrowed: training state, by rp_segment.tensor; 0: the codec `like` */
    bool *chooses;   /* by segment: chosen for, as its codec is `like` at the start */
    rp_level_choice *choices;
    double *measured; /* RP_MEASURED numbers a segment, of this rank so far */
} rpi_bit_chooser;

enum { RPI_BIT_CHOICE_TEXT = 256 };

/* Of rpi_strategy_setup.lossy_from: the least elements of a bucket that is sent lossy. */
#define RPI_LOSSY_UNKNOWN (-1)
#define RPI_LOSSY_NEVER   INT64_MAX

rp_status rpi_bit_chooser_open(const rp_codec *like, rp_segment *segments, int count,
                               uint8_t *levels, rpi_bit_chooser *out);
void rpi_bit_chooser_close(rpi_bit_chooser *chooser); /* zeros are fine */
/* Finds from how many elements on a bucket is faster with these bits than exact. Collective;
 * times all-reduces. text: the result in words. */
rp_status rpi_bit_chooser_compare(const rpi_bit_chooser *chooser, const rpi_buckets *buckets,
                                  rp_comm *comm, const char *algorithm, int64_t *out_lossy_from,
                                  char text[RP_COMPARISON_TEXT]);
/* From now on, buckets in which fewer elements would be encoded are sent exactly; their
 * residuals are sent with the next step. */
void rpi_bit_chooser_limit(rpi_bit_chooser *chooser, const rpi_buckets *buckets,
                           int64_t lossy_from);
/* Does it choose bits for any segment? */
bool rpi_bit_chooser_is_needed(const rpi_bit_chooser *chooser);
/* Gives segments the chosen codecs. */
void rpi_bit_chooser_apply(rpi_bit_chooser *chooser);
/* Begins a step that is measured. */
void rpi_bit_chooser_clear(rpi_bit_chooser *chooser);
/* Measures this rank's gradient of a segment, before it is summed. */
rp_status rpi_bit_chooser_measure(rpi_bit_chooser *chooser, int segment);
/* Collective. text: what was chosen, in words; empty if nothing changed. */
rp_status rpi_bit_chooser_choose(rpi_bit_chooser *chooser, rp_comm *comm,
                                 char text[RPI_BIT_CHOICE_TEXT]);

#endif
