/* llm.c's layout: 256 numbers of 4 bytes (magic, version, count), then the tokens. Shards are
 * named by a pattern and come in the order of their names; each is one document, since nothing
 * says where others begin. */
#include "train/data/token_file.h"

#include "base/memory.h"
#include "net/bytes/endian.h"

#include <stdio.h>
#include <string.h>

enum { HEADER = 1024 };

static const struct {
    uint32_t magic, version;
    rpi_token_type type;
    uint32_t vocabulary;
    const char *tokenizer;
} versions[] = {
    {20240520, 1, RPI_TOKEN_U16, 50257, "gpt2"},
    {20240801, 7, RPI_TOKEN_U32, 128256, "llama3"},
};
enum { VERSIONS = sizeof versions / sizeof versions[0] };

static bool is_magic(uint32_t magic) {
    for (int i = 0; i < VERSIONS; i++)
        if (versions[i].magic == magic) return true;
    return false;
}

static bool recognises(const char *path) {
    uint8_t magic[4];
    size_t length = strlen(path);
    if (strpbrk(path, "*?[")) return true;
    if (length > 4 && strcmp(path + length - 4, ".bin") == 0) return true;
    FILE *stream = fopen(path, "rbe");
    size_t got = stream ? fread(magic, 1, sizeof magic, stream) : 0;
    if (stream) fclose(stream);
    return got == sizeof magic && is_magic(rpi_get_u32(magic));
}

/* A .bin may be anybody's; nanoGPT's have no header at all. */
static rp_status refuse(const rpi_mapped_file *file, uint32_t magic, uint32_t version) {
    return RP_FAIL(CORRUPT,
                   "%s is no file of tokens of llm.c: it begins with %u and version %u, not "
                   "20240520 and 1 or 20240801 and 7%s%s",
                   file->path, magic, version,
                   is_magic(magic) || file->count % 2
                       ? ""
                       : "; ids of 2 bytes without a header, as nanoGPT writes them, are read "
                         "as uint16:",
                   is_magic(magic) || file->count % 2 ? "" : file->path);
}

static rp_status check_header(const rpi_mapped_file *file, int *out_version) {
    uint32_t magic = file->count < 8 ? 0 : rpi_get_u32(file->bytes);
    uint32_t version = file->count < 8 ? 0 : rpi_get_u32(file->bytes + 4);
    if (file->count < HEADER && (is_magic(magic) || file->count < 8))
        return RP_FAIL(CORRUPT, "%s is truncated: %zu bytes, and its header has %d", file->path,
                       file->count, HEADER);
    for (int i = 0; i < VERSIONS; i++) {
        if (versions[i].magic != magic || versions[i].version != version) continue;
        *out_version = i;
        return RP_OK;
    }
    return refuse(file, magic, version);
}

static rp_status add_shard(const char *path, rpi_token_file *file) {
    rpi_mapped_file peek = {0};
    int version = 0;
    RP_TRY(rpi_mapped_file_open(path, &peek));
    rp_status status = check_header(&peek, &version);
    int64_t said = status == RP_OK ? (int32_t)rpi_get_u32(peek.bytes + 8) : 0;
    rpi_mapped_file_close(&peek);
    RP_TRY(status);
    if (file->part_count && versions[version].type != file->type)
        return RP_FAIL(CORRUPT, "%s is of another version than %s", path,
                       file->parts[0].file.path);
    rpi_token_file_set_type(file, versions[version].type);
    file->vocabulary = versions[version].vocabulary;
    if (!file->tokenizer) RP_TRY(rpi_strdup(versions[version].tokenizer, &file->tokenizer));
    RP_TRY(rpi_token_file_add_part(file, path, HEADER));
    int64_t count = file->parts[file->part_count - 1].count;
    return count == said ? RP_OK
                         : RP_FAIL(CORRUPT, "%s holds %lld tokens, and its header says %lld",
                                   path, (long long)count, (long long)said);
}

static rp_status open_llmc(const char *path, rpi_token_file *file) {
    return rpi_token_file_add_shards(file, path, add_shard);
}

const rpi_token_layout rpi_token_layout_llmc = {
    .name = "llm.c",
    .summary = "*.bin of versions 1 (GPT-2) and 7 (LLaMA-3), shards by a pattern",
    .recognises = recognises,
    .open = open_llmc,
};
