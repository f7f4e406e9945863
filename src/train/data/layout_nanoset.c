/* Nanoset's layout (see token_writer.h), which is our own. */
#include "train/data/token_file.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "train/tokenizers/tokenizer.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { METADATA_MOST = 1 << 16 };

/* "data/kjv" of "data/kjv" and "data/kjv.ds"; then `suffix`. */
static rp_status file_path(const char *path, const char *suffix, char out[RPI_PATH_BYTES]) {
    size_t length = strlen(path);
    if (length > 3 && strcmp(path + length - 3, ".ds") == 0) length -= 3;
    int bytes = snprintf(out, RPI_PATH_BYTES, "%.*s%s", (int)length, path, suffix);
    return bytes < RPI_PATH_BYTES ? RP_OK : RP_FAIL(INVALID, "the path %s is too long", path);
}

static bool is_there(const char *path, const char *suffix) {
    char name[RPI_PATH_BYTES];
    struct stat facts;
    return strlen(path) + 20 < sizeof name && file_path(path, suffix, name) == RP_OK &&
           stat(name, &facts) == 0;
}

static bool recognises(const char *path) {
    return is_there(path, ".ds") || is_there(path, ".ds.metadata");
}

/* tokenizer|bytes a token, the count. */
static rp_status parse_metadata(const char *path, char *text, rpi_token_file *file,
                                int64_t *out_count) {
    char *end = strchr(text, '\n'), *bar;
    if (!end) return RP_FAIL(CORRUPT, "%s: the count of tokens is missing", path);
    *end = '\0';
    bar = strrchr(text, '|');
    if (!bar || (strcmp(bar, "|2") != 0 && strcmp(bar, "|4") != 0))
        return RP_FAIL(CORRUPT, "%s: '%.60s' is not a tokenizer and 2 or 4 bytes a token", path,
                       text);
    rpi_token_file_set_type(file, bar[1] == '2' ? RPI_TOKEN_U16 : RPI_TOKEN_U32);
    *bar = '\0';
    char *rest;
    long long count = strtoll(end + 1, &rest, 10);
    if (rest == end + 1 || (*rest && *rest != '\n') || count < 0)
        return RP_FAIL(CORRUPT, "%s: the second line is no count of tokens", path);
    *out_count = count;
    return rpi_strdup(text, &file->tokenizer);
}

static rp_status read_metadata(const char *path, rpi_token_file *file, int64_t *out_count) {
    char name[RPI_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    RP_TRY(file_path(path, ".ds.metadata", name));
    RP_TRY(rpi_regular_file_read(name, METADATA_MOST, &text, &bytes));
    rp_status status = parse_metadata(name, text, file, out_count);
    rpi_free(text);
    return status;
}

static rp_status open_index(const char *path, rpi_token_file *file) {
    char name[RPI_PATH_BYTES];
    RP_TRY(file_path(path, ".ds.index", name));
    RP_TRY(rpi_mapped_file_open(name, &file->index));
    if (file->index.count % 8)
        return RP_FAIL(CORRUPT, "%s: %zu bytes are no whole number of ends of 8", name,
                       file->index.count);
    file->ends = file->index.bytes;
    file->documents = (int64_t)(file->index.count / 8);
    return rpi_token_file_check_ends(file, name);
}

static rp_status find_tokenizer(const char *path, rpi_token_file *file) {
    char name[RPI_PATH_BYTES];
    if (strcmp(file->tokenizer, "byte") == 0) file->vocabulary = 257;
    if (!is_there(path, ".tokenizer.json")) return RP_OK;
    RP_TRY(file_path(path, ".tokenizer.json", name));
    rpi_tokenizer *tokenizer = NULL;
    RP_TRY(rpi_tokenizer_open(name, &tokenizer));
    file->vocabulary = rpi_tokenizer_size(tokenizer);
    rpi_tokenizer_close(tokenizer);
    return rpi_strdup(name, &file->tokenizer_json);
}

static rp_status open_nanoset(const char *path, rpi_token_file *file) {
    char name[RPI_PATH_BYTES];
    int64_t count = 0;
    RP_TRY(read_metadata(path, file, &count));
    RP_TRY(file_path(path, ".ds", name));
    RP_TRY(rpi_token_file_add_part(file, name, 0));
    if (file->count != count)
        return RP_FAIL(CORRUPT, "%s holds %lld tokens, and %s.metadata says %lld", name,
                       (long long)file->count, name, (long long)count);
    RP_TRY(open_index(path, file));
    return find_tokenizer(path, file);
}

const rpi_token_layout rpi_token_layout_nanoset = {
    .name = "nanoset",
    .summary = "NAME.ds, NAME.ds.index, NAME.ds.metadata",
    .recognises = recognises,
    .open = open_nanoset,
};
