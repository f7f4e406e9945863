#include "train/data/text_source.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "train/tokenizers/json_read.h"
#include "train/tokenizers/tokenizer.h"

#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { PIECE = 1 << 16, ZLIB_BUFFER = 1 << 17 };

struct rpi_text_source {
    rpi_text_source_options options;
    int64_t *sizes; /* on the disk */
    int64_t total, done;
    int next_path; /* the open file is the one before */
    gzFile file;
    int64_t line;
    rpi_text document;
    char buffer[PIECE];
    int used, filled;
    cJSON *json; /* of the line that is the document */
};

static bool ends_in(const char *path, const char *suffix) {
    size_t a = strlen(path), b = strlen(suffix);
    return a >= b && strcmp(path + a - b, suffix) == 0;
}

static bool is_json(const char *path) {
    return ends_in(path, ".jsonl") || ends_in(path, ".ndjson") || ends_in(path, ".jsonl.gz") ||
           ends_in(path, ".ndjson.gz");
}

static void close_file(rpi_text_source *s) {
    if (s->file) {
        gzclose(s->file);
        s->done += s->sizes[s->next_path - 1];
    }
    s->file = NULL;
}

static rp_status find_files(rpi_text_source *s) {
    if (s->options.path_count < 1) return RP_FAIL(INVALID, "no files are named: --in FILE...");
    RP_TRY(
        rpi_alloc_array((size_t)s->options.path_count, sizeof *s->sizes, "files", &s->sizes));
    for (int i = 0; i < s->options.path_count; i++) {
        int fd = -1;
        RP_TRY(rpi_regular_file_descriptor(s->options.paths[i], &fd, &s->sizes[i]));
        close(fd);
        s->total += s->sizes[i];
    }
    return RP_OK;
}

rp_status rpi_text_source_open(const rpi_text_source_options *options,
                               rpi_text_source **out_source) {
    rpi_text_source *s = NULL;
    RP_TRY(rpi_alloc(sizeof *s, "a source of text", &s));
    s->options = *options;
    if (!s->options.key) s->options.key = "text";
    rp_status status = find_files(s);
    if (status == RP_OK)
        *out_source = s;
    else
        rpi_text_source_close(s);
    return status;
}

void rpi_text_source_rewind(rpi_text_source *s) {
    close_file(s);
    s->next_path = 0;
    s->done = 0;
}

void rpi_text_source_close(rpi_text_source *s) {
    if (!s) return;
    close_file(s);
    cJSON_Delete(s->json);
    rpi_text_free(&s->document);
    rpi_free(s->sizes);
    rpi_free(s);
}

int64_t rpi_text_source_total(const rpi_text_source *s) {
    return s->total;
}

int64_t rpi_text_source_read(const rpi_text_source *s) {
    return s->done + (s->file ? gzoffset(s->file) : 0);
}

/* ---- bytes ---- */

static const char *path_of(const rpi_text_source *s) {
    return s->options.paths[s->next_path - 1];
}

static rp_status open_file(rpi_text_source *s) {
    int fd = -1;
    int64_t bytes = 0;
    const char *path = s->options.paths[s->next_path++];
    RP_TRY(rpi_regular_file_descriptor(path, &fd, &bytes));
    s->file = gzdopen(fd, "rb");
    if (!s->file) {
        close(fd);
        return RP_FAIL(NOMEM, "no memory to read %s", path);
    }
    gzbuffer(s->file, ZLIB_BUFFER);
    s->line = 0;
    s->used = s->filled = 0;
    return RP_OK;
}

/* More bytes into the buffer, which is used up; none: the file is at its end. */
static rp_status fill(rpi_text_source *s) {
    int got = gzread(s->file, s->buffer, sizeof s->buffer), code;
    const char *text = gzerror(s->file, &code);
    s->used = 0;
    s->filled = got > 0 ? got : 0;
    if (got > 0 || code == Z_OK) return RP_OK;
    if (code == Z_ERRNO) return RP_FAIL_ERRNO(IO, "cannot read %s", path_of(s));
    if (code == Z_BUF_ERROR)
        return RP_FAIL(CORRUPT, "%s is truncated: the end of the gzip is missing", path_of(s));
    return RP_FAIL(CORRUPT, "%s is damaged: %s", path_of(s), text);
}

