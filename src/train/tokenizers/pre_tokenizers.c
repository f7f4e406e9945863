/* The catalogue of pre-tokenizers and its kinds. */
#include "train/tokenizers/pipeline.h"

#include "train/tokenizers/byte_level.h"
#include "train/tokenizers/text_split.h"
#include "train/tokenizers/utf8_text.h"

#include <string.h>

/* ---- ByteLevel ---- */

typedef struct byte_level_state {
    bool prefix, words, raw;
} byte_level_state;

static rp_status byte_level_load(rpi_pipeline_memory *memory, const cJSON *json,
                                 void **out_state) {
    byte_level_state *state = NULL;
    RP_TRY(rpi_pipeline_state(memory, sizeof *state, &state));
    RP_TRY(rpi_json_flag(json, "add_prefix_space", true, &state->prefix));
    RP_TRY(rpi_json_flag(json, "use_regex", true, &state->words));
    *out_state = state;
    return RP_OK;
}

/* A new text for all pieces, each written by `write`. */
static rp_status byte_level_pieces(const byte_level_state *state, const rpi_pieces *in,
                                   rpi_text *room, rpi_pieces *out) {
    for (size_t i = 0; i < in->count; i++) {
        const char *text = in->text + in->at[i].start;
        size_t start = room->count;
        if (state->prefix && *text != ' ') RP_TRY(rpi_text_append(room, " ", 1));
        RP_TRY(rpi_text_append(room, text, in->at[i].bytes));
        RP_TRY(rpi_pieces_add(out, start, room->count - start));
    }
    out->text = room->at;
    return RP_OK;
}

static rp_status byte_level_cut(const byte_level_state *state, const rpi_pieces *in,
                                rpi_pieces *out) {
    for (size_t i = 0; i < in->count; i++)
        RP_TRY(state->words ? rpi_byte_level_words(in->at[i], out)
                            : rpi_pieces_add(out, in->at[i].start, in->at[i].bytes));
    return RP_OK;
}

static rp_status byte_level_write(const rpi_pieces *in, rpi_text *room, rpi_pieces *out) {
    for (size_t i = 0; i < in->count; i++) {
        size_t start = room->count;
        RP_TRY(rpi_byte_level_write(in->text + in->at[i].start, in->at[i].bytes, room));
        RP_TRY(rpi_pieces_add(out, start, room->count - start));
    }
    out->text = room->at;
    return RP_OK;
}

/* Raw, without a prefix: no copy. Else through pieces and a text of its own. */
static rp_status byte_level_apply(const void *data, rpi_pre_tokenizing *p) {
    const byte_level_state *state = data;
    if (state->raw && !state->prefix) return byte_level_cut(state, p->in, p->out);
    rpi_pieces prefixed = {0}, cut = {0};
    rpi_text text = {0};
    rpi_text *written = state->raw ? p->room : &text;
    rp_status status = byte_level_pieces(state, p->in, written, &prefixed);
    rpi_pieces *words = state->raw ? p->out : &cut;
    words->text = prefixed.text;
    if (status == RP_OK) status = byte_level_cut(state, &prefixed, words);
    if (status == RP_OK && !state->raw) status = byte_level_write(&cut, p->room, p->out);
    rpi_pieces_free(&prefixed);
    rpi_pieces_free(&cut);
    rpi_text_free(&text);
    return status;
}

/* ---- Metaspace ---- */

typedef enum metaspace_prefix { PREFIX_ALWAYS, PREFIX_FIRST, PREFIX_NEVER } metaspace_prefix;

typedef struct metaspace_state {
    const char *replacement;
    metaspace_prefix prefix;
    bool split;
    int32_t code; /* of the replacement */
} metaspace_state;

static rp_status metaspace_prefix_find(const cJSON *json, metaspace_prefix *out_prefix) {
    const char *scheme = NULL;
    bool add = true;
    RP_TRY(rpi_json_flag(json, "add_prefix_space", true, &add));
    RP_TRY(rpi_json_text(json, "prepend_scheme", add ? "always" : "never", &scheme));
    if (strcmp(scheme, "always") == 0)
        *out_prefix = PREFIX_ALWAYS;
    else if (strcmp(scheme, "first") == 0)
        *out_prefix = PREFIX_FIRST;
    else if (strcmp(scheme, "never") == 0)
        *out_prefix = PREFIX_NEVER;
    else
        return RP_FAIL(UNSUPPORTED, "prepend_scheme '%s'; there are always, first, never",
                       scheme);
    return RP_OK;
}

