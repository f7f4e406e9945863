#include "train/tokenizers/byte_level.h"

#include "train/tokenizers/utf8_text.h"

#include <string.h>

static bool is_itself(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The others come in order: 0x00-0x20, 0x7f-0xa0, 0xad. */
int32_t rpi_byte_level_code(uint8_t byte) {
    if (is_itself(byte)) return byte;
    if (byte <= 0x20) return 0x100 + byte;
    return byte == 0xad ? 0x143 : 0x121 + (byte - 0x7f);
}

int rpi_byte_level_byte(int32_t code) {
    if (code < 0x100) return code >= 0 && is_itself(code) ? code : -1;
    if (code <= 0x120) return code - 0x100;
    if (code <= 0x142) return code - 0x121 + 0x7f;
    return code == 0x143 ? 0xad : -1;
}

rp_status rpi_byte_level_write(const char *bytes, size_t count, rpi_text *out) {
    RP_TRY(rpi_text_reserve(out, 2 * count + 4));
    for (size_t i = 0; i < count; i++)
        out->count +=
            rpi_utf8_write(rpi_byte_level_code((uint8_t)bytes[i]), out->at + out->count);
    return RP_OK;
}

rp_status rpi_byte_level_read(const char *text, size_t count, rpi_text *out) {
    size_t before = out->count, length;
    RP_TRY(rpi_text_reserve(out, count));
    for (size_t i = 0; i < count; i += length) {
        int byte = rpi_byte_level_byte(rpi_utf8_read(text + i, &length));
        if (byte < 0) {
            out->count = before;
            return rpi_text_append(out, text, count);
        }
        out->at[out->count++] = (char)byte;
    }
    return RP_OK;
}

/* ---- words ---- */

typedef enum word_class { LETTERS, NUMBERS, SPACES, REST, END } word_class;

static word_class wide_class(const char *at, size_t *out_bytes) {
    unsigned bits = rpi_utf8_class(rpi_utf8_read(at, out_bytes));
    return bits & RPI_LETTER   ? LETTERS
           : bits & RPI_NUMBER ? NUMBERS
           : bits & RPI_SPACE  ? SPACES
                               : REST;
}

static const uint8_t ascii_class[128] = {
#define FOUR(c) c, c, c, c
#define R       REST
    FOUR(R),
    FOUR(R),
    R,
    SPACES,
    SPACES,
    SPACES,
    SPACES,
    SPACES,
    R,
    R,
    FOUR(R),
    FOUR(R),
    FOUR(R),
    FOUR(R),
    SPACES,
    R,
    R,
    R,
    FOUR(R),
    FOUR(R),
    FOUR(R),
    FOUR(NUMBERS),
    FOUR(NUMBERS),
    NUMBERS,
    NUMBERS,
    R,
    R,
    FOUR(R),
    R,
    LETTERS,
    LETTERS,
    LETTERS,
    FOUR(LETTERS),
    FOUR(LETTERS),
    FOUR(LETTERS),
    FOUR(LETTERS),
    FOUR(LETTERS),
    LETTERS,
    LETTERS,
    LETTERS,
    R,
    FOUR(R),
    R,
    LETTERS,
    LETTERS,
    LETTERS,
    FOUR(LETTERS),
    FOUR(LETTERS),
    FOUR(LETTERS),
    FOUR(LETTERS),
    FOUR(LETTERS),
    LETTERS,
    LETTERS,
    LETTERS,
    R,
    FOUR(R)
#undef R
#undef FOUR
};

static inline word_class class_at(const char *at, const char *end, size_t *out_bytes) {
    *out_bytes = 1;
    if (at >= end) return END;
    if (*at & 0x80) return wide_class(at, out_bytes);
    return (word_class)ascii_class[(unsigned char)*at];
}

static inline const char *run_of(word_class kind, const char *at, const char *end) {
    size_t bytes;
    while (class_at(at, end, &bytes) == kind) at += bytes;
    return at;
}

/* The end of 's 't 'm 'd 're 've 'll at `at`; NULL: there is none. */
static const char *contraction(const char *at, const char *end) {
    if (end - at < 2 || *at != '\'') return NULL;
    if (at[1] == 's' || at[1] == 't' || at[1] == 'm' || at[1] == 'd') return at + 2;
    if (end - at < 3) return NULL;
    bool found = (at[1] == 'r' && at[2] == 'e') || (at[1] == 'v' && at[2] == 'e') ||
                 (at[1] == 'l' && at[2] == 'l');
    return found ? at + 3 : NULL;
}

/* Spaces go to the next word but for the last one, which is its own when it is no ' '. */
static const char *spaces(const char *at, const char *end) {
    const char *last = at;
    size_t bytes;
    const char *next = at;
    while (class_at(next, end, &bytes) == SPACES) {
        last = next;
        next += bytes;
    }
    return next == end || last == at ? next : last;
}

static const char *word(const char *at, const char *end) {
    size_t bytes;
    const char *found = contraction(at, end);
    if (found) return found;
    word_class kind = class_at(at, end, &bytes);
    if (kind != SPACES) return run_of(kind, at + bytes, end);
    word_class next = *at == ' ' ? class_at(at + 1, end, &bytes) : END;
    if (next == SPACES || next == END) return spaces(at, end);
    return run_of(next, at + 1 + bytes, end);
}

rp_status rpi_byte_level_words(rpi_text_piece whole, rpi_pieces *out) {
    const char *at = out->text + whole.start, *end = at + whole.bytes;
    while (at < end) {
        const char *next = word(at, end);
        RP_TRY(rpi_pieces_add(out, (size_t)(at - out->text), (size_t)(next - at)));
        at = next;
    }
    return RP_OK;
}
