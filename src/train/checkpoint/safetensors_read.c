#include "train/checkpoint/safetensors.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "engine/finite.h"
#include "net/bytes/frame.h"
#include "train/checkpoint/checksum.h"
#include "train/checkpoint/safetensors_dtype.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8 };
static const uint64_t longest_header = 100u << 20; /* the limit of the reference reader */
/* Of JSON values, which take about 80 bytes of memory each; a tensor has about ten. */
static const uint64_t most_values = 4u << 20;

typedef struct entry {
    rpi_named_tensor tensor; /* the name is the header's */
    uint64_t begin, end;     /* in the data */
} entry;

struct rpi_safetensors {
    char *path;
    FILE *stream;
    uint64_t data_at, data_bytes;
    cJSON *header;
    entry *entries; /* ordered by name, for lookups */
    int count;
    bool is_verified;
    uint32_t checksum;
};

static rp_status damaged(const rpi_safetensors *file, const char *what, const char *name) {
    return RP_FAIL(CORRUPT, "%s is no safetensors file: %s%s", file->path, what, name);
}

/* Reads a whole number that a double holds exactly. */
static bool whole(const cJSON *item, uint64_t *out_value) {
    if (!cJSON_IsNumber(item)) return false;
    double value = item->valuedouble;
    if (!(value >= 0 && value <= 9007199254740992.0) || value != (double)(uint64_t)value)
        return false;
    *out_value = (uint64_t)value;
    return true;
}

static rp_status read_shape(const rpi_safetensors *file, const cJSON *list, entry *e) {
    if (!cJSON_IsArray(list)) return damaged(file, "no shape for ", e->tensor.name);
    uint64_t count = 1;
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        uint64_t size;
        if (e->tensor.shape.dims == RPI_MAX_DIMS || !whole(item, &size) || size > INT64_MAX)
            return damaged(file, "a bad shape for ", e->tensor.name);
        if (__builtin_mul_overflow(count, size, &count) || count > INT64_MAX)
            return damaged(file, "too many elements for ", e->tensor.name);
        e->tensor.shape.size[e->tensor.shape.dims++] = (int64_t)size;
    }
    uint64_t bytes;
    if (__builtin_mul_overflow(count, rp_dtype_bytes(e->tensor.dtype), &bytes) ||
        bytes != e->end - e->begin)
        return damaged(file, "shape and offsets do not fit for ", e->tensor.name);
    return RP_OK;
}

static rp_status read_entry(const rpi_safetensors *file, const cJSON *object, entry *e) {
    e->tensor.name = object->string;
    if (!cJSON_IsObject(object)) return damaged(file, "no tensor under ", object->string);
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(object, "dtype");
    if (!cJSON_IsString(dtype)) return damaged(file, "no dtype for ", e->tensor.name);
    if (!rpi_safetensors_dtype_parse(dtype->valuestring, &e->tensor.dtype))
        return RP_FAIL(UNSUPPORTED,
                       "%s: %s is of dtype %.32s, which is not read: load it with the library "
                       "that wrote it, and save it as f32, bf16 or f16",
                       file->path, e->tensor.name, dtype->valuestring);
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(object, "data_offsets");
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
        !whole(cJSON_GetArrayItem(offsets, 0), &e->begin) ||
        !whole(cJSON_GetArrayItem(offsets, 1), &e->end) || e->begin > e->end)
        return damaged(file, "bad offsets for ", e->tensor.name);
    if (e->end > file->data_bytes)
        return RP_FAIL(
            CORRUPT,
            "%s is truncated, or damaged: %s ends %llu bytes behind its end; fetch or "
            "copy it once more",
            file->path, e->tensor.name, (unsigned long long)(e->end - file->data_bytes));
    return read_shape(file, cJSON_GetObjectItemCaseSensitive(object, "shape"), e);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const entry *)a)->tensor.name, ((const entry *)b)->tensor.name);
}