static rp_status metaspace_load(rpi_pipeline_memory *memory, const cJSON *json,
                                void **out_state) {
    metaspace_state *state = NULL;
    const char *replacement = NULL;
    size_t length;
    RP_TRY(rpi_pipeline_state(memory, sizeof *state, &state));
    RP_TRY(rpi_json_text(json, "replacement", "\xe2\x96\x81", &replacement));
    if (!*replacement) return RP_FAIL(CORRUPT, "'replacement' is empty");
    RP_TRY(rpi_pipeline_text(memory, replacement, &state->replacement));
    state->code = rpi_utf8_read(state->replacement, &length);
    if (state->replacement[length])
        return RP_FAIL(CORRUPT, "'replacement' is more than one character");
    RP_TRY(rpi_json_flag(json, "split", true, &state->split));
    RP_TRY(metaspace_prefix_find(json, &state->prefix));
    *out_state = state;
    return RP_OK;
}

static rp_status metaspace_write(const metaspace_state *state, const char *text, size_t bytes,
                                 bool first, rpi_text *room) {
    size_t length = strlen(state->replacement), at = 0;
    bool begins =
        *text == ' ' || (bytes >= length && memcmp(text, state->replacement, length) == 0);
    bool prefix = state->prefix == PREFIX_ALWAYS || (state->prefix == PREFIX_FIRST && first);
    if (prefix && !begins) RP_TRY(rpi_text_append(room, state->replacement, length));
    while (at < bytes) {
        const char *space = memchr(text + at, ' ', bytes - at);
        size_t plain = space ? (size_t)(space - text) - at : bytes - at;
        RP_TRY(rpi_text_append(room, text + at, plain));
        at += plain;
        if (!space) break;
        RP_TRY(rpi_text_append(room, state->replacement, length));
        at++;
    }
    return RP_OK;
}

static bool is_code(int32_t code, int32_t wanted) {
    return code == wanted;
}

static rp_status metaspace_apply(const void *data, rpi_pre_tokenizing *p) {
    const metaspace_state *state = data;
    rpi_pieces written = {0};
    rp_status status = RP_OK;
    for (size_t i = 0; i < p->in->count && status == RP_OK; i++) {
        rpi_text_piece piece = p->in->at[i];
        size_t start = p->room->count;
        status = metaspace_write(state, p->in->text + piece.start, piece.bytes,
                                 p->first && i == 0 && piece.start == 0, p->room);
        if (status == RP_OK)
            status =
                rpi_pieces_add(state->split ? &written : p->out, start, p->room->count - start);
    }
    p->out->text = p->room->at;
    rpi_pre_tokenizing inner = *p;
    inner.in = &written;
    if (status == RP_OK && state->split)
        status = rpi_split_at(&inner, is_code, state->code, RPI_SPLIT_MERGED_WITH_NEXT);
    rpi_pieces_free(&written);
    return status;
}

/* ---- Split, Digits, Punctuation, and those of white space ---- */

typedef struct split_state {
    rpi_pattern *pattern;
    rpi_split_behavior behavior;
    bool invert, gpt2;
} split_state;

static rp_status split_load(rpi_pipeline_memory *memory, const cJSON *json, void **out_state) {
    split_state *state = NULL;
    const char *behavior = NULL, *regex = NULL;
    RP_TRY(rpi_pipeline_state(memory, sizeof *state, &state));
    RP_TRY(rpi_pipeline_pattern(memory, json, "pattern", &state->pattern));
    RP_TRY(rpi_json_text(json, "behavior", NULL, &behavior));
    RP_TRY(rpi_split_behavior_find(behavior, &state->behavior));
    RP_TRY(rpi_json_flag(json, "invert", false, &state->invert));
    (void)rpi_json_text(cJSON_GetObjectItemCaseSensitive(json, "pattern"), "Regex", "", &regex);
    /* It leaves nothing between its matches: isolated, and removed in reverse, are the same. */
    state->gpt2 = strcmp(regex, RPI_GPT2_PATTERN) == 0 &&
                  (state->behavior == RPI_SPLIT_ISOLATED ||
                   (state->behavior == RPI_SPLIT_REMOVED && state->invert));
    *out_state = state;
    return RP_OK;
}

static rp_status split_apply(const void *data, rpi_pre_tokenizing *p) {
    const split_state *state = data;
    if (!state->gpt2)
        return rpi_split_at_pattern(p, state->pattern, state->invert, state->behavior);
    for (size_t i = 0; i < p->in->count; i++)
        RP_TRY(rpi_byte_level_words(p->in->at[i], p->out));
    return RP_OK;
}

static rp_status digits_load(rpi_pipeline_memory *memory, const cJSON *json, void **out_state) {
    bool *individual = NULL;
    RP_TRY(rpi_pipeline_state(memory, sizeof *individual, &individual));
    RP_TRY(rpi_json_flag(json, "individual_digits", false, individual));
    *out_state = individual;
    return RP_OK;
}

static rp_status digits_apply(const void *state, rpi_pre_tokenizing *p) {
    return rpi_split_at_classes(
        p, RPI_NUMBER, *(const bool *)state ? RPI_SPLIT_ISOLATED : RPI_SPLIT_CONTIGUOUS);
}

