/* Tokens on disk: what is written is read, other people's layouts too, and what does not fit is
 * refused with its file and offset. Texts become documents in order, whatever the threads. */
#include "harness/check.h"

#include "base/memory.h"
#include "net/bytes/endian.h"
#include "train/data/token_file.h"
#include "train/data/tokenize.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static char *path_of(const char *name) {
    static char paths[4][600];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, 600, "%s/%s", check_folder(), name);
    return path;
}

static void put(const char *name, const void *data, size_t bytes) {
    FILE *stream = fopen(path_of(name), "wb");
    if (!stream) return;
    fwrite(data, 1, bytes, stream);
    fclose(stream);
}

static void put_packed(const char *name, const char *text, bool whole) {
    gzFile file = gzopen(path_of(name), "wb");
    gzwrite(file, text, (unsigned)strlen(text));
    gzclose(file);
    struct stat facts;
    CHECK(stat(path_of(name), &facts) == 0);
    if (!whole) CHECK(truncate(path_of(name), facts.st_size - 6) == 0);
}

/* ---- writing and reading back ---- */

static bool exists(const char *name) {
    struct stat facts;
    return stat(path_of(name), &facts) == 0;
}

typedef struct run {
    const char *paths[4];
    int path_count, threads;
    bool split_lines, strict;
    const char *key;
} run;

static rp_status tokenize(const run *r, const char *out, rpi_tokenize_totals *totals) {
    rpi_tokenizer *tokenizer = NULL;
    rpi_text_source *source = NULL;
    rpi_token_writer *writer = NULL;
    rpi_text_source_options text = {.paths = r->paths,
                                    .path_count = r->path_count,
                                    .key = r->key,
                                    .split_lines = r->split_lines};
    rpi_tokenize_options options = {
        .threads = r->threads ? r->threads : 1, .has_end = true, .end = 256};
    RP_TRY(rpi_tokenizer_open("byte", &tokenizer));
    rp_status status = rpi_text_source_open(&text, &source);
    if (status == RP_OK) status = rpi_token_writer_open(path_of(out), tokenizer, &writer);
    if (status == RP_OK) {
        status = rpi_tokenize(tokenizer, source, writer, &options, totals);
        status = rpi_token_writer_close(writer, status);
    }
    rpi_text_source_close(source);
    rpi_tokenizer_close(tokenizer);
    return status;
}

static void check_document(const rpi_token_file *file, int64_t document, const char *text) {
    uint32_t ids[64];
    int64_t first = rpi_token_file_end(file, document - 1);
    int64_t count = rpi_token_file_end(file, document) - first;
    CHECK_EQ(count, strlen(text) + 1);
    if (count > 64 || count != (int64_t)strlen(text) + 1) return;
    CHECK_OK(rpi_token_file_read(file, first, count, ids));
    for (int64_t i = 0; i < count - 1; i++) CHECK_EQ(ids[i], (uint8_t)text[i]);
    CHECK_EQ(ids[count - 1], 256);
    CHECK_EQ(rpi_token_file_document(file, first), document);
    CHECK_EQ(rpi_token_file_document(file, first + count - 1), document);
}

