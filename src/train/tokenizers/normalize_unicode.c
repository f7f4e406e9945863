/* Normalisation forms, lower case, accents: Unicode's, by utf8proc. */
#include "train/tokenizers/normalizers.h"

#include "train/tokenizers/utf8_text.h"

#include <stdlib.h>
#include <utf8proc.h>

static rp_status map(const char *text, size_t bytes, utf8proc_option_t options, rpi_text *out) {
    utf8proc_uint8_t *mapped = NULL;
    utf8proc_ssize_t count =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, &mapped, options);
    if (count == UTF8PROC_ERROR_NOMEM)
        return RP_FAIL(NOMEM, "no memory to normalise %zu bytes of text", bytes);
    if (count < 0) return RP_FAIL(CORRUPT, "a text: %s", utf8proc_errmsg(count));
    rp_status status = rpi_text_append(out, (const char *)mapped, (size_t)count);
    free(mapped);
    return status;
}

/* Most text is ASCII, which every form leaves as it is. */
static rp_status form(const char *text, size_t bytes, utf8proc_option_t options,
                      rpi_text *out) {
    size_t plain = 0;
    while (plain < bytes && !(text[plain] & 0x80)) plain++;
    if (plain == bytes) return rpi_text_append(out, text, bytes);
    return map(text, bytes, options | UTF8PROC_STABLE, out);
}

rp_status rpi_nfc_apply(const void *state, rpi_matcher *matcher, const char *text, size_t bytes,
                        rpi_text *out) {
    (void)state;
    (void)matcher;
    return form(text, bytes, UTF8PROC_COMPOSE, out);
}

rp_status rpi_nfd_apply(const void *state, rpi_matcher *matcher, const char *text, size_t bytes,
                        rpi_text *out) {
    (void)state;
    (void)matcher;
    return form(text, bytes, UTF8PROC_DECOMPOSE, out);
}

rp_status rpi_nfkc_apply(const void *state, rpi_matcher *matcher, const char *text,
                         size_t bytes, rpi_text *out) {
    (void)state;
    (void)matcher;
    return form(text, bytes, UTF8PROC_COMPOSE | UTF8PROC_COMPAT, out);
}

rp_status rpi_nfkd_apply(const void *state, rpi_matcher *matcher, const char *text,
                         size_t bytes, rpi_text *out) {
    (void)state;
    (void)matcher;
    return form(text, bytes, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, out);
}

/* The one character whose lower case is two, whatever the language. */
enum { DOTTED_CAPITAL_I = 0x130, DOT_ABOVE = 0x307 };

rp_status rpi_lowercase_apply(const void *state, rpi_matcher *matcher, const char *text,
                              size_t bytes, rpi_text *out) {
    (void)state;
    (void)matcher;
    size_t length;
    for (size_t i = 0; i < bytes; i += length) {
        int32_t code = rpi_utf8_read(text + i, &length);
        if (code == DOTTED_CAPITAL_I) {
            RP_TRY(rpi_text_append_code(out, 'i'));
            RP_TRY(rpi_text_append_code(out, DOT_ABOVE));
            continue;
        }
        if (code < 0x80)
            code = code >= 'A' && code <= 'Z' ? code + 32 : code;
        else
            code = utf8proc_tolower(code);
        RP_TRY(rpi_text_append_code(out, code));
    }
    return RP_OK;
}

rp_status rpi_strip_accents_apply(const void *state, rpi_matcher *matcher, const char *text,
                                  size_t bytes, rpi_text *out) {
    (void)state;
    (void)matcher;
    size_t length;
    for (size_t i = 0; i < bytes; i += length)
        if (!(rpi_utf8_class(rpi_utf8_read(text + i, &length)) & RPI_MARK))
            RP_TRY(rpi_text_append(out, text + i, length));
    return RP_OK;
}