static int by_begin(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* The format demands that tensors fill the data without holes or overlaps. */
static rp_status check_entries(rpi_safetensors *file) {
    qsort(file->entries, (size_t)file->count, sizeof(entry), by_begin);
    uint64_t end = 0;
    for (int i = 0; i < file->count; i++) {
        if (file->entries[i].begin != end)
            return damaged(file, "a hole or an overlap before ", file->entries[i].tensor.name);
        end = file->entries[i].end;
    }
    if (end != file->data_bytes)
        return damaged(file, "bytes that belong to no tensor at its end", "");
    qsort(file->entries, (size_t)file->count, sizeof(entry), by_name);
    for (int i = 1; i < file->count; i++)
        if (by_name(&file->entries[i - 1], &file->entries[i]) == 0)
            return damaged(file, "a tensor comes twice: ", file->entries[i].tensor.name);
    return RP_OK;
}

static rp_status check_metadata(const rpi_safetensors *file, const cJSON *notes) {
    if (!cJSON_IsObject(notes)) return damaged(file, "bad metadata", "");
    const cJSON *note;
    cJSON_ArrayForEach(note, notes) if (!cJSON_IsString(note)) return damaged(
        file, "metadata must be text: ", note->string);
    return RP_OK;
}

static rp_status read_entries(rpi_safetensors *file) {
    if (!cJSON_IsObject(file->header)) return damaged(file, "its header is no JSON object", "");
    int children = cJSON_GetArraySize(file->header);
    RP_TRY(rpi_alloc_array((size_t)children, sizeof(entry), "a header", &file->entries));
    const cJSON *object;
    cJSON_ArrayForEach(object, file->header) {
        if (strcmp(object->string, "__metadata__") == 0)
            RP_TRY(check_metadata(file, object));
        else
            RP_TRY(read_entry(file, object, &file->entries[file->count++]));
    }
    return check_entries(file);
}

/* Counts at least as many values as cJSON would make: each follows one of these signs. */
static bool has_too_many_values(const char *text, uint64_t length) {
    uint64_t values = 0;
    for (uint64_t i = 0; i < length; i++)
        values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    return values > most_values;
}

/* The format demands an object that begins at the first byte, followed by spaces only. */
static rp_status parse_text(rpi_safetensors *file, const char *text, uint64_t length) {
    if (has_too_many_values(text, length))
        return damaged(file, "its header has too many values", "");
    const char *end = NULL;
    file->header = cJSON_ParseWithLengthOpts(text, length, &end, false);
    if (!file->header) return damaged(file, "its header is no JSON", "");
    if (text[0] != '{') return damaged(file, "its header is no JSON object", "");
    for (; end < text + length; end++)
        if (*end != ' ')
            return damaged(file, "something stands behind the JSON of its header", "");
    return read_entries(file);
}

static rp_status add_data(const rpi_safetensors *file, uint32_t *crc) {
    enum { PIECE = 1 << 20 };
    char *piece = NULL;
    RP_TRY(rpi_alloc(PIECE, "a checksum", &piece));
    uint64_t left = file->data_bytes;
    while (left > 0) {
        size_t wanted = left < PIECE ? (size_t)left : PIECE;
        if (fread(piece, 1, wanted, file->stream) != wanted) break;
        *crc = rpi_crc32c(*crc, piece, wanted);
        left -= wanted;
    }
    rpi_free(piece);
    return left ? RP_FAIL_ERRNO(IO, "cannot read %s", file->path) : RP_OK;
}

/* Files of other writers have no checksum. */
static rp_status check_checksum(rpi_safetensors *file, const uint8_t *size, char *text,
                                uint64_t length) {
    uint32_t wanted = 0;
    char *digits = rpi_checksum_digits(text, length);
    if (!digits) return RP_OK;
    bool valid = rpi_checksum_take(digits, &wanted);
    uint32_t crc = rpi_crc32c(rpi_crc32c(0, size, LENGTH_BYTES), text, length);
    if (valid) RP_TRY(add_data(file, &crc));
    file->is_verified = valid && crc == wanted;
    file->checksum = file->is_verified ? crc : 0;
    if (file->is_verified) return RP_OK;
    return RP_FAIL(CORRUPT, "%s is damaged: its bytes do not match its checksum", file->path);
}

static rp_status parse_header(rpi_safetensors *file, const uint8_t *size, uint64_t length) {
    char *text = NULL;
    RP_TRY(rpi_alloc(length + 1, "a header", &text));
    rp_status status = RP_OK;
    if (fread(text, 1, length, file->stream) != length)
        status = RP_FAIL_ERRNO(IO, "cannot read %s", file->path);
    else
        status = check_checksum(file, size, text, length);
    if (status == RP_OK) status = parse_text(file, text, length);
    rpi_free(text);
    return status;
}

static rp_status read_file(rpi_safetensors *file, uint64_t size) {
    uint64_t length = 0;
    uint8_t raw[LENGTH_BYTES];
    if (size < LENGTH_BYTES || fread(raw, 1, sizeof raw, file->stream) != sizeof raw)
        return damaged(file, "it is too short", "");
    for (int i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)raw[i] << (8 * i);
    if (length > longest_header || length > size - LENGTH_BYTES)
        return damaged(file, "its header is longer than the file", "");
    file->data_at = LENGTH_BYTES + length;
    file->data_bytes = size - file->data_at;
    return parse_header(file, raw, length);
}

rp_status rpi_safetensors_open(const char *path, rpi_safetensors **out_file) {
    rpi_safetensors *file = NULL;
    int64_t bytes = 0;
    RP_TRY(rpi_alloc(sizeof *file, "a file", &file));
    rp_status status = rpi_strdup(path, &file->path);
    if (status == RP_OK) status = rpi_regular_file_open(path, &file->stream, &bytes);
    if (status == RP_OK) status = read_file(file, (uint64_t)bytes);
    if (status == RP_OK)
        *out_file = file;
    else
        rpi_safetensors_close(file);
    return status;
}

void rpi_safetensors_close(rpi_safetensors *file) {
    if (!file) return;
    if (file->stream) fclose(file->stream);
    cJSON_Delete(file->header);
    rpi_free(file->entries);
    rpi_free(file->path);
    rpi_free(file);
}

int rpi_safetensors_count(const rpi_safetensors *file) {
    return file->count;
}

const rpi_named_tensor *rpi_safetensors_at(const rpi_safetensors *file, int index) {
    return &file->entries[index].tensor;
}

static const entry *find(const rpi_safetensors *file, const char *name) {
    entry key = {.tensor.name = name};
    return file->count ? bsearch(&key, file->entries, (size_t)file->count, sizeof key, by_name)
                       : NULL;
}

uint64_t rpi_safetensors_begin(const rpi_safetensors *file, int index) {
    return file->entries[index].begin;
}

const rpi_named_tensor *rpi_safetensors_find(const rpi_safetensors *file, const char *name) {
    const entry *e = find(file, name);
    return e ? &e->tensor : NULL;
}

const char *rpi_safetensors_metadata(const rpi_safetensors *file, const char *key) {
    const cJSON *notes = cJSON_GetObjectItemCaseSensitive(file->header, "__metadata__");
    const cJSON *note = cJSON_GetObjectItemCaseSensitive(notes, key);
    return cJSON_IsString(note) ? note->valuestring : NULL;
}

const char *rpi_safetensors_path(const rpi_safetensors *file) {
    return file->path;
}

bool rpi_safetensors_is_verified(const rpi_safetensors *file) {
    return file->is_verified;
}

uint32_t rpi_safetensors_checksum(const rpi_safetensors *file) {
    return file->checksum;
}

static rp_status read_bytes(const rpi_safetensors *file, const entry *e, uint64_t from,
                            size_t bytes, void *out) {
    if (fseeko(file->stream, (off_t)(file->data_at + e->begin + from), SEEK_SET) != 0 ||
        fread(out, 1, bytes, file->stream) != bytes)
        return RP_FAIL_ERRNO(IO, "cannot read %s from %s", e->tensor.name, file->path);
    return RP_OK;
}

rp_status rpi_safetensors_read(const rpi_safetensors *file, const char *name, rp_dtype dtype,
                               const rpi_shape *shape, void *out) {
    const entry *e = find(file, name);
    if (!e) return RP_FAIL(NOT_FOUND, "%s holds no tensor %s", file->path, name);
    if (e->tensor.dtype != dtype || !rpi_shape_equal(&e->tensor.shape, shape)) {
        char has[96], wants[96];
        return RP_FAIL(MISMATCH, "%s: %s is %s %s, not %s %s", file->path, name,
                       rp_dtype_name(e->tensor.dtype),
                       rpi_shape_text(&e->tensor.shape, has, sizeof has), rp_dtype_name(dtype),
                       rpi_shape_text(shape, wants, sizeof wants));
    }
    return read_bytes(file, e, 0, e->end - e->begin, out);
}

rp_status rpi_safetensors_read_part(const rpi_safetensors *file, const rpi_named_tensor *tensor,
                                    int64_t first, int64_t count, void *out) {
    const entry *e = (const entry *)tensor;
    size_t each = rp_dtype_bytes(tensor->dtype);
    int64_t all = rpi_shape_count(&tensor->shape);
    if (first < 0 || count < 0 || first > all - count)
        return RP_FAIL(INVALID, "%s: elements %lld to %lld of %lld of %s", file->path,
                       (long long)first, (long long)(first + count), (long long)all,
                       tensor->name);
    return read_bytes(file, e, (uint64_t)first * each, (size_t)count * each, out);
}

rp_status rpi_safetensors_check_finite(const rpi_safetensors *file, const char *name,
                                       const float *elements, int64_t count) {
    int64_t at = rpi_first_nonfinite(elements, count);
    if (at < 0) return RP_OK;
    return RP_FAIL(CORRUPT,
                   "%s: element %lld of %s is %s: this checkpoint is of a run that had "
                   "diverged; go on from an earlier one",
                   file->path, (long long)at, name, isnan(elements[at]) ? "NaN" : "infinite");
}

rp_status rpi_safetensors_read_finite(const rpi_safetensors *file, const char *name,
                                      const rpi_shape *shape, float *out) {
    RP_TRY(rpi_safetensors_read(file, name, RP_F32, shape, out));
    return rpi_safetensors_check_finite(file, name, out, rpi_shape_count(shape));
}
