/* WordPiece and WordLevel: a word is cut into the longest pieces that the vocabulary has, from
 * its start; a word that cannot be cut so is one unknown token.
 *
 * Source: Schuster, Nakajima, "Japanese and Korean voice search", ICASSP 2012, as BERT has it.
 */
#include "train/tokenizers/pipeline.h"

#include "train/tokenizers/utf8_text.h"

#include <string.h>

typedef struct wordpiece {
    rpi_text prefix; /* of pieces that do not begin a word */
    double most;     /* characters; longer words are unknown */
    uint32_t unknown;
} wordpiece;

static void destroy(void *data) {
    wordpiece *state = data;
    if (state) rpi_text_free(&state->prefix);
    rpi_free(state);
}

static rp_status load_members(const cJSON *json, rpi_vocabulary *vocabulary, wordpiece *state) {
    const char *prefix = NULL;
    bool has;
    RP_TRY(rpi_vocabulary_load(json, vocabulary));
    RP_TRY(rpi_vocabulary_named(json, "unk_token", vocabulary, &has, &state->unknown));
    if (!has) return RP_FAIL(CORRUPT, "'unk_token' is missing");
    RP_TRY(rpi_json_text(json, "continuing_subword_prefix", "##", &prefix));
    RP_TRY(rpi_text_append(&state->prefix, prefix, strlen(prefix)));
    return rpi_json_number(json, "max_input_chars_per_word", 100, &state->most);
}

static rp_status load(const cJSON *json, rpi_vocabulary *vocabulary, void **out_state) {
    wordpiece *state = NULL;
    RP_TRY(rpi_alloc(sizeof *state, "a WordPiece model", &state));
    rp_status status = load_members(json, vocabulary, state);
    if (status == RP_OK)
        *out_state = state;
    else
        destroy(state);
    return status;
}

static double characters(const char *text, size_t bytes) {
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) count += (text[i] & 0xc0) != 0x80;
    return (double)count;
}

/* The longest piece at the start of `word`, in `space` behind the prefix; 0 bytes: none. */
static size_t longest(const rpi_vocabulary *vocabulary, const char *text, size_t before,
                      size_t bytes, uint32_t *out_id) {
    while (bytes > 0) {
        if (rpi_vocabulary_find(vocabulary, text, before + bytes, out_id)) return bytes;
        do bytes--;
        while (bytes > 0 && (text[before + bytes] & 0xc0) == 0x80);
    }
    return 0;
}

static rp_status encode(const void *data, const rpi_vocabulary *vocabulary, void *space,
                        const char *piece, size_t bytes, rpi_ids *out) {
    const wordpiece *state = data;
    rpi_text *word = space;
    size_t first = out->count, prefix = state->prefix.count;
    if (characters(piece, bytes) > state->most) return rpi_ids_add(out, state->unknown);
    for (size_t at = 0; at < bytes;) {
        size_t before = at ? prefix : 0;
        uint32_t id = 0;
        word->count = 0;
        RP_TRY(rpi_text_append(word, state->prefix.at, before));
        RP_TRY(rpi_text_append(word, piece + at, bytes - at));
        size_t length = longest(vocabulary, word->at, before, bytes - at, &id);
        if (length == 0) {
            out->count = first;
            return rpi_ids_add(out, state->unknown);
        }
        RP_TRY(rpi_ids_add(out, id));
        at += length;
    }
    return RP_OK;
}

static void space_free(void *space) {
    rpi_text_free(space);
}

const rpi_text_model_kind rpi_text_model_wordpiece = {
    .type = "WordPiece",
    .load = load,
    .destroy = destroy,
    .space_bytes = sizeof(rpi_text),
    .space_free = space_free,
    .encode = encode,
};

/* ---- WordLevel: whole pieces or unknown ---- */

static rp_status word_level_load(const cJSON *json, rpi_vocabulary *vocabulary,
                                 void **out_state) {
    uint32_t *unknown = NULL, id = 0;
    bool has;
    RP_TRY(rpi_vocabulary_load(json, vocabulary));
    RP_TRY(rpi_vocabulary_named(json, "unk_token", vocabulary, &has, &id));
    if (!has) return RP_FAIL(CORRUPT, "'unk_token' is missing");
    RP_TRY(rpi_alloc(sizeof *unknown, "a WordLevel model", &unknown));
    *unknown = id;
    *out_state = unknown;
    return RP_OK;
}

static void word_level_destroy(void *state) {
    rpi_free(state);
}

static rp_status word_level_encode(const void *state, const rpi_vocabulary *vocabulary,
                                   void *space, const char *piece, size_t bytes, rpi_ids *out) {
    (void)space;
    uint32_t id = *(const uint32_t *)state;
    (void)rpi_vocabulary_find(vocabulary, piece, bytes, &id);
    return rpi_ids_add(out, id);
}

const rpi_text_model_kind rpi_text_model_word_level = {
    .type = "WordLevel",
    .load = word_level_load,
    .destroy = word_level_destroy,
    .encode = word_level_encode,
};
