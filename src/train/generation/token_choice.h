/* Which token follows: the likeliest, or one drawn from the likelier ones.
 *
 * With l the logits: those of the top_k largest alone, p = softmax(l / temperature), of these
 * the fewest whose p together reach top_p, one of them drawn by p. Of equal logits the token
 * with the lower id counts as larger. Holtzman et al., "The curious case of neural text
 * degeneration", 2020 (top-p); Fan et al., "Hierarchical neural story generation", 2018
 * (top-k).
 */
#ifndef RPI_TRAIN_TOKEN_CHOICE_H
#define RPI_TRAIN_TOKEN_CHOICE_H

#include "redpoll/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct rpi_token_choice {
    double temperature; /* 0: the largest logit */
    int64_t top_k;      /* 0: all */
    double top_p;       /* above 0; 1: all */
    uint64_t seed;
} rpi_token_choice;

typedef struct rpi_token_candidate {
    float logit;
    uint32_t token;
} rpi_token_candidate;

/* Of tokens 0 to count - 1, those that are allowed (NULL: all). index: which token of the text
 * it is; the same seed and index give the same choice. candidates: room for `count`.
 * RP_CORRUPT: a logit is NaN or +inf, or none is a number. */
rp_status rpi_token_choose(const rpi_token_choice *choice, const float *logits, int64_t count,
                           const bool *allowed, uint64_t index, rpi_token_candidate *candidates,
                           uint32_t *out_token);

#endif
