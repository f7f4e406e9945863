/* The tokens that BERT puts around and into texts. */
#ifndef RPI_TRAIN_BERT_TOKENS_H
#define RPI_TRAIN_BERT_TOKENS_H

#include "train/tokenizers/tokenizer.h"

typedef struct rpi_bert_tokens {
    uint32_t cls, sep, mask, pad;
    uint32_t vocabulary; /* all ids are below */
} rpi_bert_tokens;

/* The tokenizer's own, and for those that it lacks the ids behind its last one. */
rpi_bert_tokens rpi_bert_tokens_of(const rpi_tokenizer *tokenizer);

#endif