static rp_status append(rpi_text_source *s, size_t count) {
    if (s->document.count + count > RPI_DOCUMENT_MOST)
        return RP_FAIL(INVALID, "%s: a document of more than %d bytes%s", path_of(s),
                       RPI_DOCUMENT_MOST,
                       is_json(path_of(s)) || s->options.split_lines
                           ? ""
                           : "; --split-lines makes each line a document");
    RP_TRY(rpi_text_append(&s->document, s->buffer + s->used, count));
    s->used += (int)count;
    return RP_OK;
}

/* Up to the end of the line, or of the file. */
static rp_status read_part(rpi_text_source *s, bool whole, bool *out_done) {
    s->document.count = 0;
    bool any = false;
    for (;;) {
        if (s->used == s->filled) RP_TRY(fill(s));
        size_t left = (size_t)(s->filled - s->used);
        if (left == 0) break;
        any = true;
        char *end = whole ? NULL : memchr(s->buffer + s->used, '\n', left);
        RP_TRY(append(s, end ? (size_t)(end - (s->buffer + s->used)) : left));
        if (!end) continue;
        s->used++;
        break;
    }
    s->line++;
    *out_done = !any;
    return RP_OK;
}

/* ---- documents ---- */

static rp_status names_there(const rpi_text_source *s, const cJSON *json) {
    char names[200] = "";
    size_t used = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, json) {
        if (!item->string || used + strlen(item->string) + 3 > sizeof names) break;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                 item->string);
    }
    return RP_FAIL(CORRUPT, "%s:%lld: no text under the key '%s'%s%s; --key names another",
                   path_of(s), (long long)s->line, s->options.key, *names ? "; there are " : "",
                   names);
}

static rp_status take_json(rpi_text_source *s, rpi_document *out) {
    cJSON_Delete(s->json);
    const char *end = NULL;
    bool longer = false;
    s->document.count = rpi_json_shield(s->document.at, s->document.count);
    s->json = rpi_json_whole(s->document.at, s->document.count, &end, &longer);
    if (!s->json)
        return RP_FAIL(CORRUPT, "%s:%lld: %s", path_of(s), (long long)s->line,
                       longer ? "goes on behind its JSON; a line holds one object" : "no JSON");
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(s->json, s->options.key);
    if (!cJSON_IsString(text)) return names_there(s, s->json);
    out->text = text->valuestring;
    out->bytes = rpi_json_unshield(text->valuestring);
    return RP_OK;
}

static bool is_blank(const rpi_text *text) {
    for (size_t i = 0; i < text->count; i++)
        if (!strchr(" \t\r\n", text->at[i]) || !text->at[i]) return false;
    return true;
}

static rp_status take(rpi_text_source *s, bool json, bool whole, rpi_document *out) {
    *out = (rpi_document){.text = s->document.at,
                          .bytes = s->document.count,
                          .path = path_of(s),
                          .line = whole ? 0 : s->line};
    if (json && is_blank(&s->document))
        out->bytes = 0;
    else if (json)
        RP_TRY(take_json(s, out));
    else if (!whole && out->bytes && out->text[out->bytes - 1] == '\r')
        out->bytes--;
    return RP_OK;
}

rp_status rpi_text_source_next(rpi_text_source *s, bool *out_done, rpi_document *out) {
    for (;;) {
        bool at_end = false;
        if (!s->file && s->next_path == s->options.path_count) {
            *out_done = true;
            return RP_OK;
        }
        if (!s->file) RP_TRY(open_file(s));
        bool json = is_json(path_of(s)), whole = !json && !s->options.split_lines;
        RP_TRY(read_part(s, whole, &at_end));
        if (at_end) {
            close_file(s);
            continue;
        }
        RP_TRY(take(s, json, whole, out));
        *out_done = false;
        if (out->bytes) return RP_OK;
    }
}
