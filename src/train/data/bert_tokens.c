#include "train/data/bert_tokens.h"

static uint32_t special_or_next(const rpi_tokenizer *tokenizer, rpi_special special,
                                uint32_t *vocabulary) {
    uint32_t id = 0;
    return rpi_tokenizer_special(tokenizer, special, &id) ? id : (*vocabulary)++;
}

rpi_bert_tokens rpi_bert_tokens_of(const rpi_tokenizer *tokenizer) {
    rpi_bert_tokens found = {.vocabulary = rpi_tokenizer_size(tokenizer)};
    found.cls = special_or_next(tokenizer, RPI_SPECIAL_CLS, &found.vocabulary);
    found.sep = special_or_next(tokenizer, RPI_SPECIAL_SEP, &found.vocabulary);
    found.mask = special_or_next(tokenizer, RPI_SPECIAL_MASK, &found.vocabulary);
    found.pad = special_or_next(tokenizer, RPI_SPECIAL_PAD, &found.vocabulary);
    return found;
}
