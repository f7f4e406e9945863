#include "cli/visible_text.h"

#include "train/tokenizers/utf8_text.h"

#include <stdbool.h>
#include <string.h>

enum { ESCAPE = 0x1b, DELETE = 0x7f, CHARACTER_BYTES = 4, COLOUR_BYTES = 64 };

/* Bytes of "ESC [ 1 ; 31 m"; 0: that is none. *out_open: only its end is missing. */
static size_t colour(const char *text, size_t bytes, bool *out_open) {
    size_t i = 2;
    *out_open = false;
    if (text[0] != ESCAPE) return 0;
    if (bytes > 1 && text[1] != '[') return 0;
    while (i < bytes && i < COLOUR_BYTES && strchr("0123456789;:", text[i]) && text[i]) i++;
    *out_open = i >= bytes;
    return i < bytes && text[i] == 'm' ? i + 1 : 0;
}

static bool is_reset(const char *text, size_t bytes) {
    return bytes == 3 || (bytes == 4 && text[2] == '0');
}

/* C1 codes; ends of lines; and what turns the direction of all that follows. */
static bool is_obeyed(int32_t code) {
    return (code >= 0x80 && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
           (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

/* 0: it is none, or not whole. */
static size_t character(const char *text, size_t bytes, int32_t *out_code) {
    size_t length = 0;
    if (rpi_utf8_valid(text, bytes < CHARACTER_BYTES ? bytes : CHARACTER_BYTES) == 0) return 0;
    *out_code = rpi_utf8_read(text, &length);
    return length;
}

static size_t put_one(const char *text, size_t bytes, FILE *sink) {
    int32_t code = 0;
    size_t length = character(text, bytes, &code);
    if (length == 0) {
        fprintf(sink, "<%02x>", (unsigned char)text[0]);
        return 1;
    }
    if ((code < 0x20 && code != '\t') || code == DELETE)
        fprintf(sink, "^%c", code ^ 0x40);
    else if (is_obeyed(code))
        fprintf(sink, "<U+%04X>", (unsigned)code);
    else
        fwrite(text, 1, length, sink);
    return length;
}

void rpi_visible_put(const char *text, size_t bytes, FILE *sink) {
    bool is_coloured = false, is_open = false;
    for (size_t i = 0, length; i < bytes; i += length) {
        length = colour(text + i, bytes - i, &is_open);
        if (length > 0) {
            fwrite(text + i, 1, length, sink);
            is_coloured = !is_reset(text + i, length);
        } else {
            length = put_one(text + i, bytes - i, sink);
        }
    }
    if (is_coloured) fputs("\033[m", sink);
}

/* Could more bytes make a character of these? */
static bool is_begun(const char *text, size_t bytes) {
    unsigned char first = (unsigned char)text[0];
    size_t wanted = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    return first >= 0xc2 && first < 0xf5 && bytes < wanted;
}

size_t rpi_visible_break(const char *text, size_t bytes) {
    bool is_open = false;
    size_t most = bytes < COLOUR_BYTES ? bytes : COLOUR_BYTES;
    for (size_t back = 1; back <= most && back < bytes; back++) {
        const char *at = text + bytes - back;
        (void)colour(at, back, &is_open);
        if (is_open || (back < CHARACTER_BYTES && is_begun(at, back))) return bytes - back;
    }
    return bytes;
}
