/* The catalogue of normalizers, and those that only replace and strip. */
#include "train/tokenizers/normalizers.h"

#include "train/tokenizers/byte_level.h"
#include "train/tokenizers/utf8_text.h"

#include <string.h>

/* ---- Replace, Prepend, Strip, ByteLevel ---- */

typedef struct replace_state {
    rpi_pattern *pattern;
    const char *content;
} replace_state;

rp_status rpi_replace_load(rpi_pipeline_memory *memory, const cJSON *json, void **out_state) {
    replace_state *state = NULL;
    const char *content = NULL;
    RP_TRY(rpi_pipeline_state(memory, sizeof *state, &state));
    RP_TRY(rpi_pipeline_pattern(memory, json, "pattern", &state->pattern));
    RP_TRY(rpi_json_text(json, "content", "", &content));
    RP_TRY(rpi_pipeline_text(memory, content, &state->content));
    *out_state = state;
    return RP_OK;
}

rp_status rpi_replace_apply(const void *data, rpi_matcher *matcher, const char *text,
                            size_t bytes, rpi_text *out) {
    const replace_state *state = data;
    size_t at = 0, length = strlen(state->content), start, end;
    for (;;) {
        bool found;
        RP_TRY(
            rpi_pattern_next(state->pattern, matcher, text, bytes, at, &found, &start, &end));
        if (!found) break;
        RP_TRY(rpi_text_append(out, text + at, start - at));
        RP_TRY(rpi_text_append(out, state->content, length));
        at = end;
    }
    return rpi_text_append(out, text + at, bytes - at);
}

static rp_status prepend_load(rpi_pipeline_memory *memory, const cJSON *json,
                              void **out_state) {
    const char *text = NULL, *copy = NULL;
    RP_TRY(rpi_json_text(json, "prepend", "", &text));
    RP_TRY(rpi_pipeline_text(memory, text, &copy));
    *out_state = (void *)(uintptr_t)copy;
    return RP_OK;
}

static rp_status prepend_apply(const void *state, rpi_matcher *matcher, const char *text,
                               size_t bytes, rpi_text *out) {
    (void)matcher;
    if (bytes) RP_TRY(rpi_text_append(out, state, strlen(state)));
    return rpi_text_append(out, text, bytes);
}

typedef struct strip_state {
    bool left, right;
} strip_state;

static rp_status strip_load(rpi_pipeline_memory *memory, const cJSON *json, void **out_state) {
    strip_state *state = NULL;
    RP_TRY(rpi_pipeline_state(memory, sizeof *state, &state));
    RP_TRY(rpi_json_flag(json, "strip_left", true, &state->left));
    RP_TRY(rpi_json_flag(json, "strip_right", true, &state->right));
    *out_state = state;
    return RP_OK;
}

static rp_status strip_apply(const void *data, rpi_matcher *matcher, const char *text,
                             size_t bytes, rpi_text *out) {
    (void)matcher;
    const strip_state *state = data;
    size_t start = 0, end = 0, length;
    for (size_t i = 0; i < bytes; i += length)
        if (!(rpi_utf8_class(rpi_utf8_read(text + i, &length)) & RPI_SPACE)) end = i + length;
    if (!state->right) end = bytes;
    while (state->left && start < end &&
           rpi_utf8_class(rpi_utf8_read(text + start, &length)) & RPI_SPACE)
        start += length;
    return rpi_text_append(out, text + start, end - start);
}

static rp_status byte_level_apply(const void *state, rpi_matcher *matcher, const char *text,
                                  size_t bytes, rpi_text *out) {
    (void)state;
    (void)matcher;
    return rpi_byte_level_write(text, bytes, out);
}

/* ---- the catalogue ---- */

static const rpi_normalizer_kind kinds[] = {
    {{"NFC", NULL}, rpi_nfc_apply},
    {{"NFD", NULL}, rpi_nfd_apply},
    {{"NFKC", NULL}, rpi_nfkc_apply},
    {{"NFKD", NULL}, rpi_nfkd_apply},
    {{"Lowercase", NULL}, rpi_lowercase_apply},
    {{"StripAccents", NULL}, rpi_strip_accents_apply},
    {{"BertNormalizer", rpi_bert_normalizer_load}, rpi_bert_normalizer_apply},
    {{"Replace", rpi_replace_load}, rpi_replace_apply},
    {{"Prepend", prepend_load}, prepend_apply},
    {{"Strip", strip_load}, strip_apply},
    {{"ByteLevel", NULL}, byte_level_apply},
};

static const rpi_text_step_kind *kind_at(int index) {
    return index < (int)(sizeof kinds / sizeof kinds[0]) ? &kinds[index].base : NULL;
}

static const rpi_step_family family = {"normalizer", "normalizers", kind_at};

rp_status rpi_normalizers_load(rpi_pipeline_memory *memory, const cJSON *json,
                               rpi_steps *steps) {
    return rpi_steps_load(memory, json, &family, steps);
}
