/* A text that goes on: a prompt, and tokens that a language model chooses behind it. */
#ifndef RPI_TRAIN_GENERATE_H
#define RPI_TRAIN_GENERATE_H

#include "engine/session.h"
#include "train/generation/text_stream.h"
#include "train/generation/token_choice.h"
#include "train/models/model.h"

typedef struct rpi_generate_options {
    const char *model; /* "hf:FOLDER", or the folder of a run */
    /* Instead of that, a model in training: its text, its session, and the data that it learns
     * from; NULL: none such. */
    const char *text, *data;
    rpi_session *session;
    const char *tokenizer; /* as of rpi_tokenizer_open(); NULL: that of the folder, or of the
                              run's data */
    const char *prompt;
    size_t prompt_bytes;
    int64_t most;   /* new tokens, 1 or more */
    int64_t memory; /* tokens that a model with a memory remembers; 0: its own */
    rpi_token_choice choice;
    bool ignores_end;    /* goes on behind the end of a text */
    const char *backend; /* NULL: the fastest */
    int threads;         /* 0: one a core */

    /* The new text as it comes, whole characters of UTF-8; on_begin (optional) when the model
     * is ready, so that errors come before the prompt is shown. A failure ends it. */
    rp_status (*on_begin)(void *context);
    rpi_text_taker on_text;
    void *context;
} rpi_generate_options;

typedef enum rpi_generate_stop {
    RPI_STOP_END,       /* the model ended the text */
    RPI_STOP_MOST,      /* as many tokens as were asked for */
    RPI_STOP_POSITIONS, /* the model knows no further places */
} rpi_generate_stop;

typedef struct rpi_generated {
    char model[RPI_MODEL_TEXT];
    int64_t prompt_tokens, positions;
    rpi_ids tokens; /* the new ones, without the end's; free with rpi_ids_free() */
    rpi_generate_stop stop;
    double prompt_s, tokens_s; /* reading the prompt; choosing and reading the tokens */
    char note[4096];           /* what the user may not expect; "" for nothing */
} rpi_generated;

/* RP_INVALID: a mistake of usage, a model that is none of language, a prompt without tokens or
 * with more than the model has positions, a tokenizer that is not the model's. RP_NOT_FOUND: no
 * such model, or no tokenizer. */
rp_status rpi_generate(const rpi_generate_options *options, rpi_generated *out_generated);
/* Could it? The same errors, without reading the model's weights. */
rp_status rpi_generate_check(const rpi_generate_options *options);

#endif