static void reads_text_lines_and_json(void) {
    put("a.txt", "one\ntwo\r\n\n", 10);
    put_packed("b.txt.gz", "three", true);
    put("c.jsonl",
        "{\"text\":\"four\",\"id\":1}\n\n{\"id\":2,\"text\":\"\"}\n{\"text\":\"f\\u00efve\"}",
        strlen("{\"text\":\"four\",\"id\":1}\n\n{\"id\":2,\"text\":\"\"}\n{\"text\":"
               "\"f\\u00efve\"}"));
    char paths[3][600];
    static const char *const names[] = {"a.txt", "b.txt.gz", "c.jsonl"};
    run r = {.path_count = 3, .split_lines = true};
    for (int i = 0; i < 3; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", check_folder(), names[i]);
        r.paths[i] = paths[i];
    }
    rpi_tokenize_totals totals;
    rpi_token_file *file = NULL;
    REQUIRE_OK(tokenize(&r, "lines", &totals));
    REQUIRE_OK(rpi_token_file_open(path_of("lines"), &file));
    static const char *const wanted[] = {"one", "two", "three", "four", "f\xc3\xafve"};
    CHECK_EQ(file->documents, 5);
    for (int i = 0; i < 5 && file->documents == 5; i++) check_document(file, i, wanted[i]);
    CHECK_EQ(totals.documents, 5);
    CHECK_EQ(totals.tokens, file->count);
    CHECK(file->vocabulary == 257 && file->token_bytes == 2);
    rpi_token_file_close(file);
    r.split_lines = false;
    REQUIRE_OK(tokenize(&r, "whole", &totals));
    REQUIRE_OK(rpi_token_file_open(path_of("whole.ds"), &file));
    CHECK_EQ(file->documents, 4);
    check_document(file, 0, "one\ntwo\r\n\n");
    rpi_token_file_close(file);
}

static void another_tokenizer_leaves_nothing_of_the_first(void) {
    rpi_token_file *file;
    rpi_tokenize_totals totals;
    put("words.txt", "one two", 7);
    put("again.tokenizer.json", "{}", 2);
    put("again.tokenizer_config.json", "{}", 2);
    char path[600];
    snprintf(path, sizeof path, "%s/words.txt", check_folder());
    run r = {.paths = {path}, .path_count = 1};
    REQUIRE_OK(tokenize(&r, "again", &totals));
    CHECK(!exists("again.tokenizer.json") && !exists("again.tokenizer_config.json"));
    REQUIRE_OK(rpi_token_file_open(path_of("again.ds"), &file));
    CHECK(file->vocabulary == 257 && !file->tokenizer_json);
    rpi_token_file_close(file);
}

static void threads_keep_the_order(void) {
    enum { LINES = 60000 };
    FILE *stream = fopen(path_of("many.txt"), "wb");
    REQUIRE(stream);
    for (int i = 0; i < LINES; i++)
        fprintf(stream, "%d%.*s\n", i, i % 97,
                ".............................................................................."
                "......................");
    fclose(stream);
    char path[600];
    snprintf(path, sizeof path, "%s", path_of("many.txt"));
    for (int threads = 1; threads <= 5; threads += 4) {
        run r = {.paths = {path}, .path_count = 1, .threads = threads, .split_lines = true};
        rpi_tokenize_totals totals;
        rpi_token_file *file = NULL;
        REQUIRE_OK(tokenize(&r, "many", &totals));
        REQUIRE_OK(rpi_token_file_open(path_of("many"), &file));
        CHECK_EQ(file->documents, LINES);
        for (int i = 0; i < LINES && check_failures() == 0; i += 37) {
            uint32_t ids[8];
            char number[16];
            int length = snprintf(number, sizeof number, "%d", i);
            CHECK_OK(rpi_token_file_read(file, rpi_token_file_end(file, i - 1), length, ids));
            for (int d = 0; d < length; d++) CHECK_EQ(ids[d], (uint8_t)number[d]);
        }
        rpi_token_file_close(file);
    }
}

static void check_refused(const char *name, const char *content, size_t bytes, rp_status wanted,
                          const char *says) {
    char path[600];
    if (content) put(name, content, bytes);
    snprintf(path, sizeof path, "%s", path_of(name));
    run r = {.paths = {path}, .path_count = 1, .threads = 2};
    rpi_tokenize_totals totals;
    rp_status status = tokenize(&r, "refused", &totals);
    CHECK_MSG(status == wanted && strstr(rp_last_error()->message, says), "%s: %s", name,
              rp_last_error()->message);
    CHECK(!exists("refused.ds") && !exists("refused.ds.tmp") && !exists("refused.ds.index"));
    CHECK(!exists("refused.ds.metadata") && !exists("refused.ds.metadata.tmp"));
}

