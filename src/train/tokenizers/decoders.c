/* The catalogue of decoders and its kinds: each turns a list of tokens into another. */
#include "train/tokenizers/normalizers.h"

#include "train/tokenizers/byte_level.h"
#include "train/tokenizers/utf8_text.h"

#include <stdlib.h>
#include <string.h>

rp_status rpi_decoding_end(rpi_decoding *d, size_t start) {
    /* Empty ones stay: others count tokens. */
    if (d->out->count == d->out->capacity) RP_TRY(rpi_pieces_grow(d->out));
    d->out->at[d->out->count++] =
        (rpi_text_piece){(uint32_t)start, (uint32_t)(d->room->count - start)};
    d->out->text = d->room->at;
    return RP_OK;
}

/* ---- ByteLevel: all tokens are one text ---- */

static rp_status byte_level_apply(const void *state, rpi_decoding *d) {
    (void)state;
    for (size_t i = 0; i < d->in->count; i++)
        RP_TRY(
            rpi_byte_level_read(d->in->text + d->in->at[i].start, d->in->at[i].bytes, d->room));
    return rpi_decoding_end(d, 0);
}

static rp_status fuse_apply(const void *state, rpi_decoding *d) {
    (void)state;
    for (size_t i = 0; i < d->in->count; i++)
        RP_TRY(rpi_text_append(d->room, d->in->text + d->in->at[i].start, d->in->at[i].bytes));
    return rpi_decoding_end(d, 0);
}

/* ---- WordPiece ---- */

typedef struct wordpiece_state {
    const char *prefix;
    bool cleanup;
} wordpiece_state;

static rp_status wordpiece_load(rpi_pipeline_memory *memory, const cJSON *json,
                                void **out_state) {
    wordpiece_state *state = NULL;
    const char *prefix = NULL;
    RP_TRY(rpi_pipeline_state(memory, sizeof *state, &state));
    RP_TRY(rpi_json_text(json, "prefix", "##", &prefix));
    RP_TRY(rpi_pipeline_text(memory, prefix, &state->prefix));
    RP_TRY(rpi_json_flag(json, "cleanup", true, &state->cleanup));
    *out_state = state;
    return RP_OK;
}

