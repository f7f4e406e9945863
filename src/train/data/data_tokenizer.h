/* The tokenizer of the tokens that somebody learns from. */
#ifndef RPI_TRAIN_DATA_TOKENIZER_H
#define RPI_TRAIN_DATA_TOKENIZER_H

#include "train/tokenizers/tokenizer.h"

/* data: as redpoll train --data takes it ("tokens:PATH,...", "masked:PATH"). The tokenizer.json
 * beside the tokens, or the one that they name; of pairs and spans: the one that the text
 * names. RP_NOT_FOUND: these data have none, or are gone. */
rp_status rpi_data_tokenizer_open(const char *data, rpi_tokenizer **out_tokenizer);

#endif
