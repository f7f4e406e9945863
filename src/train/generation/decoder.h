/* A language model that reads tokens and says what may follow: one text, whose keys and values
 * stay in caches, so that a token costs what it costs and not all before it once more. Of a
 * model with a memory it holds those of so many tokens, and a text has no end. */
#ifndef RPI_TRAIN_DECODER_H
#define RPI_TRAIN_DECODER_H

#include "engine/session.h"
#include "train/trained_model.h"

typedef struct rpi_decoder rpi_decoder;

typedef struct rpi_decoder_options {
    int64_t memory;      /* tokens that the text may have; 1 to the model's positions */
    const char *backend; /* NULL: the fastest */
    int threads;         /* 0: one a core */
    /* Whose weights are the model's, as they are when they are read, so that none are loaded;
     * borrowed, its backend and threads. NULL: none such. */
    rpi_session *session;
} rpi_decoder_options;

/* The longest text of a model (INT32_MAX: it remembers, and counts no places), and the tokens
 * that it knows. RP_INVALID: it is no language model. */
typedef struct rpi_decoder_facts {
    int64_t positions, vocabulary;
} rpi_decoder_facts;
rp_status rpi_decoder_examine(const rpi_trained_model *model, rpi_decoder_facts *out_facts);

/* The model may be closed afterwards. note: of rpi_trained_model_load(). */
rp_status rpi_decoder_open(const rpi_trained_model *model, const rpi_decoder_options *options,
                           rpi_decoder **out_decoder, char *note, size_t note_bytes);
void rpi_decoder_close(rpi_decoder *decoder); /* NULL is fine */

/* Compile now what reading `count` tokens at once needs, so that no call is slow for it. */
rp_status rpi_decoder_prepare(rpi_decoder *decoder, int64_t count);

/* The next tokens of the text, as many as memory is left for. *out_logits: one for each token
 * of the vocabulary, of what follows the last of them; valid until the next call. A long text
 * is read some tokens at a time. */
rp_status rpi_decoder_read(rpi_decoder *decoder, const int32_t *tokens, int64_t count,
                           const float **out_logits);

#endif
