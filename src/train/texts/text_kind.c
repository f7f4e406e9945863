#include "train/texts/text_kind.h"

#include "train/texts/json_scan.h"
#include "train/texts/packing.h"
#include "train/tokenizers/utf8_text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- what is no text ---- */

typedef struct known {
    const char *name;
    const char *magic;
    size_t bytes, offset;
    const char *advice;
} known;

#define MAGIC(text)   text, sizeof(text) - 1
#define TO_UTF8(name) "write it as UTF-8: iconv -f " name " -t UTF-8 FILE > NEW"
#define TO_LINES(call)                                                                         \
    "write it as JSON lines: python -c \"import datasets; datasets.Dataset." call              \
    ".to_json('NEW.jsonl')\""
#define PICTURE   "a folder of pictures is read by redpoll train --data images:FOLDER"
#define TOKENS    "its tokens are read by redpoll train --data tokens:PATH"
#define OWN_LINES "write it as text or JSON lines by the program that made it"

/* The longer magic first where one begins another. */
static const known kinds[] = {
    {"UTF-32 text", MAGIC("\xff\xfe\0\0"), 0, TO_UTF8("UTF-32")},
    {"UTF-32 text", MAGIC("\0\0\xfe\xff"), 0, TO_UTF8("UTF-32")},
    {"UTF-16 text", MAGIC("\xff\xfe"), 0, TO_UTF8("UTF-16")},
    {"UTF-16 text", MAGIC("\xfe\xff"), 0, TO_UTF8("UTF-16")},
    {"a Parquet file", MAGIC("PAR1"), 0, TO_LINES("from_parquet('FILE')")},
    {"an Arrow file", MAGIC("ARROW1\0\0"), 0, TO_LINES("from_file('FILE')")},
    {"an Arrow stream", MAGIC("\xff\xff\xff\xff"), 0, TO_LINES("from_file('FILE')")},
    {"an Arrow file (Feather 1)", MAGIC("FEA1\0\0\0\0"), 0, OWN_LINES},
    {"an ORC file", MAGIC("ORC\x0a"), 0, OWN_LINES},
    {"an ORC file", MAGIC("ORC\x11"), 0, OWN_LINES},
    {"an Avro file", MAGIC("Obj\x01"), 0, OWN_LINES},
    {"a zip archive (as are .docx, .xlsx, .npz and PyTorch's files)", MAGIC("PK\x03\x04"), 0,
     "unpack it and name the files in it: unzip FILE"},
    {"an empty zip archive", MAGIC("PK\x05\x06"), 0, "there is nothing in it"},
    {"a tar archive", MAGIC("ustar"), 257, "unpack it and name the files in it: tar -xf FILE"},
    {"a 7-Zip archive", MAGIC("7z\xbc\xaf\x27\x1c"), 0, "unpack it: 7z x FILE"},
    {"a rar archive", MAGIC("Rar!\x1a\x07"), 0, "unpack it: unrar x FILE"},
    {"packed by lz4", MAGIC("\x04\x22\x4d\x18"), 0, "unpack it: lz4 -d FILE"},
    {"packed by lzip", MAGIC("LZIP\x01"), 0, "unpack it: lzip -d FILE"},
    {"packed by lzop", MAGIC("\x89LZO\0\r\n"), 0, "unpack it: lzop -d FILE"},
    {"packed by lzma", MAGIC("]\0\0"), 0, "unpack it: unlzma FILE"},
    {"packed by compress", MAGIC("\x1f\x9d"), 0, "unpack it: uncompress FILE"},
    {"packed by snappy", MAGIC("\xff\x06\0\0sNaPpY"), 0, "unpack it: snzip -d FILE"},
    {"an HDF5 file", MAGIC("\x89HDF\r\n\x1a\n"), 0, OWN_LINES},
    {"a NumPy array", MAGIC("\x93NUMPY"), 0, OWN_LINES},
    {"a pickle of Python, which could run programs", MAGIC("\x80\x02"), 0, OWN_LINES},
    {"a pickle of Python, which could run programs", MAGIC("\x80\x03"), 0, OWN_LINES},
    {"a pickle of Python, which could run programs", MAGIC("\x80\x04"), 0, OWN_LINES},
    {"a pickle of Python, which could run programs", MAGIC("\x80\x05"), 0, OWN_LINES},
    {"a database of SQLite", MAGIC("SQLite format 3\0"), 0,
     "write it as JSON lines: sqlite3 FILE 'select json_object(...) from ...'"},
    {"a PDF document", MAGIC("%PDF-"), 0, "write it as text: pdftotext FILE"},
    {"an RTF document", MAGIC("{\\rtf"), 0, "write it as text"},
    {"an older document of Office", MAGIC("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), 0,
     "write it as text"},
    {"a PNG picture", MAGIC("\x89PNG\r\n\x1a\n"), 0, PICTURE},
    {"a JPEG picture", MAGIC("\xff\xd8\xff"), 0, PICTURE},
    {"a GIF picture", MAGIC("GIF87a"), 0, PICTURE},
    {"a GIF picture", MAGIC("GIF89a"), 0, PICTURE},
    {"a program",
     MAGIC("\x7f"
           "ELF"),
     0, "it holds no text"},
    {"a GGUF model", MAGIC("GGUF\x02\0"), 0, "it holds no text"},
    {"a GGUF model", MAGIC("GGUF\x03\0"), 0, "it holds no text"},
    {"an index of Megatron's tokens", MAGIC("MMIDIDX\0\0"), 0, TOKENS},
    {"a file of llm.c's tokens", MAGIC("\x88\xd8\x34\x01"), 0, TOKENS},
    {"a file of llm.c's tokens", MAGIC("\xa1\xd9\x34\x01"), 0, TOKENS},
};

static rp_status refuse(const char *path, const char *name, const char *advice) {
    return RP_FAIL(UNSUPPORTED, "%s is %s, which is not read: %s", path, name, advice);
}

/* Older tar archives have no magic, but a sum over their header. */
static bool is_old_tar(const char *bytes, size_t count) {
    enum { HEADER = 512, SUM_AT = 148, SUM_BYTES = 8 };
    unsigned sum = 0, said = 0;
    if (count < HEADER || !bytes[0]) return false;
    for (int i = 0; i < HEADER; i++)
        sum += i >= SUM_AT && i < SUM_AT + SUM_BYTES ? ' ' : (unsigned char)bytes[i];
    const char *at = bytes + SUM_AT, *end = at + SUM_BYTES;
    while (at < end && *at == ' ') at++;
    if (at == end || *at < '0' || *at > '7') return false;
    for (; at < end && *at >= '0' && *at <= '7'; at++) said = said * 8 + (unsigned)(*at - '0');
    return said == sum;
}

typedef struct census {
    size_t nul[2]; /* at even and odd places */
    size_t controls;
} census;

static census count_controls(const char *bytes, size_t count) {
    census c = {{0, 0}, 0};
    for (size_t i = 0; i < count; i++) {
        unsigned char b = (unsigned char)bytes[i];
        c.nul[i % 2] += b == 0;
        c.controls += (b < 0x20 && !(b >= 8 && b <= 13) && b != 0x1b) || b == 0x7f;
    }
    return c;
}

/* Without a mark in front: every fourth character at least is below 256, or, in other scripts,
 * there are blanks and ends of lines of two bytes, and few other NULs. */
static const char *unmarked_utf16(const char *bytes, const census *c, size_t count) {
    enum { NULS_A_BLANK = 8 };
    static const char *const advice[] = {TO_UTF8("UTF-16BE"), TO_UTF8("UTF-16LE")};
    size_t pairs = count / 2, nuls = c->nul[0] + c->nul[1], blanks[2] = {0, 0};
    if (pairs < 2 || nuls < 2) return NULL;
    for (size_t i = 0; i < 2 * pairs; i++)
        blanks[i % 2] += bytes[i] == 0 && rpi_json_is_blank(bytes[i ^ 1]);
    bool is_utf8 = rpi_utf8_valid(bytes, count) + 4 > count; /* the last may be cut */
    for (int at = 0; at < 2; at++) {
        bool has_blanks = blanks[at] >= 2 && nuls <= NULS_A_BLANK * blanks[at];
        if (c->nul[!at] == 0 && c->nul[at] * 4 >= pairs) return advice[at];
        if (has_blanks && (!is_utf8 || c->controls * 4 >= count)) return advice[at];
    }
    return NULL;
}

static rp_status check_text(const char *path, const char *bytes, size_t count) {
    enum { FEW_CONTROLS = 32, CONTROLS_AMONG = 32 };
    census c = count_controls(bytes, count);
    const char *advice = unmarked_utf16(bytes, &c, count);
    if (advice) return refuse(path, "UTF-16 text", advice);
    if (is_old_tar(bytes, count))
        return refuse(path, "a tar archive",
                      "unpack it and name the files in it: tar -xf FILE");
    if (c.controls < FEW_CONTROLS || c.controls * CONTROLS_AMONG < count) return RP_OK;
    return RP_FAIL(UNSUPPORTED,
                   "%s is no text: %zu of its first %zu bytes are control characters; --format "
                   "text takes it as it is",
                   path, c.controls, count);
}

static rp_status check_known(const char *path, const char *bytes, size_t count) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const known *k = &kinds[i];
        if (count < k->offset + k->bytes) continue;
        if (memcmp(bytes + k->offset, k->magic, k->bytes) == 0)
            return refuse(path, k->name, k->advice);
    }
    const rpi_packing *packing = rpi_packing_of((const uint8_t *)bytes, count);
    if (!packing) return RP_OK;
    return RP_FAIL(UNSUPPORTED, "%s is packed twice, at last by %s: unpack it once", path,
                   packing->name);
}