static void bad_texts_leave_nothing(void) {
    check_refused("none.txt", NULL, 0, RP_NOT_FOUND, "none.txt is missing");
    check_refused("empty.txt", "", 0, RP_INVALID, "no documents");
    check_refused("bad.jsonl", "{\"text\":\"a\"}\n{\"text\":", 21, RP_CORRUPT,
                  "bad.jsonl:2: no JSON");
    check_refused("two.jsonl", "{\"text\":\"a\"} {\"text\":\"b\"}\n", 26, RP_CORRUPT,
                  "two.jsonl:1: goes on behind its JSON");
    check_refused("key.jsonl", "{\"body\":\"a\",\"id\":1}\n", 20, RP_CORRUPT,
                  "key.jsonl:1: no text under the key 'text'; there are body, id; --key");
    put_packed("cut.txt.gz", "some text that is long enough", false);
    check_refused("cut.txt.gz", NULL, 0, RP_CORRUPT, "cut.txt.gz is truncated");
    CHECK(mkdir(path_of("folder.txt"), 0777) == 0);
    check_refused("folder.txt", NULL, 0, RP_CORRUPT, "folder.txt is a folder");
}

/* A NUL is a character like any other; half a character is none, and a backslash no escape. */
#define NO_CHARACTER "\xef\xbf\xbd"
static void escapes_of_json_lines_are_whole(void) {
    static const char lines[] = "{\"text\":\"a\\u0000b\"}\n{\"text\":"
                                "\"\\\\u0000\\uD83d\\ude00\"}\n{\"text\":\"\\ud83dx\\uDE00"
                                "\"}\n{\"x\":\"\\u0000\",\"text\":\"\xc0\x80\xc0!\"}\n";
    static const struct {
        const char *bytes;
        int count;
    } wanted[] = {{"a\0b", 3},
                  {"\\u0000\xf0\x9f\x98\x80", 10},
                  {NO_CHARACTER "x" NO_CHARACTER, 7},
                  {NO_CHARACTER NO_CHARACTER NO_CHARACTER "!", 10}};
    char path[600];
    rpi_tokenize_totals totals;
    rpi_token_file *file = NULL;
    uint32_t ids[16];
    put("escapes.jsonl", lines, sizeof lines - 1);
    snprintf(path, sizeof path, "%s", path_of("escapes.jsonl"));
    run r = {.paths = {path}, .path_count = 1};
    REQUIRE_OK(tokenize(&r, "escapes", &totals));
    REQUIRE_OK(rpi_token_file_open(path_of("escapes"), &file));
    CHECK_EQ(file->documents, 4);
    CHECK(totals.repaired == 2 && totals.replaced == 5);
    for (int d = 0; d < 4 && file->documents == 4; d++) {
        int64_t first = rpi_token_file_end(file, d - 1);
        CHECK_EQ(rpi_token_file_end(file, d) - first, wanted[d].count + 1);
        CHECK_OK(rpi_token_file_read(file, first, wanted[d].count, ids));
        for (int i = 0; i < wanted[d].count; i++) CHECK_EQ(ids[i], (uint8_t)wanted[d].bytes[i]);
    }
    rpi_token_file_close(file);
}

static bool stop_at_once(void *context, int64_t done, int64_t total) {
    (void)context;
    (void)done;
    (void)total;
    return true;
}

