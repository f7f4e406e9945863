#include "train/texts/json_scan.h"

/* A text: "..." */
static bool goes_on_in_text(rpi_json_scan *s, char c) {
    if (s->is_escaped) {
        s->is_escaped = false;
        return c != '\n';
    }
    s->is_escaped = c == '\\';
    return c != '"' && c != '\n';
}

static bool ends_bare(char c) {
    return c == ',' || c == ']' || c == '}' || rpi_json_is_blank(c);
}

/* Outside of texts; true: `c` is the last of the value. */
static bool take_mark(rpi_json_scan *s, char c) {
    if (c == '{' || c == '[') s->depth++;
    if (c == '}' || c == ']') s->depth--;
    s->in_text = c == '"';
    if ((c == '}' || c == ']') && s->depth <= 0) return true;
    s->is_bare = s->depth == 0 && !s->in_text;
    return false;
}

size_t rpi_json_scan_value(rpi_json_scan *s, const char *at, size_t count, bool *out_ended) {
    *out_ended = false;
    for (size_t i = 0; i < count; i++) {
        if (s->is_bare && ends_bare(at[i])) {
            *out_ended = true;
            return i;
        }
        if (s->in_text)
            s->in_text = goes_on_in_text(s, at[i]);
        else
            *out_ended = take_mark(s, at[i]);
        if (s->depth == 0 && !s->in_text && !s->is_bare) *out_ended = true;
        if (*out_ended) return i + 1;
    }
    return count;
}
