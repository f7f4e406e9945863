/* Ids one behind the other without a header, as prepare.py of nanoGPT writes train.bin and
 * val.bin: only a user knows of what type they are, and says it in front of the path:
 * "uint16:data/openwebtext/train.bin". Shards are named by a pattern, each is one document. */
#include "base/status.h"
#include "train/data/token_file.h"

#include <string.h>

extern const rpi_token_layout rpi_token_layout_raw;

static const struct {
    const char *prefix;
    rpi_token_type type;
} types[] = {
    {"uint8:", RPI_TOKEN_U8},  {"uint16:", RPI_TOKEN_U16}, {"uint32:", RPI_TOKEN_U32},
    {"int32:", RPI_TOKEN_I32}, {"int64:", RPI_TOKEN_I64},
};
enum { TYPES = sizeof types / sizeof types[0] };

static int find_type(const char *path) {
    for (int i = 0; i < TYPES; i++)
        if (strncmp(path, types[i].prefix, strlen(types[i].prefix)) == 0) return i;
    return TYPES;
}

size_t rpi_token_raw_prefix(const char *path) {
    int type = find_type(path);
    return type < TYPES ? strlen(types[type].prefix) : 0;
}

static bool recognises(const char *path) {
    return find_type(path) < TYPES;
}

/* What is no ids for sure, whose bytes would be read as some. */
static rp_status check_shard(const char *path, const rpi_mapped_file *file) {
    static const struct {
        const char *magic, *name, *advice;
    } others[] = {
        {"\x93NUMPY", "a NumPy array", "write its ids alone: numpy.load(FILE).tofile(NEW)"},
        {"PK\x03\x04", "a zip archive, as .npz and PyTorch's files are",
         "write its ids alone: array.tofile(NEW)"},
        {"\x1f\x8b\x08", "packed by gzip", "unpack it: gzip -d"},
        {"\x28\xb5\x2f\xfd", "packed by zstd", "unpack it: zstd -d"},
        {"\xfd"
         "7zXZ",
         "packed by xz", "unpack it: xz -d"},
        {"PAR1", "a Parquet file", "write its ids alone: array.tofile(NEW)"},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        size_t bytes = strlen(others[i].magic);
        if (file->count >= bytes && memcmp(file->bytes, others[i].magic, bytes) == 0)
            return RP_FAIL(UNSUPPORTED, "%s is %s, and no ids without a header: %s", path,
                           others[i].name, others[i].advice);
    }
    return RP_OK;
}

static rp_status add_shard(const char *path, rpi_token_file *file) {
    rp_status status = rpi_token_file_add_part(file, path, 0);
    const rpi_mapped_file *mapped =
        file->part_count > 0 ? &file->parts[file->part_count - 1].file : NULL;
    /* Before what their length says. */
    if (mapped && mapped->bytes && (status == RP_OK || status == RP_CORRUPT))
        RP_TRY(check_shard(path, mapped));
    return status;
}

static rp_status open_raw(const char *path, rpi_token_file *file) {
    rpi_token_file_set_type(file, types[find_type(path)].type);
    return rpi_token_file_add_shards(file, path + rpi_token_raw_prefix(path), add_shard);
}

const rpi_token_layout rpi_token_layout_raw = {
    .name = "raw",
    .summary = "ids without a header, as of nanoGPT: uint16:PATH (or uint8, uint32, int32, "
               "int64), shards by a pattern",
    .recognises = recognises,
    .open = open_raw,
};