static void a_stop_leaves_nothing(void) {
    put("stop.txt", "text", 4);
    char path[600];
    snprintf(path, sizeof path, "%s", path_of("stop.txt"));
    const char *paths[] = {path};
    rpi_text_source_options text = {.paths = paths, .path_count = 1};
    rpi_tokenize_options options = {.threads = 2, .progress = stop_at_once};
    rpi_tokenizer *tokenizer = NULL;
    rpi_text_source *source = NULL;
    rpi_token_writer *writer = NULL;
    rpi_tokenize_totals totals;
    REQUIRE_OK(rpi_tokenizer_open("byte", &tokenizer));
    REQUIRE_OK(rpi_text_source_open(&text, &source));
    REQUIRE_OK(rpi_token_writer_open(path_of("stopped"), tokenizer, &writer));
    options.threads = 0;
    CHECK_FAILS(rpi_tokenize(tokenizer, source, writer, &options, &totals), INVALID,
                "0 threads; 1 to 256 are allowed");
    options.threads = 2;
    rp_status status = rpi_tokenize(tokenizer, source, writer, &options, &totals);
    CHECK_FAILS(rpi_token_writer_close(writer, status), CANCELLED, "nothing was written");
    CHECK(!exists("stopped.ds") && !exists("stopped.ds.tmp"));
    rpi_text_source_close(source);
    rpi_tokenizer_close(tokenizer);
}

/* ---- nanosets that do not fit ---- */

static void put_nanoset(const char *metadata, size_t token_bytes, const uint64_t *ends,
                        int documents) {
    static const uint8_t tokens[64] = {1, 0, 2, 0, 1, 1, 3};
    uint8_t index[64];
    for (int i = 0; i < documents; i++) rpi_put_u64(index + 8 * i, ends[i]);
    put("n.ds", tokens, token_bytes);
    put("n.ds.index", index, 8 * (size_t)documents);
    put("n.ds.metadata", metadata, strlen(metadata));
}

static void refuses_nanosets_that_do_not_fit(void) {
    rpi_token_file *file = NULL;
    uint32_t ids[8];
    const uint64_t good[] = {2, 4}, back[] = {3, 2}, beyond[] = {2, 5}, few[] = {2, 3};
    char path[600];
    snprintf(path, sizeof path, "%s", path_of("n"));
    put_nanoset("byte|2\n4\n4", 8, good, 2);
    REQUIRE_OK(rpi_token_file_open(path, &file));
    /* 0x0101 is 257, one too many. */
    CHECK_FAILS(rpi_token_file_read(file, 0, 4, ids), CORRUPT,
                "n.ds: token 257 at offset 4; the vocabulary of byte has 257 tokens");
    CHECK_OK(rpi_token_file_read(file, 0, 2, ids));
    CHECK_FAILS(rpi_token_file_read(file, 3, 2, ids), INVALID, "tokens 3 to 5; there are 4");
    rpi_token_file_close(file);
    put_nanoset("byte|2\n5\n5", 8, good, 2);
    CHECK_FAILS(rpi_token_file_open(path, &file), CORRUPT, "n.ds holds 4 tokens");
    put_nanoset("byte|2\n4\n4", 8, back, 2);
    CHECK_FAILS(rpi_token_file_open(path, &file), CORRUPT,
                "n.ds.index: document 1 ends at token 2");
    put_nanoset("byte|2\n4\n4", 8, beyond, 2);
    CHECK_FAILS(rpi_token_file_open(path, &file), CORRUPT, "of 4 (offset 8)");
    put_nanoset("byte|2\n4\n4", 8, few, 2);
    CHECK_FAILS(rpi_token_file_open(path, &file), CORRUPT, "the documents end at token 3");
    put_nanoset("byte|2\n4\n4", 7, good, 2);
    CHECK_FAILS(rpi_token_file_open(path, &file), CORRUPT, "no whole number of tokens");
    put_nanoset("byte|3\n4\n4", 8, good, 2);
    CHECK_FAILS(rpi_token_file_open(path, &file), CORRUPT, "'byte|3' is not");
    put_nanoset("byte", 8, good, 2);
    CHECK_FAILS(rpi_token_file_open(path, &file), CORRUPT, "n.ds.metadata");
    put_nanoset("byte|2\n0\n0", 0, good, 0);
    CHECK_FAILS(rpi_token_file_open(path, &file), CORRUPT, "n.ds");
    unlink(path_of("n.ds.metadata"));
    CHECK_FAILS(rpi_token_file_open(path, &file), NOT_FOUND, "n.ds.metadata is missing");
    CHECK_FAILS(rpi_token_file_open(path_of("nothing"), &file), NOT_FOUND, "no tokens at");
}

