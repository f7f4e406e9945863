/* Tokenizers by name. A new one is a row in tokenizers.c. */
#ifndef RPI_TRAIN_TOKENIZERS_H
#define RPI_TRAIN_TOKENIZERS_H

#include "base/status.h"

typedef struct rpi_tokenizer_source {
    const char *name, *summary;
    const char *files; /* that a folder must hold, in words; NULL: needs none */
    /* The text of a tokenizer.json from a folder that has none, by cJSON_free(); NULL: only
     * tokenizer.json is read. */
    rp_status (*make_json)(const char *folder, char **out_json);
} rpi_tokenizer_source;

/* NULL past the end. */
const rpi_tokenizer_source *rpi_tokenizer_source_at(int index);

rp_status rpi_gpt2_json(const char *folder, char **out_json);
rp_status rpi_bert_json(const char *folder, char **out_json);

#endif
