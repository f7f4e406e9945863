#include "train/texts/text_parts.h"

#include "base/memory.h"
#include "train/texts/json_scan.h"
#include "train/texts/unpacked_file.h"
#include "train/tokenizers/tokenizer.h"

#include <stdio.h>
#include <string.h>

enum { BUFFER = RPI_TEXT_KIND_BYTES, JSON_MOST = 1 << 30 };

struct rpi_text_parts {
    rpi_unpacked_file *file;
    char *path;
    rpi_text_kind kind;
    bool splits_lines, is_begun, is_list, list_ended;
    int64_t line; /* of what comes next, from 1 on */
    int64_t row;  /* values so far */
    rpi_text part;
    size_t used, filled;
    char buffer[BUFFER];
};

const char *rpi_text_format_name(int format) {
    static const char *const names[RPI_FORMATS] = {"auto", "text", "json"};
    return format >= 0 && format < RPI_FORMATS ? names[format] : NULL;
}

const char *rpi_text_row_mark(int64_t row, char mark[RPI_ROW_MARK]) {
    mark[0] = '\0';
    if (row) snprintf(mark, RPI_ROW_MARK, " (row %lld)", (long long)row);
    return mark;
}

/* ---- opening ---- */

/* As much as the buffer holds, where the file has so much. */
static rp_status fill_whole(rpi_text_parts *p) {
    size_t got = 1;
    while (p->filled < BUFFER && got) {
        RP_TRY(
            rpi_unpacked_file_read(p->file, p->buffer + p->filled, BUFFER - p->filled, &got));
        p->filled += got;
    }
    return RP_OK;
}

static rp_status find_kind(rpi_text_parts *p, rpi_text_format format) {
    static const char mark[] = "\xef\xbb\xbf";
    if (p->filled >= 3 && memcmp(p->buffer, mark, 3) == 0) p->used = 3;
    const char *bytes = p->buffer + p->used;
    size_t count = p->filled - p->used;
    p->kind = RPI_TEXT_PLAIN;
    if (format == RPI_FORMAT_TEXT) return RP_OK;
    RP_TRY(rpi_text_kind_of(p->path, bytes, count, &p->kind));
    if (format == RPI_FORMAT_JSON && p->kind == RPI_TEXT_PLAIN) p->kind = RPI_TEXT_JSON_LINES;
    return RP_OK;
}

static rp_status open_file(rpi_text_parts *p, const char *path, rpi_text_format format) {
    RP_TRY(rpi_strdup(path, &p->path));
    RP_TRY(rpi_unpacked_file_open(path, &p->file));
    RP_TRY(fill_whole(p));
    return find_kind(p, format);
}

rp_status rpi_text_parts_open(const char *path, rpi_text_format format, bool split_lines,
                              rpi_text_parts **out_parts) {
    rpi_text_parts *p = NULL;
    RP_TRY(rpi_alloc(sizeof *p, "a text", &p));
    p->splits_lines = split_lines;
    p->line = 1;
    rp_status status = open_file(p, path, format);
    if (status == RP_OK)
        *out_parts = p;
    else
        rpi_text_parts_close(p);
    return status;
}

void rpi_text_parts_close(rpi_text_parts *p) {
    if (!p) return;
    rpi_unpacked_file_close(p->file);
    rpi_text_free(&p->part);
    rpi_free(p->path);
    rpi_free(p);
}

rpi_text_kind rpi_text_parts_kind(const rpi_text_parts *p) {
    return p->kind;
}

int64_t rpi_text_parts_offset(const rpi_text_parts *p) {
    return rpi_unpacked_file_offset(p->file);
}

/* ---- bytes ---- */

/* More bytes where the buffer is used up; p->used == p->filled: the file is at its end. */
static rp_status fill(rpi_text_parts *p) {
    if (p->used < p->filled) return RP_OK;
    p->used = p->filled = 0;
    return rpi_unpacked_file_read(p->file, p->buffer, sizeof p->buffer, &p->filled);
}

static rp_status append(rpi_text_parts *p, size_t count) {
    size_t most = p->kind == RPI_TEXT_PLAIN ? RPI_DOCUMENT_MOST : JSON_MOST;
    if (p->part.count + count > most)
        return RP_FAIL(INVALID, "%s: a document of more than %zu bytes%s", p->path, most,
                       p->kind == RPI_TEXT_PLAIN && !p->splits_lines
                           ? "; --split-lines makes each line a document"
                           : "");
    RP_TRY(rpi_text_append(&p->part, p->buffer + p->used, count));
    p->used += count;
    return RP_OK;
}