/* ---- llm.c ---- */

static void put_llmc(const char *name, uint32_t magic, uint32_t version, uint32_t said,
                     size_t token_bytes, const uint32_t *ids, size_t count) {
    uint8_t data[1024 + 64] = {0};
    rpi_put_u32(data, magic);
    rpi_put_u32(data + 4, version);
    rpi_put_u32(data + 8, said);
    for (size_t i = 0; i < count; i++) {
        if (token_bytes == 2) rpi_put_u16(data + 1024 + 2 * i, (uint16_t)ids[i]);
        if (token_bytes == 4) rpi_put_u32(data + 1024 + 4 * i, ids[i]);
    }
    put(name, data, 1024 + token_bytes * count);
}

static void reads_llmc(void) {
    static const uint32_t ids[] = {50256, 7, 9, 11}, large[] = {128000, 5};
    uint32_t got[8];
    rpi_token_file *file = NULL;
    put_llmc("s_000001.bin", 20240520, 1, 3, 2, ids, 3);
    put_llmc("s_000002.bin", 20240520, 1, 4, 2, ids, 4);
    REQUIRE_OK(rpi_token_file_open(path_of("s_*.bin"), &file));
    CHECK(file->count == 7 && file->documents == 2 && file->part_count == 2);
    CHECK_OK(rpi_token_file_read(file, 1, 5, got));
    static const uint32_t across[] = {7, 9, 50256, 7, 9};
    CHECK(memcmp(got, across, sizeof across) == 0);
    CHECK_EQ(rpi_token_file_document(file, 3), 1);
    rpi_token_file_close(file);
    put_llmc("l3.bin", 20240801, 7, 2, 4, large, 2);
    REQUIRE_OK(rpi_token_file_open(path_of("l3.bin"), &file));
    CHECK_OK(rpi_token_file_read(file, 0, 2, got));
    CHECK(got[0] == 128000 && got[1] == 5 && file->token_bytes == 4);
    rpi_token_file_close(file);
    put_llmc("s_000003.bin", 20240801, 7, 2, 4, large, 2);
    CHECK_FAILS(rpi_token_file_open(path_of("s_*.bin"), &file), CORRUPT, "another version");
    put_llmc("s_000003.bin", 20240520, 1, 3, 2, large, 2);
    CHECK_FAILS(rpi_token_file_open(path_of("s_*.bin"), &file), CORRUPT,
                "s_000003.bin holds 2 tokens, and its header says 3");
    put_llmc("s_000003.bin", 20240520, 2, 2, 2, large, 2);
    CHECK_FAILS(rpi_token_file_open(path_of("s_*.bin"), &file), CORRUPT, "version 2");
    put_llmc("none.bin", 20240520, 1, 0, 2, ids, 0); /* whole, but a header alone */
    CHECK_FAILS(rpi_token_file_open(path_of("none.bin"), &file), CORRUPT, "holds no tokens");
    put("short.bin", "abc", 3);
    CHECK_FAILS(rpi_token_file_open(path_of("short.bin"), &file), CORRUPT, "truncated");
    CHECK_FAILS(rpi_token_file_open(path_of("x*.bin"), &file), NOT_FOUND, "no file is named");
}

/* ---- ids without a header ---- */

