/* UTF-8 and the classes of Unicode characters that tokenizers ask for. */
#ifndef RPI_TRAIN_UTF8_TEXT_H
#define RPI_TRAIN_UTF8_TEXT_H

#include "train/tokenizers/text_buffer.h"

/* The code point at `text`, of text known to be valid, and in *out_bytes how long it is. */
static inline int32_t rpi_utf8_read(const char *text, size_t *out_bytes) {
    const unsigned char *b = (const unsigned char *)text;
    if (b[0] < 0x80) {
        *out_bytes = 1;
        return b[0];
    }
    if (b[0] < 0xe0) {
        *out_bytes = 2;
        return (b[0] & 0x1f) << 6 | (b[1] & 0x3f);
    }
    if (b[0] < 0xf0) {
        *out_bytes = 3;
        return (b[0] & 0x0f) << 12 | (b[1] & 0x3f) << 6 | (b[2] & 0x3f);
    }
    *out_bytes = 4;
    return (b[0] & 0x07) << 18 | (b[1] & 0x3f) << 12 | (b[2] & 0x3f) << 6 | (b[3] & 0x3f);
}

/* Bytes written to `out`, at most 4. */
size_t rpi_utf8_write(int32_t code, char *out);
rp_status rpi_text_append_code(rpi_text *text, int32_t code);

/* How many bytes from the start are valid UTF-8. */
size_t rpi_utf8_valid(const char *text, size_t bytes);
/* RP_CORRUPT: not all of it is; "NAME is no UTF-8: line 3". */
rp_status rpi_utf8_check(const char *name, const char *text, size_t bytes);
/* Append the text with U+FFFD for what is not UTF-8, once for each maximal part of a sequence
 * as Unicode recommends (section 3.9) and Python and Rust do. *out_replaced: how many. */
rp_status rpi_utf8_repair(const char *text, size_t bytes, rpi_text *out, size_t *out_replaced);

/* Classes of one character, as bits. */
enum {
    RPI_LETTER = 1,      /* L* */
    RPI_NUMBER = 2,      /* N* */
    RPI_SPACE = 4,       /* White_Space */
    RPI_PUNCTUATION = 8, /* P* */
    RPI_MARK = 16,       /* M* */
    RPI_NONSPACING = 32, /* Mn */
    RPI_OTHER = 64,      /* Cc, Cf, Co: controls, formats, private use */
    RPI_WORD = 128,      /* letters, marks, decimal digits, connectors, other alphabetics */
};
unsigned rpi_utf8_class(int32_t code);

#endif
