/* Which part of a text each of its tokens stands for. */
#ifndef RPI_TRAIN_TOKEN_PLACES_H
#define RPI_TRAIN_TOKEN_PLACES_H

#include "train/tokenizers/tokenizer.h"

/* Append the ids of a text as rpi_encode() with RPI_ENCODE_PLAIN_SPECIAL makes them, and to
 * `places` the bytes of the text that each stands for: whole characters (of byte: bytes). What
 * the normalizers drop lies in no token or behind the last character of one; an unknown token
 * is a whole word. For the tokenizers WordPiece and byte whose normalizers look at one
 * character at a time, as BERT's: others are RP_UNSUPPORTED. RP_CORRUPT: the text is no UTF-8.
 * After a failure the lists are as before. */
rp_status rpi_encode_with_places(rpi_encoder *encoder, const char *text, size_t bytes,
                                 rpi_ids *ids, rpi_pieces *places);

/* RP_UNSUPPORTED: not for this tokenizer. */
rp_status rpi_token_places_check(const rpi_tokenizer *tokenizer);

#endif