/* Types, and what the same eight bytes are of each. */
static void reads_ids_without_a_header(void) {
    static const uint8_t bytes[] = {1, 0, 0, 0, 2, 1, 0, 0};
    static const struct {
        const char *prefix;
        int count;
        uint32_t ids[8];
    } rows[] = {{"uint8:", 8, {1, 0, 0, 0, 2, 1, 0, 0}},
                {"uint16:", 4, {1, 0, 258, 0}},
                {"uint32:", 2, {1, 258}},
                {"int32:", 2, {1, 258}}};
    char path[700];
    rpi_token_file *file = NULL;
    uint32_t ids[8];
    put("train.bin", bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(path, sizeof path, "%s%s", rows[i].prefix, path_of("train.bin"));
        REQUIRE_OK(rpi_token_file_open(path, &file));
        CHECK(file->count == rows[i].count && file->documents == 1 && !file->vocabulary);
        CHECK_OK(rpi_token_file_read(file, 0, file->count, ids));
        CHECK(memcmp(ids, rows[i].ids, (size_t)rows[i].count * sizeof *ids) == 0);
        rpi_token_file_close(file);
    }
    put("train_2.bin", bytes, 6);
    snprintf(path, sizeof path, "uint16:%s", path_of("train*.bin"));
    REQUIRE_OK(rpi_token_file_open(path, &file));
    CHECK(file->count == 7 && file->documents == 2);
    rpi_token_file_close(file);
}

static void ids_without_a_header_are_noticed(void) {
    uint8_t bytes[2048];
    char path[700], says[800];
    rpi_token_file *file = NULL;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i % 2 ? 0 : i % 199);
    for (size_t count = 1000; count <= sizeof bytes; count += 1048) {
        put("nano.bin", bytes, count);
        snprintf(
            says, sizeof says,
            "; ids of 2 bytes without a header, as nanoGPT writes them, are read as uint16:%s",
            path_of("nano.bin"));
        CHECK_FAILS(rpi_token_file_open(path_of("nano.bin"), &file), CORRUPT, says);
    }
    put("odd.bin", bytes, 1001);
    snprintf(path, sizeof path, "uint16:%s", path_of("odd.bin"));
    CHECK_FAILS(rpi_token_file_open(path, &file), CORRUPT, "no whole number of tokens of 2");
    CHECK_FAILS(rpi_token_file_open("uint16:/nowhere.bin", &file), NOT_FOUND,
                "no file is named");
    static const struct {
        const char *bytes, *says;
    } others[] = {
        {"\x93NUMPY\1", "is a NumPy array, and no ids without a header"},
        {"\x93NUMPYodd", "is a NumPy array, and no ids without a header"},
        {"PK\3\4....", "is a zip archive"},
        {"\x1f\x8b\x08\x01....", "is packed by gzip"},
        {"\x28\xb5\x2f\xfd....", "is packed by zstd"},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        put("other.bin", others[i].bytes, strlen(others[i].bytes));
        snprintf(path, sizeof path, "uint16:%s", path_of("other.bin"));
        CHECK_FAILS(rpi_token_file_open(path, &file), UNSUPPORTED, others[i].says);
    }
    put("empty.bin", bytes, 0);
    snprintf(path, sizeof path, "uint16:%s", path_of("empty.bin"));
    CHECK_FAILS(rpi_token_file_open(path, &file), CORRUPT, "holds no tokens");
}

/* ---- Megatron ---- */

typedef struct megatron {
    uint64_t version, sequences, documents;
    uint8_t type;
    uint32_t lengths[3];
    uint64_t offsets[3], firsts[3];
    bool modes;
    size_t cut; /* bytes off the end */
} megatron;

static const megatron sound = {.version = 1,
                               .sequences = 3,
                               .documents = 3,
                               .type = 8,
                               .lengths = {2, 1, 3},
                               .offsets = {0, 4, 6},
                               .firsts = {0, 2, 3}};

static void put_megatron(const megatron *m) {
    uint8_t data[200] = "MMIDIDX\0";
    uint8_t *at = data + 34;
    rpi_put_u64(data + 9, m->version);
    data[17] = m->type;
    rpi_put_u64(data + 18, m->sequences);
    rpi_put_u64(data + 26, m->documents);
    for (int i = 0; i < 3; i++, at += 4) rpi_put_u32(at, m->lengths[i]);
    for (int i = 0; i < 3; i++, at += 8) rpi_put_u64(at, m->offsets[i]);
    for (int i = 0; i < 3; i++, at += 8) rpi_put_u64(at, m->firsts[i]);
    if (m->modes) at += 3;
    put("m.idx", data, (size_t)(at - data) - m->cut);
    static const uint8_t tokens[] = {1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0};
    put("m.bin", tokens, sizeof tokens);
}

