/* BertNormalizer: control characters out, white space to ' ', Chinese characters apart, accents
 * off, lower case; each can be switched off. */
#include "train/tokenizers/normalizers.h"

#include "train/tokenizers/utf8_text.h"

typedef struct bert_state {
    bool clean, chinese, accents, lowercase;
} bert_state;

rp_status rpi_bert_normalizer_load(rpi_pipeline_memory *memory, const cJSON *json,
                                   void **out_state) {
    bert_state *state = NULL;
    RP_TRY(rpi_pipeline_state(memory, sizeof *state, &state));
    RP_TRY(rpi_json_flag(json, "clean_text", true, &state->clean));
    RP_TRY(rpi_json_flag(json, "handle_chinese_chars", true, &state->chinese));
    RP_TRY(rpi_json_flag(json, "lowercase", true, &state->lowercase));
    /* As the original: where lower case is wanted, when nothing is said. */
    RP_TRY(rpi_json_flag(json, "strip_accents", state->lowercase, &state->accents));
    *out_state = state;
    return RP_OK;
}

/* The blocks that the original lists; Hangul, Hiragana and Katakana are words as elsewhere. */
static bool is_chinese(int32_t c) {
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

static rp_status clean(const bert_state *state, const char *text, size_t bytes, rpi_text *out) {
    size_t length;
    for (size_t i = 0; i < bytes; i += length) {
        int32_t code = rpi_utf8_read(text + i, &length);
        unsigned bits = rpi_utf8_class(code);
        bool apart = state->chinese && is_chinese(code);
        bool line = code == '\t' || code == '\n' || code == '\r';
        if (state->clean && !line && (code == 0xfffd || bits & RPI_OTHER)) continue;
        if (state->clean && bits & RPI_SPACE) code = ' ';
        if (apart) RP_TRY(rpi_text_append_code(out, ' '));
        RP_TRY(rpi_text_append_code(out, code));
        if (apart) RP_TRY(rpi_text_append_code(out, ' '));
    }
    return RP_OK;
}

static rp_status strip(const char *text, size_t bytes, rpi_text *out) {
    size_t length;
    for (size_t i = 0; i < bytes; i += length)
        if (!(rpi_utf8_class(rpi_utf8_read(text + i, &length)) & RPI_NONSPACING))
            RP_TRY(rpi_text_append(out, text + i, length));
    return RP_OK;
}

static rp_status finish(const bert_state *state, rpi_text *a, rpi_text *b, rpi_text *out) {
    if (state->accents) {
        RP_TRY(rpi_nfd_apply(NULL, NULL, a->at, a->count, b));
        a->count = 0;
        RP_TRY(strip(b->at, b->count, a));
    }
    if (state->lowercase) return rpi_lowercase_apply(NULL, NULL, a->at, a->count, out);
    return rpi_text_append(out, a->at, a->count);
}

rp_status rpi_bert_normalizer_apply(const void *data, rpi_matcher *matcher, const char *text,
                                    size_t bytes, rpi_text *out) {
    (void)matcher;
    const bert_state *state = data;
    rpi_text a = {0}, b = {0};
    rp_status status = clean(state, text, bytes, &a);
    if (status == RP_OK) status = finish(state, &a, &b, out);
    rpi_text_free(&a);
    rpi_text_free(&b);
    return status;
}
