#include "train/tokenizers/pattern.h"

#include "base/memory.h"
#include "train/tokenizers/text_buffer.h"

#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

struct rpi_pattern {
    pcre2_code *code;
    char *text;
};

struct rpi_matcher {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

enum { STACK_LEAST = 32 << 10, STACK_MOST = 4 << 20 };

/* ---- from Ruby's syntax to Perl's ---- */

static const struct {
    char letter;
    const char *outside, *in_class; /* of a class [...]; NULL: refused */
} escapes[] = {
    {'s', "\\p{White_Space}", "\\p{White_Space}"},
    {'S', "\\P{White_Space}", "\\P{White_Space}"},
    {'w', "[\\p{L}\\p{M}\\p{Nd}\\p{Pc}]", "\\p{L}\\p{M}\\p{Nd}\\p{Pc}"},
    {'W', "[^\\p{L}\\p{M}\\p{Nd}\\p{Pc}]", NULL},
    {'h', NULL, NULL},
    {'H', NULL, NULL},
    {'X', NULL, NULL}, /* what one sees as a character: each library's tables say which */
};

static rp_status refuse(const char *text, const char *part) {
    return RP_FAIL(UNSUPPORTED, "the regular expression %s holds %s, which is not supported",
                   text, part);
}

static rp_status translate_escape(const char *text, char letter, bool in_class, rpi_text *out) {
    char part[3] = {'\\', letter, 0};
    for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++) {
        if (escapes[i].letter != letter) continue;
        const char *with = in_class ? escapes[i].in_class : escapes[i].outside;
        if (!with) return refuse(text, part);
        return rpi_text_append(out, with, strlen(with));
    }
    return rpi_text_append(out, part, letter ? 2 : 1);
}

/* What both accept with different meanings: sets in sets, their intersection, (?m). */
static rp_status check_difference(const char *text, const char *at, bool in_class) {
    if (in_class && at[0] == '[' && at[1] != ':') return refuse(text, "[ in a class");
    if (in_class && at[0] == '&' && at[1] == '&') return refuse(text, "&& in a class");
    if (!in_class && strncmp(at, "(?m", 3) == 0) return refuse(text, "(?m");
    if (!in_class && at[0] == '}' && at[1] == '+') return refuse(text, "}+");
    return RP_OK;
}

/* What follows in braces belongs to \p, \P and \x, and is no count of repeats. */
static size_t braces(const char *at) {
    const char *end = *at && strchr("pPx", at[0]) && at[1] == '{' ? strchr(at, '}') : NULL;
    return end ? (size_t)(end - at) : 0;
}

static rp_status translate(const char *text, rpi_text *out) {
    bool in_class = false;
    for (const char *at = text; *at; at++) {
        if (*at == '\\') {
            RP_TRY(translate_escape(text, at[1], in_class, out));
            if (at[1]) at++;
            size_t more = braces(at);
            RP_TRY(rpi_text_append(out, at + 1, more));
            at += more;
            continue;
        }
        RP_TRY(check_difference(text, at, in_class));
        RP_TRY(rpi_text_append(out, at, 1));
        if (in_class && at[0] == '[') { /* [:alpha:] */
            const char *end = strstr(at, ":]");
            if (!end) return refuse(text, "[: without an end");
            RP_TRY(rpi_text_append(out, at + 1, (size_t)(end + 1 - at)));
            at = end + 1;
        } else if (*at == '[') {
            in_class = true;
            /* A first ] is itself. */
            if (at[1] == '^') RP_TRY(rpi_text_append(out, ++at, 1));
            if (at[1] == ']') RP_TRY(rpi_text_append(out, ++at, 1));
        } else if (*at == ']') {
            in_class = false;
        }
    }
    return rpi_text_append(out, "", 1);
}

/* ---- compiling and matching ---- */

static rp_status compile(const char *shown, const char *text, uint32_t options,
                         rpi_pattern *pattern) {
    int code;
    size_t offset;
    pattern->code =
        pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, options, &code, &offset, NULL);
    if (!pattern->code) {
        char reason[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        return RP_FAIL(UNSUPPORTED, "the regular expression %s cannot be read: %s", shown,
                       reason);
    }
    uint32_t is_empty = 0;
    (void)pcre2_pattern_info(pattern->code, PCRE2_INFO_MATCHEMPTY, &is_empty);
    if (is_empty)
        return RP_FAIL(UNSUPPORTED,
                       "the regular expression %s matches where there is nothing, which is not "
                       "supported",
                       shown);
    /* Where there is no such compiler the expression is interpreted, which is slower. */
    (void)pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
    return RP_OK;
}

rp_status rpi_pattern_compile(const char *text, bool literal, rpi_pattern **out_pattern) {
    rpi_pattern *pattern = NULL;
    rpi_text translated = {0};
    RP_TRY(rpi_alloc(sizeof *pattern, "a pattern", &pattern));
    rp_status status = rpi_strdup(text, &pattern->text);
    if (status == RP_OK && !literal) status = translate(text, &translated);
    /* Decoders may meet bytes that are no text: where those are nothing matches. */
    uint32_t options = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF |
                       (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE);
    if (status == RP_OK)
        status = compile(text, literal ? text : translated.at, options, pattern);
    rpi_text_free(&translated);
    if (status != RP_OK) {
        rpi_pattern_free(pattern);
        return status;
    }
    *out_pattern = pattern;
    return RP_OK;
}

void rpi_pattern_free(rpi_pattern *pattern) {
    if (!pattern) return;
    pcre2_code_free(pattern->code);
    rpi_free(pattern->text);
    rpi_free(pattern);
}

rp_status rpi_matcher_create(rpi_matcher **out_matcher) {
    rpi_matcher *matcher = NULL;
    RP_TRY(rpi_alloc(sizeof *matcher, "a matcher", &matcher));
    matcher->match = pcre2_match_data_create(1, NULL);
    matcher->context = pcre2_match_context_create(NULL);
    matcher->stack = pcre2_jit_stack_create(STACK_LEAST, STACK_MOST, NULL);
    if (!matcher->match || !matcher->context) {
        rpi_matcher_free(matcher);
        return RP_FAIL(NOMEM, "no memory for a matcher of regular expressions");
    }
    if (matcher->stack) pcre2_jit_stack_assign(matcher->context, NULL, matcher->stack);
    *out_matcher = matcher;
    return RP_OK;
}

void rpi_matcher_free(rpi_matcher *matcher) {
    if (!matcher) return;
    pcre2_match_data_free(matcher->match);
    pcre2_match_context_free(matcher->context);
    pcre2_jit_stack_free(matcher->stack);
    rpi_free(matcher);
}

rp_status rpi_pattern_next(const rpi_pattern *pattern, rpi_matcher *matcher, const char *text,
                           size_t bytes, size_t from, bool *out_found, size_t *out_start,
                           size_t *out_end) {
    int code = pcre2_match(pattern->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NOTEMPTY,
                           matcher->match, matcher->context);
    *out_found = code >= 0;
    if (code == PCRE2_ERROR_NOMATCH) return RP_OK;
    if (code < 0) {
        char reason[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        return RP_FAIL(UNSUPPORTED, "the regular expression %s gives up on a text: %s",
                       pattern->text, reason);
    }
    const size_t *where = pcre2_get_ovector_pointer(matcher->match);
    *out_start = where[0];
    *out_end = where[1];
    return RP_OK;
}