static void check_megatron(const megatron *m, const char *says) {
    rpi_token_file *file = NULL;
    put_megatron(m);
    CHECK_FAILS(rpi_token_file_open(path_of("m"), &file), CORRUPT, says);
}

static void reads_megatron(void) {
    rpi_token_file *file = NULL;
    uint32_t ids[6];
    megatron m = sound;
    for (int modes = 0; modes < 2; modes++) {
        m.modes = modes;
        put_megatron(&m);
        REQUIRE_OK(rpi_token_file_open(path_of(modes ? "m.bin" : "m"), &file));
        CHECK(file->count == 6 && file->documents == 2 && file->token_bytes == 2);
        CHECK_EQ(rpi_token_file_end(file, 0), 3);
        CHECK_OK(rpi_token_file_read(file, 0, 6, ids));
        for (uint32_t i = 0; i < 6; i++) CHECK_EQ(ids[i], i + 1);
        rpi_token_file_close(file);
    }
    m = sound, m.type = 7;
    check_megatron(&m, "type 7 at offset 17");
    m = sound, m.lengths[1] = 2;
    check_megatron(&m, "sequence 2 has 3 tokens at byte 6");
    m = sound, m.lengths[0] = (uint32_t)-2;
    check_megatron(&m, "sequence 0");
    m = sound, m.lengths[2] = 4;
    check_megatron(&m, "the sequences end at byte 14");
    m = sound, m.firsts[0] = 1;
    check_megatron(&m, "document 0 begins with sequence 1");
    m = sound, m.firsts[1] = 9;
    check_megatron(&m, "document 1 begins with sequence 9");
    m = sound, m.firsts[2] = 2;
    check_megatron(&m, "document 2 begins with sequence 2");
    m = sound, m.sequences = 1ull << 60;
    check_megatron(&m, "do not hold its");
    m = sound, m.cut = 1;
    check_megatron(&m, "do not hold its 3 sequences and 2 documents");
    m = sound, m.version = 2;
    put_megatron(&m);
    CHECK_FAILS(rpi_token_file_open(path_of("m"), &file), UNSUPPORTED, "version 2");
    m = sound, m.type = 2;
    m.offsets[1] = 2, m.offsets[2] = 3, m.lengths[2] = 9;
    put_megatron(&m);
    put("m.bin", "\1\2\3\4\5\6\7\10\11\12\13\xff", 12);
    REQUIRE_OK(rpi_token_file_open(path_of("m"), &file));
    uint32_t twelve[12];
    CHECK_FAILS(rpi_token_file_read(file, 0, 12, twelve), CORRUPT,
                "m.bin: -1 at offset 11 is no token");
    rpi_token_file_close(file);
}

CASES({"reads_text_lines_and_json", reads_text_lines_and_json},
      {"another_tokenizer_leaves_nothing_of_the_first",
       another_tokenizer_leaves_nothing_of_the_first},
      {"threads_keep_the_order", threads_keep_the_order},
      {"escapes_of_json_lines_are_whole", escapes_of_json_lines_are_whole},
      {"bad_texts_leave_nothing", bad_texts_leave_nothing},
      {"a_stop_leaves_nothing", a_stop_leaves_nothing},
      {"refuses_nanosets_that_do_not_fit", refuses_nanosets_that_do_not_fit},
      {"reads_llmc", reads_llmc}, {"reads_ids_without_a_header", reads_ids_without_a_header},
      {"ids_without_a_header_are_noticed", ids_without_a_header_are_noticed},
      {"reads_megatron", reads_megatron})
