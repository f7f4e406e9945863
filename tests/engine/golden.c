#include "golden.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rp_status read_file(FILE *stream, const char *path, golden *file) {
    uint64_t header_bytes = 0;
    if (fread(&header_bytes, sizeof header_bytes, 1, stream) != 1 || header_bytes > 1 << 20)
        return RP_FAIL(CORRUPT, "%s: no header", path);
    fseek(stream, 0, SEEK_END);
    long bytes = ftell(stream);
    fseek(stream, (long)sizeof header_bytes, SEEK_SET);
    file->data_bytes = (size_t)bytes - sizeof header_bytes - header_bytes;
    RP_TRY(rpi_alloc(header_bytes + 1, "a golden file", &file->header));
    RP_TRY(rpi_alloc(file->data_bytes, "a golden file", &file->data));
    if (fread(file->header, 1, header_bytes, stream) != header_bytes ||
        fread(file->data, 1, file->data_bytes, stream) != file->data_bytes)
        return RP_FAIL(CORRUPT, "%s is cut", path);
    return RP_OK;
}

rp_status golden_open(const char *name, golden *out_golden) {
    char path[1024];
    const char *folder = getenv("REDPOLL_GOLDEN");
    snprintf(path, sizeof path, "%s/%s.safetensors", folder ? folder : "tests/engine/golden",
             name);
    *out_golden = (golden){0};
    FILE *stream = fopen(path, "rb");
    if (!stream) return RP_FAIL_ERRNO(IO, "cannot open %s", path);
    rp_status status = read_file(stream, path, out_golden);
    fclose(stream);
    if (status != RP_OK) golden_close(out_golden);
    return status;
}

void golden_close(golden *file) {
    rpi_free(file->header);
    rpi_free(file->data);
    *file = (golden){0};
}

static rpi_shape parse_shape(const char *text) {
    rpi_shape shape = {.dims = 0};
    while (*text != ']' && shape.dims < RPI_MAX_DIMS) {
        char *end = NULL;
        shape.size[shape.dims++] = strtoll(text, &end, 10);
        text = *end == ',' ? end + 1 : end;
    }
    return shape;
}

rp_status golden_tensor(const golden *file, rpi_tensor *out_tensor, const char *format, ...) {
    char name[256], key[272];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    snprintf(key, sizeof key, "\"%s\":{\"dtype\":\"", name);
    const char *entry = strstr(file->header, key);
    if (!entry) return RP_FAIL(NOT_FOUND, "no tensor '%s' in the golden file", name);
    entry += strlen(key);
    const char *shape = strstr(entry, "\"shape\":["), *at = strstr(entry, "offsets\":[");
    if (!shape || !at) return RP_FAIL(CORRUPT, "tensor '%s' lacks shape or offsets", name);
    size_t offset = strtoull(at + strlen("offsets\":["), NULL, 10);
    *out_tensor = (rpi_tensor){.dtype = entry[0] == 'F' ? RP_F32 : RP_I32,
                               .domain = RPI_HOST,
                               .shape = parse_shape(shape + strlen("\"shape\":["))};
    if (offset + 4 * (size_t)rpi_shape_count(&out_tensor->shape) > file->data_bytes)
        return RP_FAIL(CORRUPT, "tensor '%s' lies beyond the end", name);
    out_tensor->data = file->data + offset;
    return RP_OK;
}

double golden_distance(const float *got, const float *wanted, int64_t count) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = (double)got[i] - (double)wanted[i];
        difference += d * d;
        norm += (double)wanted[i] * (double)wanted[i];
    }
    return sqrt(difference) / fmax(sqrt(norm), 1e-3);
}