/* ---- JSON ---- */

static bool ends_in(const char *path, size_t length, const char *suffix) {
    size_t end = strlen(suffix);
    return length > end && strncasecmp(path + length - end, suffix, end) == 0;
}

static size_t unpacked_length(const char *path) {
    static const char *const packed[] = {".gz", ".xz", ".bz2", ".zst", ".zstd"};
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++)
        if (ends_in(path, length, packed[i])) return length - strlen(packed[i]);
    return length;
}

static bool has_suffix_of(const char *path, const char *const *suffixes) {
    size_t length = unpacked_length(path);
    for (; *suffixes; suffixes++)
        if (ends_in(path, length, *suffixes)) return true;
    return false;
}

static const char *const lines_suffixes[] = {".jsonl", ".ndjson", ".jsonlines", NULL};
static const char *const json_suffixes[] = {".json", NULL};

bool rpi_text_name_is_json(const char *path) {
    return has_suffix_of(path, lines_suffixes) || has_suffix_of(path, json_suffixes);
}

bool rpi_text_name_is_table(const char *path) {
    static const char *const suffixes[] = {".csv", ".tsv", NULL};
    return has_suffix_of(path, suffixes);
}

static const char *skip_blanks(const char *at, const char *end) {
    while (at < end && rpi_json_is_blank(*at)) at++;
    return at;
}

