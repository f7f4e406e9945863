#include "train/checkpoint/safetensors.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "net/bytes/frame.h"
#include "train/checkpoint/checksum.h"
#include "train/checkpoint/safetensors_dtype.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

static uint64_t bytes_of(const rpi_named_tensor *tensor) {
    return (uint64_t)rpi_shape_count(&tensor->shape) * rp_dtype_bytes(tensor->dtype);
}

static bool add_tensor(cJSON *header, const rpi_named_tensor *tensor, uint64_t begin) {
    cJSON *entry = cJSON_AddObjectToObject(header, tensor->name);
    bool done =
        entry && cJSON_AddStringToObject(entry, "dtype", rpi_safetensors_dtype(tensor->dtype));
    cJSON *shape = cJSON_AddArrayToObject(entry, "shape");
    for (int d = 0; d < tensor->shape.dims; d++)
        done = done &&
               cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->shape.size[d]));
    cJSON *offsets = cJSON_AddArrayToObject(entry, "data_offsets");
    done = done && cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)begin));
    return done && cJSON_AddItemToArray(offsets,
                                        cJSON_CreateNumber((double)(begin + bytes_of(tensor))));
}

/* The JSON text, to free with cJSON_free(); NULL when memory ran out. */
static char *header_text(const rpi_named_tensor *tensors, int count,
                         const rpi_metadata *metadata, int metadata_count) {
    cJSON *header = cJSON_CreateObject();
    cJSON *notes = cJSON_AddObjectToObject(header, "__metadata__");
    bool done = cJSON_AddStringToObject(notes, RPI_CHECKSUM_KEY, RPI_CHECKSUM_BLANK) != NULL;
    for (int i = 0; i < metadata_count && done; i++)
        done = cJSON_AddStringToObject(notes, metadata[i].key, metadata[i].value) != NULL;
    uint64_t begin = 0;
    for (int i = 0; i < count && done; i++) {
        done = add_tensor(header, &tensors[i], begin);
        begin += bytes_of(&tensors[i]);
    }
    char *text = done ? cJSON_PrintUnformatted(header) : NULL;
    cJSON_Delete(header);
    return text;
}

static rp_status put(FILE *stream, const void *data, size_t bytes, const char *path) {
    if (bytes == 0 || fwrite(data, 1, bytes, stream) == bytes) return RP_OK;
    return RP_FAIL_ERRNO(IO, "cannot write %s", path);
}

/* Padded with spaces, so that the elements are aligned in a mapped file. */
typedef struct prefix {
    uint8_t size[8];
    char *text; /* cJSON's */
    uint64_t length, padding;
} prefix;

static const char spaces[RPI_ALIGNMENT + 1] =
    "                                                                ";

static prefix make_prefix(char *text) {
    prefix p = {.text = text, .length = strlen(text)};
    p.padding = (0 - (p.length + sizeof p.size)) % RPI_ALIGNMENT;
    for (int i = 0; i < 8; i++) p.size[i] = (uint8_t)((p.length + p.padding) >> (8 * i));
    return p;
}

/* Of everything that will be in the file; ours is the first member of the metadata. */
static uint32_t write_checksum(prefix *p, const rpi_named_tensor *tensors, int count) {
    uint32_t crc = rpi_crc32c(0, p->size, sizeof p->size);
    crc = rpi_crc32c(crc, p->text, p->length);
    crc = rpi_crc32c(crc, spaces, p->padding);
    for (int i = 0; i < count; i++)
        if (bytes_of(&tensors[i]))
            crc = rpi_crc32c(crc, tensors[i].data, bytes_of(&tensors[i]));
    rpi_checksum_write(rpi_checksum_digits(p->text, p->length), crc);
    return crc;
}

static rp_status put_all(FILE *stream, char *text, const rpi_named_tensor *tensors, int count,
                         const char *path, uint32_t *out_checksum) {
    prefix p = make_prefix(text);
    *out_checksum = write_checksum(&p, tensors, count);
    RP_TRY(put(stream, p.size, sizeof p.size, path));
    RP_TRY(put(stream, p.text, p.length, path));
    RP_TRY(put(stream, spaces, p.padding, path));
    for (int i = 0; i < count; i++)
        RP_TRY(put(stream, tensors[i].data, bytes_of(&tensors[i]), path));
    return RP_OK;
}

static rp_status check_dtypes(const char *path, const rpi_named_tensor *tensors, int count) {
    for (int i = 0; i < count; i++)
        if (!rpi_safetensors_dtype(tensors[i].dtype))
            return RP_FAIL(INVALID, "%s: %s is %s, which safetensors files cannot hold", path,
                           tensors[i].name, rp_dtype_name(tensors[i].dtype));
    return RP_OK;
}

rp_status rpi_safetensors_write_summed(const char *path, const rpi_named_tensor *tensors,
                                       int count, const rpi_metadata *metadata,
                                       int metadata_count, uint32_t *out_checksum) {
    rpi_replacement file;
    RP_TRY(check_dtypes(path, tensors, count));
    char *text = header_text(tensors, count, metadata, metadata_count);
    if (!text) return RP_FAIL(NOMEM, "no memory for the header of %s", path);
    rp_status status = rpi_replacement_open(path, &file);
    if (status == RP_OK)
        status = rpi_replacement_close(
            &file, put_all(file.stream, text, tensors, count, path, out_checksum));
    cJSON_free(text);
    return status;
}

rp_status rpi_safetensors_write(const char *path, const rpi_named_tensor *tensors, int count,
                                const rpi_metadata *metadata, int metadata_count) {
    uint32_t checksum = 0;
    return rpi_safetensors_write_summed(path, tensors, count, metadata, metadata_count,
                                        &checksum);
}
