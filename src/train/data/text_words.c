#include "train/data/text_words.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

typedef struct reader {
    const char *kind, *usage;
    rpi_text_word_taker take;
    void *own;
    rpi_text_words *words;
} reader;

/* `word` as the user wrote it, in an error. */
static rp_status take_word(const reader *r, const char *word) {
    char name[64];
    const char *equals = strchr(word, '=');
    bool taken = false;
    if (equals && (size_t)(equals - word) < sizeof name) {
        snprintf(name, sizeof name, "%.*s", (int)(equals - word), word);
        const char *value = equals + 1;
        if (strcmp(name, "validation") == 0)
            return rpi_token_data_validation(value, &r->words->files);
        taken = strcmp(name, "tokenizer") == 0;
        if (taken)
            snprintf(r->words->tokenizer, sizeof r->words->tokenizer, "%s", value);
        else if (r->take)
            RP_TRY(r->take(name, value, r->own, &taken));
    }
    if (taken) return RP_OK;
    return RP_FAIL(INVALID, "'%s' is no option of %s; %s", word, r->kind, r->usage);
}

rp_status rpi_text_words_parse(const char *data, const char *kind, const char *usage,
                               rpi_text_word_taker take, void *own, rpi_text_words *out) {
    char text[RPI_PATH_BYTES];
    const reader r = {kind, usage, take, own, out};
    *out = (rpi_text_words){.files = {.share = RPI_TOKEN_DATA_SHARE}};
    snprintf(out->files.kind, sizeof out->files.kind, "%s", kind);
    const char *colon = strchr(data, ':');
    if (snprintf(text, sizeof text, "%s", colon ? colon + 1 : "") >= RPI_PATH_BYTES)
        return RP_FAIL(INVALID, "the text of the data is too long");
    char *rest = text, *path = strsep(&rest, ",");
    snprintf(out->files.train, sizeof out->files.train, "%s", path);
    for (char *word; (word = strsep(&rest, ","));) RP_TRY(take_word(&r, word));
    if (!*path) return RP_FAIL(INVALID, "no file is named; %s", usage);
    if (out->tokenizer[0]) return RP_OK;
    return RP_FAIL(INVALID, "which tokenizer? %s", usage);
}
