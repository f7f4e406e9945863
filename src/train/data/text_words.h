/* Words of data that are text files with a tokenizer: "KIND:FILE,tokenizer=NAME", with
 * ",validation=" and what else a kind has. */
#ifndef RPI_TRAIN_TEXT_WORDS_H
#define RPI_TRAIN_TEXT_WORDS_H

#include "base/option.h"
#include "train/data/token_data.h"

typedef struct rpi_text_words {
    rpi_token_data files; /* train, validation, share */
    char tokenizer[RPI_PATH_BYTES];
} rpi_text_words;

/* Take NAME=VALUE into what the kind has of its own. *out_taken: false where it has no such
 * word. */
typedef rp_status (*rpi_text_word_taker)(const char *name, const char *value, void *own,
                                         bool *out_taken);

/* kind: "pairs"; usage: "write pairs:...", what errors end with; take: NULL for no more words.
 * RP_INVALID says what is wanted. */
rp_status rpi_text_words_parse(const char *data, const char *kind, const char *usage,
                               rpi_text_word_taker take, void *own, rpi_text_words *out_words);

#endif
