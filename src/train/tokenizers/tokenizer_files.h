/* tokenizer.json made of other files, or of nothing. */
#ifndef RPI_TRAIN_TOKENIZER_FILES_H
#define RPI_TRAIN_TOKENIZER_FILES_H

#include "train/tokenizers/json_read.h"
#include "train/tokenizers/vocabulary.h"

/* The text of GPT-2's kind of tokenizer.json: byte-level BPE with this vocabulary and these
 * merges, which it takes over, also on failure; `end` is its one special token, which the
 * vocabulary has, or NULL. By cJSON_free(). */
rp_status rpi_byte_level_json(cJSON *vocab, cJSON *merges, const char *end, char **out_json);
/* The same of BERT's kind, WordPiece. */
rp_status rpi_wordpiece_json(cJSON *vocab, bool lowercase, char **out_json);
/* [PAD], [UNK], [CLS], [SEP], [MASK]; NULL past the end. */
const char *rpi_bert_special(uint32_t index);
/* The same of whole words and marks; <|endoftext|> and [UNK] are special. */
rp_status rpi_word_level_json(cJSON *vocab, char **out_json);

/* {token: id}, to be given to one of these. */
cJSON *rpi_vocabulary_json(const rpi_vocabulary *vocabulary);

#endif
