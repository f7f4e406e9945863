/* What of a row of tokens a masked language model has to guess.
 *
 * A share of the row is chosen, as whole words and in runs of up to three of them, a run of n
 * words with a probability proportional to 1/n; of the chosen tokens 80 % become [MASK], 10 %
 * any token, 10 % stay. Sources: Devlin et al., "BERT", NAACL 2019; Joshi et al., "SpanBERT",
 * TACL 2020; Megatron-LM's way of choosing. */
#ifndef RPI_TRAIN_MASKED_WORDS_H
#define RPI_TRAIN_MASKED_WORDS_H

#include "base/rng.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct rpi_masking {
    double share;    /* of a row's tokens */
    int longest_run; /* words */
    uint32_t mask, vocabulary;
    const bool *is_special, *goes_on; /* by id; goes_on: it is no first piece of a word */
} rpi_masking;

/* Hide some of `tokens`; labels (all RPI_LABEL_IGNORED before) say what they were, and
 * *out_valid how many there are: at least one where a word is short enough. */
rp_status rpi_masking_apply(const rpi_masking *masking, rpi_rng *rng, int64_t count,
                            int32_t *tokens, int32_t *labels, int64_t *out_valid);

#endif
