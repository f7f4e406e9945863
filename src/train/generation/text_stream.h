/* Tokens to text as they come, never half a character: a piece is given out when the tokens
 * that make it are all there. */
#ifndef RPI_TRAIN_TEXT_STREAM_H
#define RPI_TRAIN_TEXT_STREAM_H

#include "train/tokenizers/tokenizer.h"

typedef rp_status (*rpi_text_taker)(void *context, const char *text, size_t bytes);

typedef struct rpi_text_stream {
    rpi_encoder *encoder; /* borrowed */
    rpi_text_taker take;  /* of valid UTF-8 */
    void *context;
    rpi_ids ids;
    size_t before; /* where decoding begins: some tokens back, as texts depend on them */
    size_t closed; /* tokens that ended with whole characters, all of them given out */
    size_t given;  /* bytes of the text from `before` on that were given out */
    rpi_text text, repaired;
} rpi_text_stream;

/* Behind tokens that are known: those of a prompt. */
rp_status rpi_text_stream_begin(rpi_text_stream *stream, const uint32_t *ids, size_t count);
rp_status rpi_text_stream_add(rpi_text_stream *stream, uint32_t id);
/* What was held back, with U+FFFD for what is no character. */
rp_status rpi_text_stream_end(rpi_text_stream *stream);
void rpi_text_stream_free(rpi_text_stream *stream);

#endif
