#include "train/idx_file.h"

#include "base/memory.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

enum { MOST_DIMS = 4, LARGEST_SIDE = 65536 };

typedef struct idx_reader {
    const char *path;
    gzFile file;
} idx_reader;

static rp_status open_idx(const char *path, idx_reader *reader) {
    gzFile file = gzopen(path, "rb");
    if (!file && errno == ENOENT) return RP_FAIL(NOT_FOUND, "%s is missing", path);
    if (!file) return RP_FAIL_ERRNO(IO, "cannot open %s", path);
    *reader = (idx_reader){path, file};
    size_t length = strlen(path);
    bool named_gzip = length > 3 && strcmp(path + length - 3, ".gz") == 0;
    if (!named_gzip || !gzdirect(file)) return RP_OK;
    gzclose(file);
    return RP_FAIL(CORRUPT, "%s is not a gzip file", path);
}

static rp_status read_bytes(idx_reader *reader, void *out, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        size_t piece = bytes - done < (1u << 30) ? bytes - done : (1u << 30);
        int got = gzread(reader->file, (char *)out + done, (unsigned)piece);
        if (got > 0) {
            done += (size_t)got;
            continue;
        }
        int code;
        const char *text = gzerror(reader->file, &code);
        if (code == Z_OK || code == Z_BUF_ERROR)
            return RP_FAIL(CORRUPT, "%s is truncated: %zu bytes are missing", reader->path,
                           bytes - done);
        if (code == Z_ERRNO) return RP_FAIL_ERRNO(IO, "cannot read %s", reader->path);
        return RP_FAIL(CORRUPT, "%s is damaged: %s", reader->path, text);
    }
    return RP_OK;
}

static rp_status read_end(idx_reader *reader) {
    char extra;
    int got = gzread(reader->file, &extra, 1);
    if (got == 0) return RP_OK;
    if (got < 0) return RP_FAIL(CORRUPT, "%s is damaged at its end", reader->path);
    return RP_FAIL(CORRUPT, "%s is longer than its header says", reader->path);
}

/* Sizes of all dimensions; `labels` wants one, images three or four. */
static rp_status read_header(idx_reader *reader, bool labels, uint32_t sizes[MOST_DIMS],
                             int *out_dims) {
    uint8_t magic[4], raw[4];
    RP_TRY(read_bytes(reader, magic, sizeof magic));
    int dims = magic[3];
    bool fits = labels ? dims == 1 : dims == 3 || dims == 4;
    if (magic[0] || magic[1] || magic[2] != 8 || !fits)
        return RP_FAIL(
            CORRUPT,
            "%s is no IDX file of %s: it starts with %02x %02x %02x %02x, not 00 00 08 %s",
            reader->path, labels ? "labels" : "images", magic[0], magic[1], magic[2], magic[3],
            labels ? "01" : "03");
    for (int d = 0; d < dims; d++) {
        RP_TRY(read_bytes(reader, raw, sizeof raw));
        sizes[d] =
            (uint32_t)raw[0] << 24 | (uint32_t)raw[1] << 16 | (uint32_t)raw[2] << 8 | raw[3];
        if (sizes[d] < 1 || (d > 0 && sizes[d] > LARGEST_SIDE))
            return RP_FAIL(CORRUPT, "%s: dimension %d is %u", reader->path, d, sizes[d]);
    }
    *out_dims = dims;
    return RP_OK;
}

/* The elements grow as they come, so that a header that lies about its size costs no memory. */
static rp_status read_elements(idx_reader *reader, size_t bytes, uint8_t **out_data) {
    enum { FIRST = 1 << 20 };
    uint8_t *data = NULL;
    size_t room = 0;
    while (room < bytes) {
        size_t wanted = room ? room * 2 : FIRST;
        if (wanted > bytes) wanted = bytes;
        rp_status status = rpi_grow_array(room, wanted, 1, "images", &data);
        if (status == RP_OK) status = read_bytes(reader, data + room, wanted - room);
        if (status != RP_OK) {
            rpi_free(data);
            return status;
        }
        room = wanted;
    }
    rp_status status = read_end(reader);
    if (status == RP_OK)
        *out_data = data;
    else
        rpi_free(data);
    return status;
}

static rp_status read_images(const char *path, rpi_images *images) {
    idx_reader reader;
    RP_TRY(open_idx(path, &reader));
    uint32_t sizes[MOST_DIMS];
    int dims = 0;
    rp_status status = read_header(&reader, false, sizes, &dims);
    if (status == RP_OK) {
        images->count = sizes[0];
        images->channels = dims == 4 ? (int)sizes[1] : 1;
        images->height = (int)sizes[dims - 2];
        images->width = (int)sizes[dims - 1];
        uint64_t image =
            (uint64_t)images->channels * (uint64_t)images->height * (uint64_t)images->width;
        if (image > INT32_MAX)
            status = RP_FAIL(CORRUPT, "%s: images of %llu bytes are too large", path,
                             (unsigned long long)image);
        else
            status = read_elements(&reader, sizes[0] * (size_t)image, &images->pixels);
    }
    gzclose(reader.file);
    return status;
}

static rp_status read_labels(const char *path, int64_t images, uint8_t **out_labels) {
    idx_reader reader;
    RP_TRY(open_idx(path, &reader));
    uint32_t sizes[MOST_DIMS];
    int dims = 0;
    rp_status status = read_header(&reader, true, sizes, &dims);
    if (status == RP_OK && sizes[0] != images)
        status = RP_FAIL(CORRUPT, "%s holds %u labels for %lld images", path, sizes[0],
                         (long long)images);
    if (status == RP_OK) status = read_elements(&reader, sizes[0], out_labels);
    gzclose(reader.file);
    return status;
}

rp_status rpi_idx_read(const char *images_path, const char *labels_path,
                       rpi_images *out_images) {
    rpi_images images = {0};
    RP_TRY(read_images(images_path, &images));
    rp_status status = read_labels(labels_path, images.count, &images.labels);
    if (status == RP_OK)
        *out_images = images;
    else
        rpi_free(images.pixels);
    return status;
}
