/* Writing tokens in nanoset's layout:
 *
 *     NAME.ds              the tokens of all documents, little-endian, 2 bytes each where the
 *                          vocabulary has fewer than 65,536, else 4
 *     NAME.ds.index        where each document ends, in tokens, 8 bytes each
 *     NAME.ds.metadata     tokenizer|bytes a token; the count; the count for people
 *     NAME.tokenizer.json  the tokenizer, unless it is bytes
 *     NAME.tokenizer_config.json  the token that ends a text: eos_token
 *
 * All are written aside and take their names together when everything is on the disk, the
 * metadata last: without them the rest is no data. */
#ifndef RPI_TRAIN_TOKEN_WRITER_H
#define RPI_TRAIN_TOKEN_WRITER_H

#include "train/tokenizers/tokenizer.h"

typedef struct rpi_token_writer rpi_token_writer;

/* RP_IO names the path that cannot be written. */
rp_status rpi_token_writer_open(const char *name, const rpi_tokenizer *tokenizer,
                                rpi_token_writer **out_writer);
/* A document: these tokens. RP_IO: the disk is full. */
rp_status rpi_token_writer_add(rpi_token_writer *writer, const uint32_t *ids, size_t count);
/* Everything takes its name, when `status` is RP_OK; else nothing is left. The writer is gone
 * either way. Returns `status`, or what failed. RP_INVALID: there are no documents. */
rp_status rpi_token_writer_close(rpi_token_writer *writer, rp_status status);

int64_t rpi_token_writer_tokens(const rpi_token_writer *writer);
int64_t rpi_token_writer_documents(const rpi_token_writer *writer);
int rpi_token_writer_token_bytes(const rpi_token_writer *writer);

#endif
