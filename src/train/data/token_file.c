#include "train/data/token_file.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "net/bytes/endian.h"

#include <glob.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- mapped files ---- */

rp_status rpi_mapped_file_open(const char *path, rpi_mapped_file *out_file) {
    int fd = -1;
    int64_t bytes = 0;
    rpi_mapped_file file = {0};
    RP_TRY(rpi_regular_file_descriptor(path, &fd, &bytes));
    file.count = (size_t)bytes;
    rp_status status = rpi_strdup(path, &file.path);
    if (status == RP_OK && bytes > 0) {
        void *at = mmap(NULL, file.count, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at == MAP_FAILED)
            status = RP_FAIL_ERRNO(IO, "cannot map %s", path);
        else
            file.bytes = at;
    }
    close(fd);
    if (status == RP_OK)
        *out_file = file;
    else
        rpi_mapped_file_close(&file);
    return status;
}

void rpi_mapped_file_close(rpi_mapped_file *file) {
    if (file->bytes) munmap((void *)(uintptr_t)file->bytes, file->count);
    rpi_free(file->path);
    *file = (rpi_mapped_file){0};
}

/* ---- what layouts fill in ---- */

void rpi_token_file_close(rpi_token_file *file) {
    if (!file) return;
    for (int i = 0; i < file->part_count; i++) rpi_mapped_file_close(&file->parts[i].file);
    rpi_mapped_file_close(&file->index);
    rpi_free(file->parts);
    rpi_free(file->own_ends);
    rpi_free(file->tokenizer);
    rpi_free(file->tokenizer_json);
    rpi_free(file);
}

void rpi_token_file_set_type(rpi_token_file *file, rpi_token_type type) {
    static const int bytes[] = {1, 1, 2, 2, 4, 4, 8};
    file->type = type;
    file->token_bytes = bytes[type];
}

rp_status rpi_token_file_add_part(rpi_token_file *file, const char *path, size_t offset) {
    size_t count = (size_t)file->part_count, bytes = (size_t)file->token_bytes;
    RP_TRY(rpi_grow_array(count, count + 1, sizeof *file->parts, "parts", &file->parts));
    rpi_token_part part = {.offset = offset, .first = file->count};
    RP_TRY(rpi_mapped_file_open(path, &part.file));
    file->parts[file->part_count++] = part;
    if (part.file.count < offset)
        return RP_FAIL(CORRUPT, "%s is truncated: %zu bytes, and its header has %zu", path,
                       part.file.count, offset);
    if ((part.file.count - offset) % bytes)
        return RP_FAIL(CORRUPT, "%s: %zu bytes are no whole number of tokens of %zu", path,
                       part.file.count - offset, bytes);
    int64_t tokens = (int64_t)((part.file.count - offset) / bytes);
    file->parts[file->part_count - 1].count = tokens;
    file->count += tokens;
    return RP_OK;
}

static rp_status add_ends(rpi_token_file *file) {
    RP_TRY(rpi_alloc_array((size_t)file->part_count, 8, "documents", &file->own_ends));
    for (int i = 0; i < file->part_count; i++)
        rpi_put_u64(file->own_ends + 8 * (size_t)i,
                    (uint64_t)(file->parts[i].first + file->parts[i].count));
    file->ends = file->own_ends;
    file->documents = file->part_count;
    return RP_OK;
}

rp_status rpi_token_file_add_shards(rpi_token_file *file, const char *pattern,
                                    rp_status (*add)(const char *path, rpi_token_file *file)) {
    glob_t found;
    int code = glob(pattern, 0, NULL, &found);
    if (code == GLOB_NOMATCH) return RP_FAIL(NOT_FOUND, "no file is named %s", pattern);
    if (code != 0) return RP_FAIL(IO, "cannot look for %s", pattern);
    rp_status status = RP_OK;
    for (size_t i = 0; i < found.gl_pathc && status == RP_OK; i++)
        status = add(found.gl_pathv[i], file);
    globfree(&found);
    return status == RP_OK ? add_ends(file) : status;
}

rp_status rpi_token_file_check_ends(const rpi_token_file *file, const char *path) {
    int64_t before = 0;
    for (int64_t i = 0; i < file->documents; i++) {
        int64_t end = rpi_token_file_end(file, i);
        if (end < before || end > file->count)
            return RP_FAIL(CORRUPT,
                           "%s: document %lld ends at token %lld, behind one that ends at "
                           "%lld, of %lld (offset %lld)",
                           path, (long long)i, (long long)end, (long long)before,
                           (long long)file->count, (long long)(8 * i));
        before = end;
    }
    if (file->documents == 0 || before != file->count)
        return RP_FAIL(CORRUPT, "%s: the documents end at token %lld, and there are %lld", path,
                       (long long)before, (long long)file->count);
    return RP_OK;
}

/* ---- reading ---- */

static int64_t token_at(rpi_token_type type, const uint8_t *from) {
    switch (type) {
    case RPI_TOKEN_U8: return from[0];
    case RPI_TOKEN_I8: return (int8_t)from[0];
    case RPI_TOKEN_U16: return rpi_get_u16(from);
    case RPI_TOKEN_I16: return (int16_t)rpi_get_u16(from);
    case RPI_TOKEN_U32: return rpi_get_u32(from);
    case RPI_TOKEN_I32: return (int32_t)rpi_get_u32(from);
    default: return (int64_t)rpi_get_u64(from);
    }
}

static rp_status out_of_range(const rpi_token_file *file, const rpi_token_part *part,
                              size_t offset, int64_t token) {
    if (!file->vocabulary)
        return RP_FAIL(CORRUPT, "%s: %lld at offset %zu is no token", part->file.path,
                       (long long)token, offset);
    return RP_FAIL(CORRUPT, "%s: token %lld at offset %zu; the vocabulary%s%s has %u tokens",
                   part->file.path, (long long)token, offset, file->tokenizer ? " of " : "",
                   file->tokenizer ? file->tokenizer : "", file->vocabulary);
}

static rp_status read_part(const rpi_token_file *file, const rpi_token_part *part,
                           int64_t first, int64_t count, uint32_t *out) {
    size_t bytes = (size_t)file->token_bytes;
    size_t offset = part->offset + (size_t)(first - part->first) * bytes;
    const uint8_t *from = part->file.bytes + offset;
    int64_t limit = file->vocabulary ? file->vocabulary : UINT32_MAX;
    for (int64_t i = 0; i < count; i++, from += bytes) {
        int64_t token = token_at(file->type, from);
        if (token < 0 || token >= limit)
            return out_of_range(file, part, offset + (size_t)i * bytes, token);
        out[i] = (uint32_t)token;
    }
    return RP_OK;
}

rp_status rpi_token_file_read(const rpi_token_file *file, int64_t first, int64_t count,
                              uint32_t *out_ids) {
    if (first < 0 || count < 0 || first > file->count - count)
        return RP_FAIL(INVALID, "tokens %lld to %lld; there are %lld", (long long)first,
                       (long long)(first + count), (long long)file->count);
    for (int p = 0; p < file->part_count && count > 0; p++) {
        const rpi_token_part *part = &file->parts[p];
        int64_t left = part->first + part->count - first;
        if (left <= 0) continue;
        int64_t some = count < left ? count : left;
        RP_TRY(read_part(file, part, first, some, out_ids));
        first += some;
        count -= some;
        out_ids += some;
    }
    return RP_OK;
}

int64_t rpi_token_file_document(const rpi_token_file *file, int64_t token) {
    int64_t low = 0, high = file->documents - 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (rpi_token_file_end(file, middle) > token)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}
