/* Files of texts, by their first bytes: what is read of them, and what is refused with a way to
 * go on. A kind of file that is not here yet is a row in the table. */
#include "harness/check.h"
#include "long_packed.h"
#include "redpoll/log.h"
#include "train/data/text_source.h"
#include "train/texts/broken_rows.h"
#include "train/texts/packing.h"

#include <stdlib.h>
#include <string.h>

#define BYTES(text) text, sizeof(text) - 1
#define ONE_GZIP                                                                               \
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x2a\x49\xad\x28\x51\xb2\x52\xca\xcf\x4b" \
    "\x55\xaa\xe5\x02\x00\x02\x9a\x73\x20\x0f\x00\x00\x00"
#define ONE_XZ                                                                                 \
    "\xfd\x37\x7a\x58\x5a\x00\x00\x01\x69\x22\xde\x36\x02\x00\x21\x01\x16\x00\x00\x00\x74\x2f" \
    "\xe5\xa3\x01\x00\x0e\x7b\x22\x74\x65\x78\x74\x22\x3a\x22\x6f\x6e\x65\x22\x7d\x0a\x00\x00" \
    "\x02\x9a\x73\x20\x00\x01\x23\x0f\xdb\xdf\x90\x0e\x90\x42\x99\x0d\x01\x00\x00\x00\x00\x01" \
    "\x59\x5a"
#define ONE_BZIP2                                                                              \
    "\x42\x5a\x68\x39\x31\x41\x59\x26\x53\x59\x66\x62\x1d\xda\x00\x00\x06\xd9\x80\x00\x10\x10" \
    "\x00\x00\x10\x02\x01\x84\x4a\x20\x00\x22\x01\x89\xa1\x00\x30\x6b\x59\x28\x76\x3a\x0e\xfc" \
    "\x5d\xc9\x14\xe1\x42\x41\x99\x88\x77\x68"
#define ONE_ZSTD                                                                               \
    "\x28\xb5\x2f\xfd\x20\x0f\x79\x00\x00\x7b\x22\x74\x65\x78\x74\x22\x3a\x22\x6f\x6e\x65\x22" \
    "\x7d\x0a"
#define SKIPPED_ZSTD "\x50\x2a\x4d\x18\x04\0\0\0abcd"
#define ZEROS        "\0\0\0\0\0\0\0\0"
#define SEVEN        "\1\2\3\4\5\6\7"
#define BLANKS       "\b\t\n\v\f\r\x1b a"
#define LINE         "{\"text\":\"one\"}\n"
#define NO_CHARACTER "\xef\xbf\xbd"

typedef struct row {
    const char *name, *bytes;
    size_t count;
    /* Documents, each followed by '|'; or "!" and a part of what is said. */
    const char *wanted;
    const char *packing; /* NULL: every build reads it */
    rpi_text_source_options options;
} row;

#define SPLIT                                                                                  \
    { .split_lines = true }
#define SKIP                                                                                   \
    { .skip_broken = true }
#define TEXT                                                                                   \
    { .format = RPI_FORMAT_TEXT }
#define JSON                                                                                   \
    { .format = RPI_FORMAT_JSON }