static bool is_punctuation(int32_t c, int32_t unused) {
    (void)unused;
    if (c < 0x80)
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
               (c >= '{' && c <= '~');
    return rpi_utf8_class(c) & RPI_PUNCTUATION;
}

static rp_status punctuation_load(rpi_pipeline_memory *memory, const cJSON *json,
                                  void **out_state) {
    rpi_split_behavior *behavior = NULL;
    const char *name = NULL;
    RP_TRY(rpi_pipeline_state(memory, sizeof *behavior, &behavior));
    RP_TRY(rpi_json_text(json, "behavior", "Isolated", &name));
    RP_TRY(rpi_split_behavior_find(name, behavior));
    *out_state = behavior;
    return RP_OK;
}

static rp_status punctuation_apply(const void *state, rpi_pre_tokenizing *p) {
    return rpi_split_at(p, is_punctuation, 0, *(const rpi_split_behavior *)state);
}

static rp_status whitespace_split_apply(const void *state, rpi_pre_tokenizing *p) {
    (void)state;
    return rpi_split_at_classes(p, RPI_SPACE, RPI_SPLIT_REMOVED);
}

static rp_status bert_apply(const void *state, rpi_pre_tokenizing *p) {
    (void)state;
    rpi_pieces words = {.text = p->in->text};
    rpi_pre_tokenizing inner = *p;
    inner.out = &words;
    rp_status status = whitespace_split_apply(NULL, &inner);
    inner.in = &words;
    inner.out = p->out;
    if (status == RP_OK) status = rpi_split_at(&inner, is_punctuation, 0, RPI_SPLIT_ISOLATED);
    rpi_pieces_free(&words);
    return status;
}

/* Runs of word characters, and runs of what is neither that nor white space. */
static rp_status whitespace_apply(const void *state, rpi_pre_tokenizing *p) {
    (void)state;
    rpi_pieces words = {.text = p->in->text};
    rpi_pre_tokenizing inner = *p;
    inner.out = &words;
    rp_status status = whitespace_split_apply(NULL, &inner);
    inner.in = &words;
    inner.out = p->out;
    if (status == RP_OK) status = rpi_split_at_classes(&inner, RPI_WORD, RPI_SPLIT_CONTIGUOUS);
    rpi_pieces_free(&words);
    return status;
}

static rp_status delimiter_load(rpi_pipeline_memory *memory, const cJSON *json,
                                void **out_state) {
    const char *delimiter = NULL;
    int32_t *code = NULL;
    size_t length;
    RP_TRY(rpi_json_text(json, "delimiter", "", &delimiter));
    if (!*delimiter) return RP_FAIL(CORRUPT, "'delimiter' is missing");
    RP_TRY(rpi_pipeline_state(memory, sizeof *code, &code));
    *code = rpi_utf8_read(delimiter, &length);
    *out_state = code;
    return RP_OK;
}

static rp_status delimiter_apply(const void *state, rpi_pre_tokenizing *p) {
    return rpi_split_at(p, is_code, *(const int32_t *)state, RPI_SPLIT_REMOVED);
}

/* ---- the catalogue ---- */

static const rpi_pre_tokenizer_kind byte_level = {{"ByteLevel", byte_level_load},
                                                  byte_level_apply};

static const rpi_pre_tokenizer_kind *const kinds[] = {
    &byte_level,
    &(rpi_pre_tokenizer_kind){{"Metaspace", metaspace_load}, metaspace_apply},
    &(rpi_pre_tokenizer_kind){{"Split", split_load}, split_apply},
    &(rpi_pre_tokenizer_kind){{"Digits", digits_load}, digits_apply},
    &(rpi_pre_tokenizer_kind){{"Punctuation", punctuation_load}, punctuation_apply},
    &(rpi_pre_tokenizer_kind){{"BertPreTokenizer", NULL}, bert_apply},
    &(rpi_pre_tokenizer_kind){{"Whitespace", NULL}, whitespace_apply},
    &(rpi_pre_tokenizer_kind){{"WhitespaceSplit", NULL}, whitespace_split_apply},
    &(rpi_pre_tokenizer_kind){{"CharDelimiterSplit", delimiter_load}, delimiter_apply},
};

static const rpi_text_step_kind *kind_at(int index) {
    return index < (int)(sizeof kinds / sizeof kinds[0]) ? &kinds[index]->base : NULL;
}

static const rpi_step_family family = {"pre_tokenizer", "pretokenizers", kind_at};

rp_status rpi_pre_tokenizers_load(rpi_pipeline_memory *memory, const cJSON *json,
                                  rpi_steps *steps) {
    return rpi_steps_load(memory, json, &family, steps);
}

bool rpi_pre_tokenizers_end_in_bytes(rpi_steps *steps) {
    if (steps->count == 0 || steps->at[steps->count - 1].kind != &byte_level) return false;
    /* The state is still ours to complete: nobody encodes yet. */
    ((byte_level_state *)(uintptr_t)steps->at[steps->count - 1].state)->raw = true;
    return true;
}
