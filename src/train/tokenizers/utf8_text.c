#include "train/tokenizers/utf8_text.h"

#include <string.h>
#include <utf8proc.h>

size_t rpi_utf8_write(int32_t code, char *out) {
    return (size_t)utf8proc_encode_char(code, (utf8proc_uint8_t *)out);
}

rp_status rpi_text_append_code(rpi_text *text, int32_t code) {
    RP_TRY(rpi_text_reserve(text, 4));
    text->count += rpi_utf8_write(code, text->at + text->count);
    return RP_OK;
}

/* The length of the sequence at `text` when it is valid; else 0, and in *out_part how many
 * bytes could still have become one. */
static size_t sequence(const unsigned char *b, size_t left, size_t *out_part) {
    *out_part = 1;
    if (b[0] < 0x80) return 1;
    size_t length = b[0] < 0xc2 ? 0 : b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : b[0] < 0xf5 ? 4 : 0;
    if (length == 0) return 0;
    unsigned low = b[0] == 0xe0 ? 0xa0 : b[0] == 0xf0 ? 0x90 : 0x80;
    unsigned high = b[0] == 0xed ? 0x9f : b[0] == 0xf4 ? 0x8f : 0xbf;
    for (size_t i = 1; i < length; i++) {
        if (i >= left || b[i] < low || b[i] > high) {
            *out_part = i;
            return 0;
        }
        low = 0x80;
        high = 0xbf;
    }
    return length;
}

static size_t ascii(const char *text, size_t bytes) {
    size_t i = 0;
    uint64_t eight;
    for (; i + 8 <= bytes; i += 8) {
        memcpy(&eight, text + i, 8);
        if (eight & 0x8080808080808080u) break;
    }
    while (i < bytes && !(text[i] & 0x80)) i++;
    return i;
}

size_t rpi_utf8_valid(const char *text, size_t bytes) {
    size_t i = 0, part;
    for (;;) {
        i += ascii(text + i, bytes - i);
        if (i == bytes) return i;
        size_t length = sequence((const unsigned char *)text + i, bytes - i, &part);
        if (length == 0) return i;
        i += length;
    }
}

rp_status rpi_utf8_repair(const char *text, size_t bytes, rpi_text *out, size_t *out_replaced) {
    *out_replaced = 0;
    for (size_t i = 0; i < bytes;) {
        size_t part, good = rpi_utf8_valid(text + i, bytes - i);
        RP_TRY(rpi_text_append(out, text + i, good));
        i += good;
        if (i == bytes) break;
        (void)sequence((const unsigned char *)text + i, bytes - i, &part);
        RP_TRY(rpi_text_append_code(out, 0xfffd));
        i += part;
        ++*out_replaced;
    }
    return RP_OK;
}

static bool is_space(int32_t c) {
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

static unsigned class_of(utf8proc_category_t category) {
    switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return RPI_LETTER | RPI_WORD;
    case UTF8PROC_CATEGORY_MN: return RPI_MARK | RPI_NONSPACING | RPI_WORD;
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return RPI_MARK | RPI_WORD;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL: return RPI_NUMBER | RPI_WORD;
    case UTF8PROC_CATEGORY_NO: return RPI_NUMBER;
    case UTF8PROC_CATEGORY_PC: return RPI_PUNCTUATION | RPI_WORD;
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return RPI_PUNCTUATION;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO: return RPI_OTHER;
    default: return 0;
    }
}

/* Circled and squared letters are symbols that count as alphabetic (Other_Alphabetic), and the
 * two joiners belong to words. */
static bool is_other_word(int32_t c) {
    return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
           (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189) || c == 0x200c ||
           c == 0x200d;
}

unsigned rpi_utf8_class(int32_t code) {
    unsigned bits = class_of(utf8proc_category(code));
    if (is_space(code)) bits |= RPI_SPACE;
    if (is_other_word(code)) bits |= RPI_WORD;
    return bits;
}

rp_status rpi_utf8_check(const char *name, const char *text, size_t bytes) {
    size_t valid = rpi_utf8_valid(text, bytes);
    if (valid == bytes) return RP_OK;
    int line = 1;
    for (size_t i = 0; i < valid; i++) line += text[i] == '\n';
    return RP_FAIL(CORRUPT, "%s is no UTF-8: line %d", name, line);
}
