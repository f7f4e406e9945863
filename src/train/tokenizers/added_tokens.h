/* Tokens that are looked for in the text itself, before the model sees it: "<|endoftext|>",
 * "[MASK]". */
#ifndef RPI_TRAIN_ADDED_TOKENS_H
#define RPI_TRAIN_ADDED_TOKENS_H

#include "train/tokenizers/pipeline.h"

typedef struct rpi_added_token {
    rpi_text content, matched; /* what is looked for: the content, normalised if so asked */
    uint32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
} rpi_added_token;

/* Those that are looked for together, longest first by the first byte. */
typedef struct rpi_added_finder {
    uint32_t *order; /* indices of tokens */
    size_t count;
    uint32_t first[257]; /* by first byte, into order */
} rpi_added_finder;

typedef struct rpi_added_tokens {
    rpi_added_token *at;
    size_t count;
    rpi_added_finder raw, normalized; /* before and behind the normalizers */
} rpi_added_tokens;

/* "added_tokens": [{id, content, ...}]; `matched` is yet to be set. */
rp_status rpi_added_tokens_load(const cJSON *json, const rpi_vocabulary *vocabulary,
                                rpi_added_tokens *added);
/* When all `matched` are set. */
rp_status rpi_added_tokens_prepare(rpi_added_tokens *added);
void rpi_added_tokens_free(rpi_added_tokens *added);

/* The next token in text[*at .. bytes): where it begins and ends, spaces that belong to it
 * included, of which none lie before `taken`, where the one before ended. *at is then behind
 * the token without these spaces: as elsewhere, one that spaces make is found again in them.
 * NULL: there is none. plain_special: special ones are text like any other. */
const rpi_added_token *rpi_added_tokens_next(const rpi_added_tokens *added,
                                             const rpi_added_finder *finder, const char *text,
                                             size_t bytes, size_t taken, bool plain_special,
                                             size_t *at, size_t *out_start, size_t *out_end);

#endif