/* {"key": or {} */
static bool begins_object(const char *at, const char *end) {
    if (at == end || *at != '{') return false;
    at = skip_blanks(at + 1, end);
    if (at < end && *at == '}') return true;
    if (at == end || *at != '"') return false;
    for (at++; at < end && *at != '"' && *at != '\n'; at++)
        if (*at == '\\' && end - at > 1) at++;
    if (at == end || *at != '"') return false;
    at = skip_blanks(at + 1, end);
    return at < end && *at == ':';
}

/* Is the first object written over several lines? *out_ended: it ends among these bytes. */
static bool is_over_lines(const char *at, const char *end, bool *out_ended) {
    rpi_json_scan scan = {0};
    size_t bytes = rpi_json_scan_value(&scan, at, (size_t)(end - at), out_ended);
    return memchr(at, '\n', bytes) != NULL;
}

static rpi_text_kind kind_of_objects(const char *path, const char *at, const char *end) {
    bool ended = false, is_over = is_over_lines(at, end, &ended);
    /* A line that is broken is no reason to doubt a name that says lines. */
    if (is_over && has_suffix_of(path, lines_suffixes)) is_over = ended;
    return is_over ? RPI_TEXT_JSON_VALUES : RPI_TEXT_JSON_LINES;
}

rp_status rpi_text_kind_of(const char *path, const char *bytes, size_t count,
                           rpi_text_kind *out_kind) {
    const char *end = bytes + count, *at = skip_blanks(bytes, end);
    RP_TRY(check_known(path, bytes, count));
    RP_TRY(check_text(path, bytes, count));
    *out_kind = RPI_TEXT_PLAIN;
    bool is_list = at < end && *at == '[';
    if (begins_object(at, end))
        *out_kind = kind_of_objects(path, at, end);
    else if (has_suffix_of(path, lines_suffixes) && !is_list)
        *out_kind = RPI_TEXT_JSON_LINES;
    else if ((is_list && begins_object(skip_blanks(at + 1, end), end)) ||
             rpi_text_name_is_json(path))
        *out_kind = RPI_TEXT_JSON_VALUES;
    return RP_OK;
}
