/* Ids one behind the other without a header, as prepare.py of nanoGPT writes train.bin and
 * val.bin: only a user knows of what type they are, and says it in front of the path:
 * "uint16:data/openwebtext/train.bin". Shards are named by a pattern, each is one document. */
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

static rp_status add_shard(const char *path, rpi_token_file *file) {
    return rpi_token_file_add_part(file, path, 0);
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