/* The whole of the file, or a line without its end. *out_any: there is one, maybe empty. */
static rp_status read_text(rpi_text_parts *p, bool whole, bool *out_any) {
    *out_any = false;
    for (;;) {
        RP_TRY(fill(p));
        size_t left = p->filled - p->used;
        if (left == 0) return RP_OK;
        *out_any = true;
        const char *end = whole ? NULL : memchr(p->buffer + p->used, '\n', left);
        RP_TRY(append(p, end ? (size_t)(end - (p->buffer + p->used)) : left));
        if (!end) continue;
        p->used++;
        p->line++;
        return RP_OK;
    }
}

/* ---- values: [{...}, {...}], or one behind the other ---- */

/* To the next value; *out_any: there is one. */
static rp_status skip_to_value(rpi_text_parts *p, bool *out_any) {
    *out_any = false;
    for (;; p->used++) {
        RP_TRY(fill(p));
        if (p->used == p->filled) break;
        char c = p->buffer[p->used];
        p->line += c == '\n';
        if (rpi_json_is_blank(c) || (c == ',' && p->is_list && !p->list_ended)) continue;
        if (p->list_ended)
            return RP_FAIL(CORRUPT, "%s:%lld: goes on behind its list", p->path,
                           (long long)p->line);
        *out_any = true;
        if (c != ']' || !p->is_list) return RP_OK;
        p->list_ended = true;
        *out_any = false;
    }
    if (!p->is_list || p->list_ended) return RP_OK;
    return RP_FAIL(CORRUPT, "%s is truncated: the list of objects does not end", p->path);
}

static rp_status read_value(rpi_text_parts *p) {
    rpi_json_scan scan = {0};
    for (bool ended = false; !ended;) {
        RP_TRY(fill(p));
        const char *at = p->buffer + p->used;
        if (p->used == p->filled) break;
        size_t bytes = rpi_json_scan_value(&scan, at, p->filled - p->used, &ended);
        for (size_t i = 0; i < bytes; i++) p->line += at[i] == '\n';
        RP_TRY(append(p, bytes));
    }
    return RP_OK;
}

static rp_status read_json_value(rpi_text_parts *p, int64_t *out_line, bool *out_any) {
    RP_TRY(skip_to_value(p, out_any));
    if (!p->is_begun && *out_any && p->buffer[p->used] == '[') {
        p->is_begun = p->is_list = true;
        p->used++;
        RP_TRY(skip_to_value(p, out_any));
    }
    p->is_begun = true;
    *out_line = p->line;
    p->row += *out_any;
    return *out_any ? read_value(p) : RP_OK;
}

/* ---- parts ---- */

static bool is_blank(const rpi_text *text) {
    for (size_t i = 0; i < text->count; i++)
        if (!rpi_json_is_blank(text->at[i])) return false;
    return true;
}

static rp_status read_part(rpi_text_parts *p, int64_t *out_line, bool *out_any) {
    p->part.count = 0;
    *out_line = p->line;
    if (p->kind == RPI_TEXT_JSON_VALUES) return read_json_value(p, out_line, out_any);
    bool whole = p->kind == RPI_TEXT_PLAIN && !p->splits_lines;
    RP_TRY(read_text(p, whole, out_any));
    if (whole) *out_line = 0;
    return RP_OK;
}

rp_status rpi_text_parts_next(rpi_text_parts *p, bool *out_done, rpi_text_part *out) {
    bool is_json = p->kind != RPI_TEXT_PLAIN, any = false;
    int64_t line = 0;
    do {
        RP_TRY(read_part(p, &line, &any));
        *out_done = !any;
        if (!any) return RP_OK;
    } while (is_json && is_blank(&p->part));
    RP_TRY(rpi_text_reserve(&p->part, 1));
    size_t bytes = p->part.count;
    if (line && bytes && p->part.at[bytes - 1] == '\r') bytes--;
    p->part.at[bytes] = '\0';
    *out = (rpi_text_part){.text = p->part.at,
                           .bytes = bytes,
                           .line = line,
                           .row = p->is_list || p->row > 1 ? p->row : 0,
                           .is_json = is_json};
    return RP_OK;
}