static const struct {
    const char *from, *to;
} untidy[] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
              {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
              {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

/* In place: no replacement is longer than what it replaces. */
static size_t replace_all(char *text, size_t bytes, const char *from, const char *to) {
    size_t kept = 0, from_bytes = strlen(from), to_bytes = strlen(to);
    for (size_t i = 0; i < bytes;) {
        if (bytes - i >= from_bytes && memcmp(text + i, from, from_bytes) == 0) {
            memcpy(text + kept, to, to_bytes);
            kept += to_bytes;
            i += from_bytes;
        } else {
            text[kept++] = text[i++];
        }
    }
    return kept;
}

static rp_status wordpiece_apply(const void *data, rpi_decoding *d) {
    const wordpiece_state *state = data;
    size_t prefix = strlen(state->prefix);
    for (size_t i = 0; i < d->in->count; i++) {
        const char *token = d->in->text + d->in->at[i].start;
        size_t bytes = d->in->at[i].bytes, start = d->room->count;
        bool goes_on = i && bytes >= prefix && memcmp(token, state->prefix, prefix) == 0;
        if (i && !goes_on) RP_TRY(rpi_text_append(d->room, " ", 1));
        size_t skipped = goes_on ? prefix : 0;
        RP_TRY(rpi_text_append(d->room, token + skipped, bytes - skipped));
        size_t left = d->room->count - start;
        for (size_t u = 0; state->cleanup && u < sizeof untidy / sizeof untidy[0]; u++)
            left = replace_all(d->room->at + start, left, untidy[u].from, untidy[u].to);
        d->room->count = start + left;
        RP_TRY(rpi_decoding_end(d, start));
    }
    return RP_OK;
}

/* ---- Metaspace ---- */

typedef struct metaspace_state {
    const char *replacement;
    bool keeps_first;
} metaspace_state;

static rp_status metaspace_load(rpi_pipeline_memory *memory, const cJSON *json,
                                void **out_state) {
    metaspace_state *state = NULL;
    const char *replacement = NULL, *scheme = NULL;
    bool add = true;
    RP_TRY(rpi_pipeline_state(memory, sizeof *state, &state));
    RP_TRY(rpi_json_text(json, "replacement", "\xe2\x96\x81", &replacement));
    if (!*replacement) return RP_FAIL(CORRUPT, "'replacement' is empty");
    RP_TRY(rpi_pipeline_text(memory, replacement, &state->replacement));
    RP_TRY(rpi_json_flag(json, "add_prefix_space", true, &add));
    RP_TRY(rpi_json_text(json, "prepend_scheme", add ? "always" : "never", &scheme));
    state->keeps_first = strcmp(scheme, "never") == 0;
    *out_state = state;
    return RP_OK;
}

static rp_status metaspace_apply(const void *data, rpi_decoding *d) {
    const metaspace_state *state = data;
    size_t length = strlen(state->replacement);
    for (size_t i = 0; i < d->in->count; i++) {
        const char *token = d->in->text + d->in->at[i].start;
        size_t bytes = d->in->at[i].bytes, start = d->room->count;
        for (size_t b = 0; b < bytes;) {
            bool space = bytes - b >= length && !memcmp(token + b, state->replacement, length);
            if (!space)
                RP_TRY(rpi_text_append(d->room, token + b, 1));
            else if (i || state->keeps_first)
                RP_TRY(rpi_text_append(d->room, " ", 1));
            b += space ? length : 1;
        }
        RP_TRY(rpi_decoding_end(d, start));
    }
    return RP_OK;
}

/* ---- Replace, Strip ---- */

static rp_status replace_apply(const void *state, rpi_decoding *d) {
    for (size_t i = 0; i < d->in->count; i++) {
        size_t start = d->room->count;
        RP_TRY(rpi_replace_apply(state, d->matcher, d->in->text + d->in->at[i].start,
                                 d->in->at[i].bytes, d->room));
        RP_TRY(rpi_decoding_end(d, start));
    }
    return RP_OK;
}

typedef struct strip_state {
    const char *content;
    double start, stop; /* at most so many on each side */
} strip_state;

static rp_status strip_load(rpi_pipeline_memory *memory, const cJSON *json, void **out_state) {
    strip_state *state = NULL;
    const char *content = NULL;
    RP_TRY(rpi_pipeline_state(memory, sizeof *state, &state));
    RP_TRY(rpi_json_text(json, "content", " ", &content));
    if (!*content) return RP_FAIL(CORRUPT, "'content' is empty");
    RP_TRY(rpi_pipeline_text(memory, content, &state->content));
    RP_TRY(rpi_json_number(json, "start", 0, &state->start));
    RP_TRY(rpi_json_number(json, "stop", 0, &state->stop));
    *out_state = state;
    return RP_OK;
}

static rp_status strip_apply(const void *data, rpi_decoding *d) {
    const strip_state *state = data;
    size_t length = strlen(state->content);
    for (size_t i = 0; i < d->in->count; i++) {
        const char *token = d->in->text + d->in->at[i].start;
        size_t from = 0, to = d->in->at[i].bytes, start = d->room->count;
        for (int n = 0; n < state->start && to - from >= length &&
                        !memcmp(token + from, state->content, length);
             n++)
            from += length;
        for (int n = 0; n < state->stop && to - from >= length &&
                        !memcmp(token + to - length, state->content, length);
             n++)
            to -= length;
        RP_TRY(rpi_text_append(d->room, token + from, to - from));
        RP_TRY(rpi_decoding_end(d, start));
    }
    return RP_OK;
}

/* ---- ByteFallback: <0x41> is a byte ---- */

static int byte_of(const char *token, size_t bytes) {
    if (bytes != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>') return -1;
    char digits[3] = {token[3], token[4], 0}, *end;
    long byte = strtol(digits, &end, 16);
    return *end || digits[0] == '-' || digits[0] == '+' || digits[0] == ' ' ? -1 : (int)byte;
}

/* Bytes that are no text together are each a U+FFFD. */
static rp_status end_bytes(rpi_decoding *d, size_t start) {
    size_t count = d->room->count - start;
    if (count == 0) return RP_OK;
    if (rpi_utf8_valid(d->room->at + start, count) == count) return rpi_decoding_end(d, start);
    d->room->count = start;
    for (size_t i = 0; i < count; i++) RP_TRY(rpi_text_append_code(d->room, 0xfffd));
    return rpi_decoding_end(d, start);
}

static rp_status byte_fallback_apply(const void *state, rpi_decoding *d) {
    (void)state;
    size_t start = d->room->count;
    for (size_t i = 0; i < d->in->count; i++) {
        const char *token = d->in->text + d->in->at[i].start;
        int byte = byte_of(token, d->in->at[i].bytes);
        char raw = (char)byte;
        if (byte >= 0) {
            RP_TRY(rpi_text_append(d->room, &raw, 1));
            continue;
        }
        RP_TRY(end_bytes(d, start));
        start = d->room->count;
        RP_TRY(rpi_text_append(d->room, token, d->in->at[i].bytes));
        RP_TRY(rpi_decoding_end(d, start));
        start = d->room->count;
    }
    RP_TRY(end_bytes(d, start));
    d->out->text = d->room->at;
    return RP_OK;
}

/* ---- the catalogue ---- */

static const rpi_decoder_kind kinds[] = {
    {{"ByteLevel", NULL}, byte_level_apply},
    {{"WordPiece", wordpiece_load}, wordpiece_apply},
    {{"Metaspace", metaspace_load}, metaspace_apply},
    {{"Replace", rpi_replace_load}, replace_apply},
    {{"ByteFallback", NULL}, byte_fallback_apply},
    {{"Fuse", NULL}, fuse_apply},
    {{"Strip", strip_load}, strip_apply},
};

static const rpi_text_step_kind *kind_at(int index) {
    return index < (int)(sizeof kinds / sizeof kinds[0]) ? &kinds[index].base : NULL;
}

static const rpi_step_family family = {"decoder", "decoders", kind_at};

rp_status rpi_decoders_load(rpi_pipeline_memory *memory, const cJSON *json, rpi_steps *steps) {
    return rpi_steps_load(memory, json, &family, steps);
}
