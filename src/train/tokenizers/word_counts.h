/* How often each word of some documents occurs: what tokenizers are trained on. */
#ifndef RPI_TRAIN_WORD_COUNTS_H
#define RPI_TRAIN_WORD_COUNTS_H

#include "train/tokenizers/tokenizer.h"
#include "train/tokenizers/vocabulary.h"

typedef struct rpi_word_counts {
    rpi_vocabulary words; /* by id, in the order in which they came */
    int64_t *counts;      /* by id */
    size_t capacity;
    rpi_tokenizer *cutter; /* whose normalizer and pre-tokenizer say what a word is */
    rpi_encoder *encoder;
    rpi_pieces pieces;
    rpi_text repaired;
} rpi_word_counts;

/* json: of the cutter; NULL: words are those of GPT-2. */
rp_status rpi_word_counts_open(const char *json, rpi_word_counts *out_counts);
void rpi_word_counts_close(rpi_word_counts *counts); /* zeros are fine */

/* Count the words of a document; what is not UTF-8 counts as U+FFFD. RP_UNSUPPORTED: more than
 * RPI_TOKENS_MOST different words. */
rp_status rpi_word_counts_add(rpi_word_counts *counts, const char *text, size_t bytes);

#endif