static const row rows[] = {
    /* JSON lines, whatever the name says */
    {"a.jsonl", BYTES(LINE "\n" LINE), "one|one|", NULL, {0}},
    {"a.JSONL", BYTES(LINE), "one|", NULL, {0}},
    {"a.json", BYTES(LINE LINE), "one|one|", NULL, {0}},
    {"part-00000", BYTES(LINE), "one|", NULL, {0}},
    {"a.txt", BYTES(" \n" LINE), "one|", NULL, SPLIT},
    {"mark.json", BYTES("\xef\xbb\xbf" LINE), "one|", NULL, {0}},
    {"mark.txt", BYTES("\xef\xbb\xbfone"), "one|", NULL, {0}},
    {"crlf.json",
     BYTES("{\"text\":\"one\"}\r\n\r\n{\"text\":\"two\"}\r\n"),
     "one|two|",
     NULL,
     {0}},
    {"empty.jsonl", BYTES("{\"text\":\"\"}\n{}\n"), "!empty.jsonl:2: no text under", NULL, {0}},
    {"number.jsonl",
     BYTES("{\"n\":[NaN,Infinity,-Infinity],\"text\":\"NaN\"}"),
     "NaN|",
     NULL,
     {0}},
    {"half.jsonl", BYTES("{\"text\":\"x\\ud83d y\"}"), "x" NO_CHARACTER " y|", NULL, {0}},
    {"bytes.jsonl", BYTES("{\"text\":\"x\xff y\"}"), "x" NO_CHARACTER " y|", NULL, {0}},
    {"text.jsonl", BYTES(LINE), LINE "|", NULL, TEXT},
    {"json.txt", BYTES("\n" LINE), "one|", NULL, JSON},
    {"no.txt", BYTES("one"), "!no.txt:1: no JSON; --skip-broken leaves it out", NULL, JSON},

    /* lists, and objects over lines */
    {"list.json", BYTES("[{\"text\": \"a\"}, {\"text\": \"b\"}]"), "a|b|", NULL, {0}},
    {"list.txt",
     BYTES("[\r\n{\"text\":\"a]}\"},\r\n{\"text\":\"\\\"[\"}\r\n]\n"),
     "a]}|\"[|",
     NULL,
     {0}},
    {"over.json",
     BYTES("{\n  \"text\": \"a\",\n  \"n\": {\"text\": 1}\n}\n{\n\"text\":\"b\"}"),
     "a|b|",
     NULL,
     {0}},
    {"over.jsonl", BYTES("{\n  \"text\": \"a\"\n}\n{\n\"text\":\"b\"}"), "a|b|", NULL, {0}},
    {"cut.jsonl",
     BYTES("{\"text\": \"a\n" LINE),
     "!cut.jsonl:1: no JSON; --skip-broken",
     NULL,
     {0}},
    {"cut.jsonl", BYTES("{\"text\":\n" LINE), "one|", NULL, SKIP},
    {"list.jsonl", BYTES("[{\"text\":\"a\"}]"), "a|", NULL, {0}},
    {"none.json", BYTES("[]"), "", NULL, {0}},
    {"open.json",
     BYTES("[{\"text\": \"a\"}"),
     "!open.json is truncated: the list of objects does not end",
     NULL,
     {0}},
    {"more.json",
     BYTES("[{\"text\":\"a\"}]\n{\"text\":\"b\"}"),
     "!more.json:2: goes on behind its list",
     NULL,
     {0}},
    {"numbers.json",
     BYTES("[1, 2]"),
     "!numbers.json:1 (row 1): this is no JSON object, but a number; line 1 (row 2): the same; "
     "2 "
     "rows are broken",
     NULL,
     {0}},
    {"texts.json",
     BYTES("[\"a\",\n\"b\"]"),
     "!texts.json:1 (row 1): this is no JSON object, but a text; line 2 (row 2): the same; 2 "
     "rows "
     "are broken",
     NULL,
     {0}},
    {"one.json",
     BYTES("{\"version\": 1,\n\"data\": []}"),
     "!no text under the key 'text'; there are version, data; --key",
     NULL,
     {0}},
    {"key.json", BYTES("[{\"body\":\"a\"}]"), "a|", NULL, {.key = "body"}},

    /* rows that are broken: five are named */
    {"null.jsonl",
     BYTES("{\"text\":null}\n" LINE),
     "!null.jsonl:1: its 'text' is null, and no text; --skip",
     NULL,
     {0}},
    {"null.jsonl", BYTES("{\"text\":null}\n" LINE), "one|", NULL, SKIP},
    {"five.jsonl",
     BYTES("{\"text\":1}\nx\n{\"text\":[]}\n[]\n" LINE "{}{}\n{\"text\":{}}\n"),
     "!five.jsonl:1: its 'text' is a number, and no text; line 2: no JSON; line 3: its 'text' "
     "is a "
     "list, and no text; line 4: this is no JSON object, but a list; line 6: goes on behind "
     "its "
     "JSON; a line holds one object; 5 rows and perhaps more are broken; --skip-broken",
     NULL,
     {0}},
    {"five.jsonl", BYTES("{\"text\":1}\nx\n{\"text\":[]}\n[]\n" LINE "{}{}\n{\"text\":{}}\n"),
     "one|", NULL, SKIP},

    {"kinds.jsonl", BYTES("{\"text\":true}"), "!its 'text' is true, and no text", NULL, {0}},
    {"kinds.jsonl", BYTES("{\"text\":false}"), "!its 'text' is false, and no text", NULL, {0}},
    {"kinds.jsonl", BYTES("{\"text\":{}}"), "!its 'text' is an object, and no", NULL, {0}},
    {"six.jsonl",
     BYTES("{}\n{}\n{}\n{}\nx\ny\n"),
     "!line 4: the same; line 5: no JSON; 5 rows and perhaps more are broken; --skip-broken "
     "leaves them out",
     NULL,
     {0}},
    /* the name decides where the text does not, also of what is or was packed */
    {"a.jsonl", BYTES("one"), "!a.jsonl:1: no JSON", NULL, {0}},
    {"a.ndjson", BYTES("one"), "!no JSON", NULL, {0}},
    {"a.jsonlines", BYTES("one"), "!no JSON", NULL, {0}},
    {"a.json", BYTES("one"), "!no JSON", NULL, {0}},
    {"a.jsonl.gz", BYTES("one"), "!no JSON", NULL, {0}},
    {"a.jsonl.xz", BYTES("one"), "!no JSON", NULL, {0}},
    {"a.jsonl.bz2", BYTES("one"), "!no JSON", NULL, {0}},
    {"a.json.zst", BYTES("one"), "!no JSON", NULL, {0}},
    {"a.json.zstd", BYTES("one"), "!no JSON", NULL, {0}},
    {"ajsonl", BYTES("one"), "one|", NULL, {0}},
    {"a.jsonl.txt", BYTES("one"), "one|", NULL, {0}},

    /* objects by how they begin */
    {"a.txt", BYTES("{ \"text\" : \"a\" }"), "a|", NULL, {0}},
    {"a.txt", BYTES("{\"\\\"\\\\\": 1, \"text\": \"a\"}"), "a|", NULL, {0}},
    {"a.txt", BYTES("{ }"), "!no text under the key 'text'; --key", NULL, {0}},
    {"a.txt", BYTES("[ {} ]"), "!no text under the key 'text'; --key", NULL, {0}},
    {"a.txt", BYTES("{"), "{|", NULL, {0}},
    {"a.txt", BYTES("{\"a"), "{\"a|", NULL, {0}},
    {"a.txt", BYTES("{\"a\""), "{\"a\"|", NULL, {0}},
    {"a.txt", BYTES("{\"a\", b}"), "{\"a\", b}|", NULL, {0}},
    {"a.txt", BYTES("{\"a\nb\": 1}"), "{\"a\nb\": 1}|", NULL, {0}},
    {"a.txt", BYTES("[1, 2]"), "[1, 2]|", NULL, {0}},
    {"a.txt", BYTES("["), "[|", NULL, {0}},

    /* lists and what stands around them */
    {"a.json", BYTES("[{\"text\":\"a\"}],"), "!a.json:1: goes on behind its list", NULL, {0}},
    {"a.json", BYTES("[{\"text\":\"a\"}]]"), "!a.json:1: goes on behind its", NULL, {0}},
    {"a.json",
     BYTES("{\"text\":\"a\"}\n[{\"text\":\"b\"}]"),
     "!a.json:2: this is no JSON object, but a list",
     NULL,
     {0}},
    {"a.json",
     BYTES("{\n\"text\":\"a\"\n},\n{\"text\":\"b\"}"),
     "!a.json:3 (row 2): no JSON",
     NULL,
     {0}},
    {"a.json",
     BYTES("[\n\n{\"text\":\n1},\n\nnull]"),
     "!a.json:3 (row 1): its 'text' is a number, and no text; line 6 (row 2): this is no JSON "
     "object, but null",
     NULL,
     {0}},

    {"a.json", BYTES("{\n\"text\":\"a\"}{\"text\":\"b\"}"), "a|b|", NULL, {0}},
    {"a.json", BYTES("[{\"text\":\"a\"}{\"text\":\"b\"}]"), "a|b|", NULL, {0}},
    {"a.json", BYTES("[{\"text\":\"a\\\\\"},{\"text\":\"\\\"}\"}]"), "a\\|\"}|", NULL, {0}},
    {"a.json", BYTES("[true,{\"text\":\"a\"},12 ,\"x\"\n]"), "a|", NULL, SKIP},
    {"a.json",
     BYTES("[true,{\"text\":\"a\"},12 ,\"x\"\n]"),
     "!a.json:1 (row 1): this is no JSON object, but true; line 1 (row 3): this is no JSON "
     "object, but a number; line 1 (row 4): this is no JSON object, but a text; 3 rows are "
     "broken",
     NULL,
     {0}},
    {"a.json", BYTES("[{\"text\":\"a\"},[{\"text\":1}],{\"n\":[1,{}],\"text\":\"b\"}]"), "a|b|",
     NULL, SKIP},

    /* texts, whole and by lines */
    {"a.txt", BYTES(""), "", NULL, {0}},
    {"a.txt", BYTES("\xef\xbb\xbf"), "", NULL, {0}},
    {"a.txt", BYTES("\xef\xbb"), "\xef\xbb|", NULL, TEXT},
    {"a.txt", BYTES("a\r\n"), "a\r\n|", NULL, {0}},
    {"a.txt", BYTES("a\r\n\n\r\nb"), "a|b|", NULL, SPLIT},
    {"a.txt", BYTES("a\r"), "a\r|", NULL, {0}},

    /* texts that only look like JSON */
    {"chapter.txt", BYTES("[Chapter 1]\nwords\n"), "[Chapter 1]\nwords\n|", NULL, {0}},
    {"a.tex", BYTES("{\\bf x}\n"), "{\\bf x}\n|", NULL, {0}},
    {"wiki.txt", BYTES("{{Infobox}}\n"), "{{Infobox}}\n|", NULL, {0}},
    {"quote.txt", BYTES("\"a\": 1\n"), "\"a\": 1\n|", NULL, {0}},
    {"few.txt", BYTES("a\0b"), "a\0b|", NULL, {0}},
    {"twice.jsonl", BYTES("{\"text\":\"a\",\"text\":\"b\"}"), "b|", NULL, {0}},

    /* packed, whatever the name says */
    {"a.gz", BYTES(ONE_GZIP), "one|", "gzip", {0}},
    {"a.xz", BYTES(ONE_XZ), "one|", "xz", {0}},
    {"a.bz2", BYTES(ONE_BZIP2), "one|", "bzip2", {0}},
    {"a.zst", BYTES(ONE_ZSTD), "one|", "zstd", {0}},
    {"many.gz", BYTES(ONE_GZIP ONE_GZIP ZEROS), "one|one|", "gzip", {0}},
    {"many.xz", BYTES(ONE_XZ ZEROS ONE_XZ), "one|one|", "xz", {0}},
    {"many.bz2", BYTES(ONE_BZIP2 ONE_BZIP2), "one|one|", "bzip2", {0}},
    {"many.zst", BYTES(ONE_ZSTD SKIPPED_ZSTD ONE_ZSTD), "one|one|", "zstd", {0}},
    {"first.zst", BYTES(SKIPPED_ZSTD ONE_ZSTD), "one|", "zstd", {0}},
    {"text", BYTES(ONE_XZ), LINE "|", "xz", TEXT},
    {"junk.gz",
     BYTES(ONE_GZIP "junk"),
     "!junk.gz is damaged, as gzip before byte 39: incorrect header",
     "gzip",
     {0}},
    {"junk.xz",
     BYTES(ONE_XZ "junk behind it"),
     "!junk.xz is damaged, as xz before byte 82: no header of xz",
     "xz",
     {0}},
    {"cut.gz",
     ONE_GZIP,
     33,
     "!cut.gz is truncated: the end of the gzip is missing",
     "gzip",
     {0}},
    {"cut.xz", ONE_XZ, 60, "!cut.xz is truncated: the end of the xz is missing", "xz", {0}},
    {"cut.bz2",
     ONE_BZIP2,
     40,
     "!cut.bz2 is truncated: the end of the bzip2 is missing",
     "bzip2",
     {0}},
    {"cut.zst",
     ONE_ZSTD,
     20,
     "!cut.zst is truncated: the end of the zstd is missing",
     "zstd",
     {0}},
    {"a.txt", BYTES("BZh01AY&SY all"), "BZh01AY&SY all|", NULL, {0}},
    {"a.txt", BYTES("BZh:1AY&SY all"), "BZh:1AY&SY all|", NULL, {0}},
    {"a.txt", BYTES("BZh91AY&SX all"), "BZh91AY&SX all|", NULL, {0}},
    {"a.txt", BYTES("BZh91AY&S"), "BZh91AY&S|", NULL, {0}},
    {"empty.bz2", BYTES("BZh9\x17\x72\x45\x38\x50\x90\0\0\0\0"), "", "bzip2", {0}},
    {"bad.gz",
     BYTES("\x1f\x8b\x08\0\0\0\0\0\x02\x03\xff\xff\xff\xff"),
     "!bad.gz is damaged, as gzip",
     "gzip",
     {0}},
    {"bad.bz2",
     BYTES("BZh91AY&SYdamaged all over, all of it"),
     "!bad.bz2 is damaged, as bzip2",
     "bzip2",
     {0}},
    {"bad.zst",
     BYTES("\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
     "!bad.zst is damaged, as zstd",
     "zstd",
     {0}},
    {"bad.xz",
     BYTES("\xfd\x37\x7a\x58\x5a\0damaged all over"),
     "!bad.xz is damaged, as xz",
     "xz",
     {0}},

    /* other kinds of files */
    {"a.txt",
     BYTES("\xff\xfeh\0i\0"),
     "!a.txt is UTF-16 text, which is not read: write it as UTF-8: iconv -f UTF-16 -t",
     NULL,
     {0}},
    {"a.txt", BYTES("\xfe\xff\0h\0i"), "!is UTF-16 text", NULL, {0}},
    {"a.txt",
     BYTES("h\0i\0"),
     "!is UTF-16 text, which is not read: write it as UTF-8: iconv -f UTF-16LE",
     NULL,
     {0}},
    {"a.txt", BYTES("\0h\0i"), "!iconv -f UTF-16BE", NULL, {0}},
    {"chinese.txt",
     BYTES("\x60\x4f\x7d\x59\x16\x4e\x4c\x75\n\0\x8b\x8f\x2f\x66\x00\x4e\n\0"),
     "!is UTF-16 text",
     NULL,
     {0}},
    {"russian.txt",
     BYTES("\x3c\x04\x38\x04\x40\x04 \0\x3c\x04\x38\x04\x40\x04\n\0"),
     "!iconv -f UTF-16LE",
     NULL,
     {0}},
    {"a.orc", BYTES("ORC\n\x03\0\0"), "!is an ORC file", NULL, {0}},
    {"a.txt", BYTES("\xff\xfe\0\0h\0\0\0"), "!is UTF-32 text", NULL, {0}},
    {"a.parquet",
     BYTES("PAR1\x15\x04\x15"),
     "!a.parquet is a Parquet file, which is not read: write it as JSON lines",
     NULL,
     {0}},
    {"a.arrow", BYTES("ARROW1\0\0"), "!is an Arrow file", NULL, {0}},
    {"a.zip", BYTES("PK\x03\x04\x14"), "!is a zip archive", NULL, {0}},
    {"a.jsonl", BYTES("PK\x03\x04\x14"), "!is a zip archive", NULL, {0}},
    {"a.7z", BYTES("7z\xbc\xaf\x27\x1c"), "!is a 7-Zip archive", NULL, {0}},
    {"a.h5", BYTES("\x89HDF\r\n\x1a\n"), "!is an HDF5 file", NULL, {0}},
    {"a.npy", BYTES("\x93NUMPY\x01"), "!is a NumPy array", NULL, {0}},
    {"a.pkl",
     BYTES("\x80\x04\x95"),
     "!is a pickle of Python, which could run programs",
     NULL,
     {0}},
    {"a.lz4",
     BYTES("\x04\x22\x4d\x18"),
     "!is packed by lz4, which is not read: unpack it: lz4 -d FILE",
     NULL,
     {0}},
    {"a.pdf",
     BYTES("%PDF-1.4\n"),
     "!is a PDF document, which is not read: write it as text: pdftotext",
     NULL,
     {0}},
    {"a.png", BYTES("\x89PNG\r\n\x1a\n"), "!is a PNG picture", NULL, {0}},
    {"a.db", BYTES("SQLite format 3\0"), "!is a database of SQLite", NULL, {0}},
    {"a.idx", BYTES("MMIDIDX\0\0\x01"), "!is an index of Megatron's tokens", NULL, {0}},
    {"a.jsonl",
     BYTES("version https://git-lfs.github.com/spec/v1\noid"),
     "!is a pointer of Git LFS, not the file itself",
     NULL,
     {0}},
    {"noise",
     BYTES(ZEROS ZEROS ZEROS ZEROS "\1\2\3\4\5\6\7abcdefgh"),
     "!noise is no text: 39 of its first 47 bytes are control characters; --format text",
     NULL,
     {0}},
    {"a.txt", BYTES("PAR1\x15\x04"), "PAR1\x15\x04|", NULL, TEXT},

    /* few controls, or few among many bytes, are text; those that texts have are none */
    {"31",
     BYTES(SEVEN SEVEN SEVEN SEVEN "\1\1\x7f"),
     SEVEN SEVEN SEVEN SEVEN "\1\1\x7f|",
     NULL,
     {0}},
    {"32", BYTES(SEVEN SEVEN SEVEN SEVEN "\1\1\1\x7f"), "!32 of its first 32 bytes", NULL, {0}},
    {"blanks",
     BYTES(BLANKS BLANKS BLANKS BLANKS BLANKS BLANKS),
     BLANKS BLANKS BLANKS BLANKS BLANKS BLANKS "|",
     NULL,
     {0}},
    {"a.txt", BYTES("h\0"), "h\0|", NULL, {0}},
    {"a.txt", BYTES("abcdefg\0abcdefg\0"), "!UTF-16LE", NULL, {0}},
    {"a.txt", BYTES("abcdefghi\0abcdefg\0"), "abcdefghi\0abcdefg\0|", NULL, {0}},
    {"a.txt", BYTES("a\0b\0\0cd"), "a\0b\0\0cd|", NULL, {0}},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static char told[2048];

static void listen(void *context, rp_log_level level, const char *line) {
    (void)context, (void)level;
    snprintf(told, sizeof told, "%s", line);
}

static const char *put(const char *name, const char *bytes, size_t count) {
    static char path[700];
    snprintf(path, sizeof path, "%s/%s", check_folder(), name);
    FILE *stream = fopen(path, "wb");
    if (stream) fwrite(bytes, 1, count, stream), fclose(stream);
    return path;
}

/* All documents, each followed by '|', in `out`. */
static rp_status read_all(rpi_text_source *source, rpi_text *out) {
    for (bool done = false;;) {
        rpi_document document;
        RP_TRY(rpi_text_source_next(source, &done, &document));
        if (done) return RP_OK;
        RP_TRY(rpi_text_append(out, document.text, document.bytes));
        RP_TRY(rpi_text_append(out, "|", 1));
    }
}

static rp_status read_row(const row *r, rpi_text *out) {
    rpi_text_source *source = NULL;
    const char *path = put(r->name, r->bytes, r->count);
    rpi_text_source_options options = r->options;
    options.paths = &path;
    options.path_count = 1;
    RP_TRY(rpi_text_source_open(&options, &source));
    rp_status status = read_all(source, out);
    rpi_text_source_close(source);
    return status;
}

static bool is_built(const char *name) {
    const rpi_packing *packing;
    for (int i = 0; name && (packing = rpi_packing_at(i)) != NULL; i++)
        if (strcmp(packing->name, name) == 0) return packing->step != NULL;
    return true;
}

/* A wanted text may hold NULs: its end is the last '|'. */
static size_t wanted_bytes(const char *wanted) {
    size_t bytes = strlen(wanted);
    if (!bytes) return 0;
    while (wanted[bytes - 1] != '|') bytes += 1 + strlen(wanted + bytes + 1);
    return bytes;
}

static void check_row(const row *r) {
    rpi_text got = {0};
    rp_status status = read_row(r, &got);
    if (!is_built(r->packing)) {
        CHECK_EQ(status, RP_UNSUPPORTED);
        CHECK(strstr(rp_last_error()->message, "apt-get install"));
    } else if (r->wanted[0] == '!') {
        CHECK_MSG(status != RP_OK && strstr(rp_last_error()->message, r->wanted + 1),
                  "%s: status %d, '%s', not '%s'", r->name, status,
                  status ? rp_last_error()->message : "", r->wanted + 1);
    } else {
        size_t bytes = wanted_bytes(r->wanted);
        CHECK_MSG(status == RP_OK && got.count == bytes &&
                      (!bytes || !memcmp(got.at, r->wanted, bytes)),
                  "%s: '%.*s', not '%s' (%s)", r->name, (int)got.count, got.at ? got.at : "",
                  r->wanted, status ? rp_last_error()->message : "");
    }
    rpi_text_free(&got);
}

static void every_row_is_read_or_named(void) {
    rp_log_set_sink(listen, NULL);
    for (int i = 0; i < ROWS; i++) check_row(&rows[i]);
    rp_log_set_sink(NULL, NULL);
}

/* A tar archive of one empty file, "a", without a magic. */
static void old_tar_archives_are_known(void) {
    static char tar[1024];
    unsigned sum = 0;
    rpi_text got = {0};
    strcpy(tar, "a");
    strcpy(tar + 100, "0000644");
    memset(tar + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += (unsigned char)tar[i];
    snprintf(tar + 148, 8, "%06o", sum);
    row r = {"a.tar", tar, sizeof tar, "!a.tar is a tar archive, which is not read", NULL, {0}};
    check_row(&r);
    rpi_text_free(&got);
}

/* What is left out is told once, with what is wrong, and counted. */
static void rows_that_are_left_out_are_told(void) {
    rpi_text got = {0};
    rpi_text_source *source = NULL;
    static const char text[] = LINE "{}\n{\"text\":null}\n" LINE;
    const char *path = put("told.jsonl", text, sizeof text - 1);
    rpi_text_source_options options = {.paths = &path, .path_count = 1, .skip_broken = true};
    rp_log_set_sink(listen, NULL);
    REQUIRE_OK(rpi_text_source_open(&options, &source));
    CHECK_OK(read_all(source, &got));
    CHECK_EQ(rpi_text_source_broken(source), 2);
    CHECK_MSG(strstr(told, "2 rows are broken and left out: ") && strstr(told, ":2: no text") &&
                  strstr(told, "line 3: its 'text' is null"),
              "%s", told);
    told[0] = '\0';
    rpi_text_source_rewind(source);
    CHECK_OK(read_all(source, &got));
    CHECK_MSG(told[0] == '\0', "%s", told);
    CHECK_EQ(rpi_text_source_broken(source), 2);
    rp_log_set_sink(NULL, NULL);
    rpi_text_source_close(source);
    rpi_text_free(&got);
}

/* How many, of how many, and in which number of words. */
static void broken_rows_are_counted_in_words(void) {
    static const struct {
        int count, all;
        bool skips;
        const char *begin, *end; /* of what is told, or else of the failure */
    } cases[] = {
        {1, 0, true, "1 row is broken and left out: a.jsonl:1: no 0", "no 0"},
        {1, 9, true, "1 of 9 rows is broken and left out: a.jsonl:1: no 0", "no 0"},
        {2, 0, true, "2 rows are broken and left out: a.jsonl:1: no 0; line 2: no 1", "no 1"},
        {5, 6, true, "5 of 6 rows are broken and left out: ", "; line 5: no 4"},
        {6, 7, true, "6 of 7 rows are broken and left out: ", "; line 5: no 4; ..."},
        {1, 1, true, "a.jsonl:1: no 0; ", "no 0; --skip-broken leaves none of 1 rows"},
        {3, 3, true, "a.jsonl:1: no 0; ", "; --skip-broken leaves none of 3 rows"},
        {1, 9, false, "a.jsonl:1: no 0; ", "no 0; --skip-broken leaves it out"},
        {2, 9, false, "a.jsonl:1: no 0; ",
         "no 1; 2 of 9 rows are broken; --skip-broken leaves them out"},
        {4, 0, false, "a.jsonl:1: no 0; ",
         "no 3; 4 rows are broken; --skip-broken leaves them out"},
        {5, 0, false, "a.jsonl:1: no 0; ",
         "no 4; 5 rows and perhaps more are broken; --skip-broken leaves them out"},
        {6, 8, false, "a.jsonl:1: no 0; ",
         "no 4; 6 of 8 rows are broken; --skip-broken leaves them out"},
    };
    rp_log_set_sink(listen, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rpi_broken_rows rows_of = {.path = "a.jsonl", .unit = "row", .skips = cases[i].skips};
        for (int n = 0; n < cases[i].count; n++) {
            CHECK_EQ(rpi_broken_rows_are_enough(&rows_of), !cases[i].skips && n >= 5);
            CHECK_OK(
                rpi_broken_rows_add(&rows_of, RP_FAIL(CORRUPT, "no %d", n), n + 1, 0, NULL));
        }
        rp_status status = rpi_broken_rows_end(&rows_of, cases[i].all);
        bool is_read = cases[i].skips && cases[i].count != cases[i].all;
        CHECK_EQ(status, is_read ? RP_OK : RP_CORRUPT);
        if (is_read) rpi_broken_rows_tell(&rows_of, cases[i].all);
        const char *said = is_read ? told : rp_last_error()->message;
        size_t length = strlen(said), end = strlen(cases[i].end);
        CHECK_MSG(strstr(said, cases[i].begin) == said && length >= end &&
                      strcmp(said + length - end, cases[i].end) == 0,
                  "case %zu: '%s'", i, said);
    }
    rp_log_set_sink(NULL, NULL);
}

/* What is no row's own fault ends the reading; how a place is named, and no more than fits. */
static void places_of_broken_rows_are_named(void) {
    static char why[600];
    rpi_broken_rows rows_of = {.path = "a.json", .unit = "question"};
    CHECK_EQ(rpi_broken_rows_add(&rows_of, RP_FAIL(IO, "gone"), 1, 0, NULL), RP_IO);
    CHECK_EQ(rows_of.count, 0);
    CHECK_OK(rpi_broken_rows_end(&rows_of, 0));
    CHECK_OK(rpi_broken_rows_add(&rows_of, RP_FAIL(INVALID, "none"), 0, 0, "question 7"));
    CHECK_OK(rpi_broken_rows_add(&rows_of, RP_FAIL(CORRUPT, "none"), 0, 0, "question 8"));
    CHECK_OK(rpi_broken_rows_add(&rows_of, RP_FAIL(CORRUPT, "none"), 9, 0, NULL));
    CHECK(!strcmp(rows_of.text,
                  "a.json: question 7: none; question 8: the same; line 9: the same"));
    CHECK_EQ(rpi_broken_rows_end(&rows_of, 0), RP_INVALID); /* as the first */
    memset(why, 'y', sizeof why - 1);
    rows_of = (rpi_broken_rows){.path = "a.json", .unit = "row"};
    for (int n = 0; n < 5; n++)
        CHECK_OK(rpi_broken_rows_add(&rows_of, RP_FAIL(CORRUPT, "%d%s", n, why), n, 0, NULL));
    CHECK(strlen(rows_of.text) < sizeof rows_of.text && strstr(rows_of.text, "; line 3: 3yyy"));
}

static void json_under_another_name_is_told(void) {
    rpi_text got = {0};
    row r = {"notes.txt", BYTES(LINE), "one|", NULL, {0}};
    told[0] = '\0';
    rp_log_set_sink(listen, NULL);
    check_row(&r);
    rp_log_set_sink(NULL, NULL);
    CHECK_MSG(strstr(told, "notes.txt holds JSON: ") && strstr(told, "--format text"), "%s",
              told);
    rpi_text_free(&got);
}

/* Documents longer than what is looked at first, whatever comes in pieces. */
static void long_documents_are_whole(void) {
    enum { LETTERS = 200000 };
    static const char *const frames[][2] = {
        {"{\"text\":\"", "\"}\n"}, {"[{\"text\":\"", "\"}]"}, {"{\n\"text\":\"", "\"\n}"}};
    char *text = malloc(LETTERS + 100);
    for (int f = 0; f < 3; f++) {
        rpi_text got = {0};
        int head = sprintf(text, "%s", frames[f][0]);
        for (int i = 0; i < LETTERS; i++) text[head + i] = (char)('a' + i % 26);
        int tail = sprintf(text + head + LETTERS, "%s", frames[f][1]);
        row r = {"c4.json", text, (size_t)(head + LETTERS + tail), "", NULL, {0}};
        CHECK_OK(read_row(&r, &got));
        CHECK_EQ(got.count, LETTERS + 1);
        CHECK(got.count > LETTERS && !memcmp(got.at, text + head, LETTERS));
        rpi_text_free(&got);
    }
    free(text);
}

/* Two streams, each longer unpacked than what is read at once. */
static void long_streams_are_unpacked(void) {
    for (size_t i = 0; i < sizeof long_packed / sizeof long_packed[0]; i++) {
        rpi_text got = {0};
        size_t count = long_packed[i].count;
        if (!is_built(long_packed[i].packing)) continue;
        char *twice = malloc(2 * count);
        memcpy(twice, long_packed[i].bytes, count);
        memcpy(twice + count, long_packed[i].bytes, count);
        row r = {"long", twice, 2 * count, "", NULL, {0}};
        CHECK_OK(read_row(&r, &got));
        REQUIRE(got.count == 2 * LONG_PACKED_LETTERS + 1);
        int wrong = 0;
        for (int at = 0; at < 2 * LONG_PACKED_LETTERS; at++)
            wrong += got.at[at] != 'a' + at % LONG_PACKED_LETTERS % 26;
        CHECK_MSG(wrong == 0, "%s: %d letters are wrong", long_packed[i].packing, wrong);
        for (size_t bad = count / 2; bad < count; bad += 7) { /* none of them is passed over */
            memcpy(twice, long_packed[i].bytes, count);
            twice[bad] = (char)(twice[bad] ^ 0x55);
            got.count = 0;
            rp_status status = read_row(&r, &got);
            CHECK_MSG(status != RP_OK || got.count == 2 * LONG_PACKED_LETTERS + 1,
                      "%s: byte %zu is broken, and %zu letters are read",
                      long_packed[i].packing, bad, got.count);
        }
        rpi_text_free(&got);
        free(twice);
    }
}

static void tables_that_are_read_as_text_are_told(void) {
    row r = {"rows.csv", BYTES("id,text\n1,one\n"), "id,text\n1,one\n|", NULL, {0}};
    told[0] = '\0';
    rp_log_set_sink(listen, NULL);
    check_row(&r);
    CHECK_MSG(strstr(told, "rows.csv is read as text, with its commas"), "%s", told);
    told[0] = '\0';
    r.options.format = RPI_FORMAT_TEXT;
    check_row(&r);
    CHECK_MSG(!told[0], "%s", told);
    rp_log_set_sink(NULL, NULL);
}

CASES({"every row is read or named", every_row_is_read_or_named},
      {"old tar archives are known", old_tar_archives_are_known},
      {"rows that are left out are told", rows_that_are_left_out_are_told},
      {"broken rows are counted in words", broken_rows_are_counted_in_words},
      {"places of broken rows are named", places_of_broken_rows_are_named},
      {"json under another name is told", json_under_another_name_is_told},
      {"tables that are read as text are told", tables_that_are_read_as_text_are_told},
      {"long documents are whole", long_documents_are_whole},
      {"long streams are unpacked", long_streams_are_unpacked})
