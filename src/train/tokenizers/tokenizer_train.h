/* Training a tokenizer on texts of one's own.
 *
 * The same documents give the same tokenizer on every machine, in any order. A kind is a file
 * and a row in tokenizer_train.c. */
#ifndef RPI_TRAIN_TOKENIZER_TRAIN_H
#define RPI_TRAIN_TOKENIZER_TRAIN_H

#include "train/tokenizers/word_counts.h"

/* How a training is told to stop: asked now and then; true is RP_CANCELLED. */
typedef struct rpi_training_stop {
    bool (*stops)(void *context); /* NULL: never */
    void *context;
} rpi_training_stop;

typedef struct rpi_tokenizer_training {
    const char *name; /* behind "train:" */
    const char *help;
    uint32_t least; /* tokens that it has in any case */
    /* The tokenizer.json whose normalizer and pre-tokenizer cut the words; NULL: GPT-2's. */
    rp_status (*make_cutter)(char **out_json);
    /* A tokenizer.json with `size` tokens, fewer where the words give no more. */
    rp_status (*train)(const rpi_word_counts *words, uint32_t size, rpi_training_stop stop,
                       char **out_json);
} rpi_tokenizer_training;

/* The catalogue; NULL past the end. */
const rpi_tokenizer_training *rpi_tokenizer_training_at(int index);
/* Of "bpe=8192". RP_INVALID says what there is. */
rp_status rpi_tokenizer_training_parse(const char *text,
                                       const rpi_tokenizer_training **out_kind,
                                       uint32_t *out_size);

typedef struct rpi_tokenizer_trainer rpi_tokenizer_trainer;

rp_status rpi_tokenizer_trainer_create(const rpi_tokenizer_training *kind,
                                       rpi_tokenizer_trainer **out_trainer);
void rpi_tokenizer_trainer_destroy(rpi_tokenizer_trainer *trainer); /* NULL is fine */
/* rpi_word_counts_add() */
rp_status rpi_tokenizer_trainer_add(rpi_tokenizer_trainer *trainer, const char *text,
                                    size_t bytes);
/* The text of a tokenizer.json, by cJSON_free(). RP_INVALID: `size` is below what the kind, or
 * the characters of these texts, need, or above RPI_TOKENS_MOST. */
rp_status rpi_tokenizer_trainer_finish(rpi_tokenizer_trainer *trainer, uint32_t size,
                                       rpi_training_stop stop, char **out_json);

#endif
