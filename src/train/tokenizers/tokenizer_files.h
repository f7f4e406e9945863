/* tokenizer.json made of other files, or of nothing. */
#ifndef RPI_TRAIN_TOKENIZER_FILES_H
#define RPI_TRAIN_TOKENIZER_FILES_H

#include "train/tokenizers/json_read.h"

/* The text of GPT-2's kind of tokenizer.json: byte-level BPE with this vocabulary and these
 * merges, which it takes over, also on failure; `end` is its one special token, which the
 * vocabulary has, or NULL. By cJSON_free(). */
rp_status rpi_byte_level_json(cJSON *vocab, cJSON *merges, const char *end, char **out_json);

#endif
