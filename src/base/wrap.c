#include "base/wrap.h"

#include <stdbool.h>
#include <string.h>

/* One line of the text, `length` bytes of it. */
static void print_words(FILE *stream, const char *text, size_t length, int column, int indent) {
    bool first = true;
    for (size_t at = 0; at < length;) {
        size_t spaces = strspn(text + at, " ");
        if (at + spaces >= length) break;
        at += spaces;
        size_t word = strcspn(text + at, " \n");
        if (at + word > length) word = length - at;
        if (!first && column + 1 + (int)word > RPI_TEXT_COLUMNS - 1) {
            fprintf(stream, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', stream);
            column++;
        }
        fprintf(stream, "%.*s", (int)word, text + at);
        column += (int)word;
        at += word;
        first = false;
    }
}

void rpi_print_wrapped(FILE *stream, const char *text, int column, int indent) {
    for (;;) {
        size_t length = strcspn(text, "\n");
        if (strncmp(text, "  ", 2) == 0)
            fprintf(stream, "%.*s", (int)length, text);
        else
            print_words(stream, text, length, column, indent);
        fputc('\n', stream);
        text += length;
        if (!*text || !text[1]) return;
        text++;
        column = *text == '\n' ? 0 : indent;
        if (column && strncmp(text, "  ", 2) != 0) fprintf(stream, "%*s", indent, "");
    }
}
