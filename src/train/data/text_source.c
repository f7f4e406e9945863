#include "train/data/text_source.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/regular_file.h"
#include "train/texts/broken_rows.h"
#include "train/texts/json_row.h"

#include <string.h>
#include <unistd.h>

enum { LOOK_ON_ROWS = 1 << 17 }; /* behind a broken row, for more of them */

struct rpi_text_source {
    rpi_text_source_options options;
    int64_t *sizes; /* on the disk */
    int64_t total, done;
    int next_path; /* the open file is the one before */
    rpi_text_parts *file;
    rpi_broken_rows broken; /* of the open file */
    int64_t broken_before;  /* in those before */
    bool is_table_told;     /* that a file is a table by its name */
    bool is_told, is_again; /* that a file holds JSON; it is not the first time */
    cJSON *json;            /* of the row that is the document */
    rpi_text mended;
};

static const char *path_of(const rpi_text_source *s) {
    return s->options.paths[s->next_path - 1];
}

static void close_file(rpi_text_source *s) {
    if (!s->file) return;
    s->done += s->sizes[s->next_path - 1];
    s->broken_before += s->broken.count;
    s->broken = (rpi_broken_rows){0};
    rpi_text_parts_close(s->file);
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
    s->done = s->broken_before = 0;
    s->is_again = true;
}

void rpi_text_source_close(rpi_text_source *s) {
    if (!s) return;
    close_file(s);
    cJSON_Delete(s->json);
    rpi_text_free(&s->mended);
    rpi_free(s->sizes);
    rpi_free(s);
}

int64_t rpi_text_source_total(const rpi_text_source *s) {
    return s->total;
}

int64_t rpi_text_source_read(const rpi_text_source *s) {
    return s->done + (s->file ? rpi_text_parts_offset(s->file) : 0);
}

int64_t rpi_text_source_broken(const rpi_text_source *s) {
    return s->broken_before + s->broken.count;
}

/* ---- files ---- */

/* Where a name says nothing of JSON, a user may have meant its text. */
static void tell_json(rpi_text_source *s) {
    const char *path = path_of(s);
    if (s->is_told || s->is_again || rpi_text_parts_kind(s->file) == RPI_TEXT_PLAIN ||
        s->options.format == RPI_FORMAT_JSON || rpi_text_name_is_json(path))
        return;
    s->is_told = true;
    rpi_log(
        RP_LOG_WARNING,
        "%s holds JSON: what stands under '%s' is read of it, and of others alike; --format "
        "text takes the file as it is",
        path, s->options.key);
}

static void tell_table(rpi_text_source *s) {
    const char *path = path_of(s);
    if (s->is_table_told || s->is_again || s->options.format != RPI_FORMAT_AUTO ||
        rpi_text_parts_kind(s->file) != RPI_TEXT_PLAIN || !rpi_text_name_is_table(path))
        return;
    s->is_table_told = true;
    rpi_log(
        RP_LOG_WARNING,
        "%s is read as text, with its commas and names of columns, and so are others alike; "
        "one column as JSON lines: python -c \"import datasets; "
        "datasets.load_dataset('csv', data_files='FILE')['train'].to_json('NEW.jsonl')\"; "
        "--format text says that this is meant",
        path);
}

static rp_status open_file(rpi_text_source *s) {
    const char *path = s->options.paths[s->next_path++];
    s->broken = (rpi_broken_rows){.path = path, .unit = "row", .skips = s->options.skip_broken};
    RP_TRY(rpi_text_parts_open(path, s->options.format, s->options.split_lines, &s->file));
    tell_json(s);
    tell_table(s);
    return RP_OK;
}

static void end_file(rpi_text_source *s) {
    if (!s->is_again) rpi_broken_rows_tell(&s->broken, 0);
    close_file(s);
}

/* ---- documents ---- */

static rp_status take_json(rpi_text_source *s, rpi_text_part *part, rpi_document *out) {
    cJSON_Delete(s->json);
    s->json = NULL;
    RP_TRY(rpi_json_row_read(part, &s->json));
    return rpi_json_row_text(s->json, s->options.key, "--key names another", &s->mended,
                             &out->text, &out->bytes, &out->replaced);
}

static rp_status take(rpi_text_source *s, rpi_text_part *part, rpi_document *out) {
    *out = (rpi_document){.text = part->text,
                          .bytes = part->bytes,
                          .path = path_of(s),
                          .line = part->line,
                          .row = part->row};
    if (!part->is_json) return RP_OK;
    rp_status status = take_json(s, part, out);
    if (status == RP_OK) return RP_OK;
    out->bytes = 0;
    return rpi_broken_rows_add(&s->broken, status, part->line, part->row, NULL);
}

/* A row is broken, and that ends the run: which are the next of the file? */
static rp_status look_on(rpi_text_source *s) {
    for (int i = 0; i < LOOK_ON_ROWS && !rpi_broken_rows_are_enough(&s->broken); i++) {
        rpi_text_part part;
        rpi_document document;
        bool done = false;
        if (rpi_text_parts_next(s->file, &done, &part) != RP_OK || done) break;
        RP_TRY(take(s, &part, &document));
    }
    return rpi_broken_rows_end(&s->broken, 0);
}

rp_status rpi_text_source_next(rpi_text_source *s, bool *out_done, rpi_document *out) {
    for (;;) {
        rpi_text_part part;
        bool at_end = false;
        if (!s->file && s->next_path == s->options.path_count) {
            *out_done = true;
            return RP_OK;
        }
        if (!s->file) RP_TRY(open_file(s));
        RP_TRY(rpi_text_parts_next(s->file, &at_end, &part));
        if (at_end) {
            end_file(s);
            continue;
        }
        RP_TRY(take(s, &part, out));
        if (s->broken.count && !s->options.skip_broken) return look_on(s);
        *out_done = false;
        if (out->bytes) return RP_OK;
    }
}
