/* Megatron's indexed layout: NAME.bin holds ids, NAME.idx says what they are:
 *
 *     "MMIDIDX\0\0", u64 version 1, u8 type, u64 sequences, u64 documents + 1,
 *     i32 lengths[], i64 byte offsets[], i64 the first sequence of each document [], and the
 * end, and where there are several modes, i8 modes[]
 */
#include "train/data/token_file.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "net/bytes/endian.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { HEADER = 34 };

static rp_status file_path(const char *path, const char *suffix, char out[RPI_PATH_BYTES]) {
    size_t length = strlen(path);
    if (length > 4 &&
        (strcmp(path + length - 4, ".idx") == 0 || strcmp(path + length - 4, ".bin") == 0))
        length -= 4;
    int bytes = snprintf(out, RPI_PATH_BYTES, "%.*s%s", (int)length, path, suffix);
    return bytes < RPI_PATH_BYTES ? RP_OK : RP_FAIL(INVALID, "the path %s is too long", path);
}

static bool recognises(const char *path) {
    char name[RPI_PATH_BYTES];
    struct stat facts;
    return strlen(path) + 8 < sizeof name && file_path(path, ".idx", name) == RP_OK &&
           stat(name, &facts) == 0;
}

typedef struct megatron_index {
    const char *path;
    int64_t sequences, documents; /* the latter with the one past the end */
    const uint8_t *lengths, *offsets, *firsts;
} megatron_index;

static rp_status set_type(const megatron_index *index, uint8_t code, rpi_token_file *file) {
    static const int types[] = {
        -1, RPI_TOKEN_U8, RPI_TOKEN_I8, RPI_TOKEN_I16, RPI_TOKEN_I32, RPI_TOKEN_I64,
        -1, -1,           RPI_TOKEN_U16};
    if (code >= sizeof types / sizeof types[0] || types[code] < 0)
        return RP_FAIL(CORRUPT,
                       "%s: type %u at offset 17 is none of ids; there are 1 u8, 2 i8, 3 i16, "
                       "4 i32, 5 i64, 8 u16",
                       index->path, code);
    rpi_token_file_set_type(file, (rpi_token_type)types[code]);
    return RP_OK;
}

/* The header, and that the lists behind it are as long as it says. */
static rp_status read_header(const rpi_mapped_file *map, megatron_index *index,
                             rpi_token_file *file) {
    static const char magic[] = "MMIDIDX\0";
    index->path = map->path;
    if (map->count < HEADER || memcmp(map->bytes, magic, 9) != 0)
        return RP_FAIL(CORRUPT, "%s is no index of Megatron: it does not begin with MMIDIDX",
                       map->path);
    uint64_t version = rpi_get_u64(map->bytes + 9), sequences = rpi_get_u64(map->bytes + 18),
             documents = rpi_get_u64(map->bytes + 26), left = map->count - HEADER;
    if (version != 1)
        return RP_FAIL(UNSUPPORTED, "%s has version %llu; only 1 is supported", map->path,
                       (unsigned long long)version);
    RP_TRY(set_type(index, map->bytes[17], file));
    bool fits = sequences <= left / 12 && documents <= left / 8 && sequences && documents > 1;
    uint64_t lists = fits ? 12 * sequences + 8 * documents : 0;
    if (!fits || (left != lists && left != lists + sequences))
        return RP_FAIL(CORRUPT,
                       "%s has %zu bytes, which do not hold its %llu sequences and %llu "
                       "documents",
                       map->path, map->count, (unsigned long long)sequences,
                       (unsigned long long)(documents ? documents - 1 : 0));
    index->sequences = (int64_t)sequences;
    index->documents = (int64_t)documents;
    index->lengths = map->bytes + HEADER;
    index->offsets = index->lengths + 4 * sequences;
    index->firsts = index->offsets + 8 * sequences;
    return RP_OK;
}

/* Sequences lie one behind the other, without gaps. */
static rp_status check_sequences(const megatron_index *index, const rpi_token_file *file) {
    int64_t at = 0, bytes = file->token_bytes;
    for (int64_t i = 0; i < index->sequences; i++) {
        int64_t length = (int32_t)rpi_get_u32(index->lengths + 4 * i);
        int64_t offset = (int64_t)rpi_get_u64(index->offsets + 8 * i);
        if (length < 0 || offset != at)
            return RP_FAIL(CORRUPT,
                           "%s: sequence %lld has %lld tokens at byte %lld; the one before "
                           "ends at byte %lld",
                           index->path, (long long)i, (long long)length, (long long)offset,
                           (long long)at);
        at += length * bytes;
    }
    if (at != file->count * bytes)
        return RP_FAIL(CORRUPT, "%s: the sequences end at byte %lld; %s has %lld", index->path,
                       (long long)at, file->parts[0].file.path,
                       (long long)(file->count * bytes));
    return RP_OK;
}

static rp_status add_ends(const megatron_index *index, rpi_token_file *file) {
    int64_t count = index->documents - 1, bytes = file->token_bytes, before = 0;
    RP_TRY(rpi_alloc_array((size_t)count, 8, "documents", &file->own_ends));
    for (int64_t i = 0; i <= count; i++) {
        int64_t first = (int64_t)rpi_get_u64(index->firsts + 8 * i);
        bool fits = i == 0       ? first == 0
                    : i == count ? first == index->sequences
                                 : first >= before && first <= index->sequences;
        if (!fits)
            return RP_FAIL(CORRUPT,
                           "%s: document %lld begins with sequence %lld, the one before with "
                           "%lld, of %lld",
                           index->path, (long long)i, (long long)first, (long long)before,
                           (long long)index->sequences);
        uint64_t end = first == index->sequences ? (uint64_t)(file->count * bytes)
                                                 : rpi_get_u64(index->offsets + 8 * first);
        if (i > 0) rpi_put_u64(file->own_ends + 8 * (i - 1), end / (uint64_t)bytes);
        before = first;
    }
    file->ends = file->own_ends;
    file->documents = count;
    return rpi_token_file_check_ends(file, index->path);
}

static rp_status open_megatron(const char *path, rpi_token_file *file) {
    char name[RPI_PATH_BYTES];
    megatron_index index = {0};
    RP_TRY(file_path(path, ".idx", name));
    RP_TRY(rpi_mapped_file_open(name, &file->index));
    RP_TRY(read_header(&file->index, &index, file));
    RP_TRY(file_path(path, ".bin", name));
    RP_TRY(rpi_token_file_add_part(file, name, 0));
    RP_TRY(check_sequences(&index, file));
    return add_ends(&index, file);
}

const rpi_token_layout rpi_token_layout_megatron = {
    .name = "megatron",
    .summary = "NAME.bin with NAME.idx",
    .recognises = recognises,
    .open = open_megatron,
};
