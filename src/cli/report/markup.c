#include "cli/report/markup.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Bytes of the well-formed UTF-8 sequence at `text`, 0 if there is none; Unicode 15, table 3-7:
 * no overlong forms, no surrogates, nothing beyond U+10FFFF. */
static int sequence_bytes(const unsigned char *text) {
    unsigned char lead = text[0];
    if (lead < 0x80) return 1;
    int length = lead >= 0xc2 && lead <= 0xdf ? 2 : (lead & 0xf0) == 0xe0 ? 3 : 4;
    if (lead < 0xc2 || lead > 0xf4) return 0;
    unsigned char least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (text[1] < least || text[1] > most) return 0;
    for (int i = 2; i < length; i++)
        if ((text[i] & 0xc0) != 0x80) return 0;
    return length;
}

/* XML 1.0 allows no control characters except these three, and not the last two of the plane.
 */
static bool is_allowed(const unsigned char *text, int length) {
    if (length == 1)
        return (text[0] >= 0x20 && text[0] != 0x7f) || text[0] == '\t' || text[0] == '\n';
    if (length == 2) return text[0] != 0xc2 || text[1] >= 0xa0;
    return length != 3 || text[0] != 0xef || text[1] != 0xbf || text[2] < 0xbe;
}

static const char *entity(unsigned char byte) {
    switch (byte) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

void rpi_markup_text(FILE *stream, const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    while (*at) {
        int length = sequence_bytes(at);
        const char *escaped = entity(*at);
        if (escaped)
            fputs(escaped, stream);
        else if (length == 0 || !is_allowed(at, length))
            fputs("\xef\xbf\xbd", stream);
        else
            fwrite(at, 1, (size_t)length, stream);
        at += length ? length : 1;
    }
}

int rpi_markup_length(const char *text) {
    int length = 0;
    for (; *text; text++) length += ((unsigned char)*text & 0xc0) != 0x80;
    return length;
}

/* Where character `index` begins; the end of the text if it has fewer. */
static size_t offset_of(const char *text, int index) {
    size_t at = 0;
    for (int seen = 0; text[at]; at++)
        if (((unsigned char)text[at] & 0xc0) != 0x80 && seen++ == index) break;
    return at;
}

const char *rpi_markup_cut(const char *text, int limit, char *out, size_t bytes) {
    int length = rpi_markup_length(text), front = (limit - 1) * 3 / 5;
    size_t kept = offset_of(text, front);
    const char *rest = text + offset_of(text, length - (limit - 1 - front));
    if (length <= limit && strlen(text) < bytes)
        snprintf(out, bytes, "%s", text);
    else if (length <= limit) /* probably not text: more continuation bytes than characters */
        snprintf(out, bytes, "…");
    else
        snprintf(out, bytes, "%.*s…%s", (int)kept, text, rest);
    return out;
}

void rpi_markdown_text(FILE *stream, const char *text) {
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte < 0x20 || byte == 0x7f) {
            fputc(' ', stream);
            continue;
        }
        if (byte == '|' || byte == '\\' || byte == '`' || byte == '*' || byte == '_' ||
            byte == '[' || byte == ']' || byte == '<' || byte == '>')
            fputc('\\', stream);
        fputc(byte, stream);
    }
}
