#include "train/data/idx_file.h"

#include "base/memory.h"
#include "base/regular_file.h"

#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* No deflate stream grows by more: 258 bytes from 2 bits (zlib, "Maximum Expansion Factor"). */
enum { MOST_DIMS = 4, LARGEST_SIDE = 65536, MOST_EXPANSION = 1032 };

typedef struct idx_reader {
    const char *path;
    gzFile file;
    uint64_t file_bytes; /* as it lies on the disk */
    int dims;
    uint32_t sizes[MOST_DIMS];
    uint64_t element_bytes; /* behind the header, as the header says */
} idx_reader;

static rp_status open_stream(const char *path, idx_reader *reader) {
    int fd = -1;
    int64_t bytes = 0;
    RP_TRY(rpi_regular_file_descriptor(path, &fd, &bytes));
    gzFile file = gzdopen(fd, "rb");
    if (!file) {
        close(fd);
        return RP_FAIL(NOMEM, "no memory to read %s", path);
    }
    *reader = (idx_reader){.path = path, .file = file, .file_bytes = (uint64_t)bytes};
    return RP_OK;
}

static void close_idx(idx_reader *reader) {
    if (reader->file) gzclose(reader->file);
    *reader = (idx_reader){0};
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

/* A gzip's end holds the length and the CRC of its contents: without it they are not known to
 * be whole. */
static rp_status read_end(idx_reader *reader) {
    char extra;
    int code, got = gzread(reader->file, &extra, 1);
    gzerror(reader->file, &code);
    if (got == 0 && code == Z_OK) return RP_OK;
    if (got == 0 && code == Z_BUF_ERROR)
        return RP_FAIL(CORRUPT, "%s is truncated: the end of the gzip is missing",
                       reader->path);
    if (got <= 0) return RP_FAIL(CORRUPT, "%s is damaged at its end", reader->path);
    return RP_FAIL(CORRUPT, "%s is longer than its header says", reader->path);
}

/* Sizes of all dimensions; `labels` wants one, images three or four. */
static rp_status read_sizes(idx_reader *reader, bool labels) {
    uint8_t magic[4], raw[4];
    RP_TRY(read_bytes(reader, magic, sizeof magic));
    bool fits = labels ? magic[3] == 1 : magic[3] == 3 || magic[3] == 4;
    if (magic[0] || magic[1] || magic[2] != 8 || !fits)
        return RP_FAIL(
            CORRUPT,
            "%s is no IDX file of %s: it starts with %02x %02x %02x %02x, not 00 00 08 %s",
            reader->path, labels ? "labels" : "images", magic[0], magic[1], magic[2], magic[3],
            labels ? "01" : "03");
    reader->dims = magic[3];
    for (int d = 0; d < reader->dims; d++) {
        RP_TRY(read_bytes(reader, raw, sizeof raw));
        uint32_t size =
            (uint32_t)raw[0] << 24 | (uint32_t)raw[1] << 16 | (uint32_t)raw[2] << 8 | raw[3];
        if (size < 1 || (d > 0 && size > LARGEST_SIDE))
            return RP_FAIL(CORRUPT, "%s: dimension %d is %u", reader->path, d, size);
        reader->sizes[d] = size;
    }
    return RP_OK;
}

/* Could the file hold what its header says, and this machine? Nothing is allocated before. */
static rp_status check_claim(const idx_reader *reader) {
    double claim = (double)reader->element_bytes;
    bool direct = gzdirect(reader->file);
    double most = (double)reader->file_bytes * (direct ? 1 : MOST_EXPANSION);
    if (claim > most)
        return RP_FAIL(CORRUPT,
                       "%s is truncated: its header says %.6g MB, its %llu bytes hold at most "
                       "%.6g MB",
                       reader->path, claim / 1e6, (unsigned long long)reader->file_bytes,
                       most / 1e6);
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (memory > 0 && claim > memory)
        return RP_FAIL(NOMEM, "%s holds %.1f GB, and data is held in memory: there are %.1f GB",
                       reader->path, claim / 1e9, memory / 1e9);
    return RP_OK;
}

static rp_status read_header(idx_reader *reader, bool labels) {
    size_t length = strlen(reader->path);
    bool named_gzip = length > 3 && strcmp(reader->path + length - 3, ".gz") == 0;
    if (named_gzip && gzdirect(reader->file))
        return RP_FAIL(CORRUPT, "%s is not a gzip file", reader->path);
    RP_TRY(read_sizes(reader, labels));
    uint64_t element = 1;
    for (int d = 1; d < reader->dims; d++) element *= reader->sizes[d]; /* 2^48 at most */
    if (element > INT32_MAX)
        return RP_FAIL(CORRUPT, "%s: images of %llu bytes are too large", reader->path,
                       (unsigned long long)element);
    reader->element_bytes = reader->sizes[0] * element;
    return check_claim(reader);
}

static rp_status open_idx(const char *path, bool labels, idx_reader *reader) {
    RP_TRY(open_stream(path, reader));
    rp_status status = read_header(reader, labels);
    if (status != RP_OK) close_idx(reader);
    return status;
}

/* The elements grow as they come: memory follows the data, not what the header says of it. */
static rp_status read_elements(idx_reader *reader, uint8_t **out_data) {
    enum { FIRST = 1 << 20 };
    uint8_t *data = NULL;
    size_t room = 0, bytes = (size_t)reader->element_bytes;
    while (room < bytes) {
        size_t wanted = room ? room * 2 : FIRST;
        if (wanted > bytes) wanted = bytes;
        rp_status status = rpi_grow_array(room, wanted, 1, "elements", &data);
        if (status != RP_OK) rpi_fail_context(status, "%s: ", reader->path);
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

static rp_status read_both(idx_reader *pixels, idx_reader *labels, rpi_images *images) {
    if (labels->sizes[0] != pixels->sizes[0])
        return RP_FAIL(CORRUPT, "%s holds %u labels for %u images in %s", labels->path,
                       labels->sizes[0], pixels->sizes[0], pixels->path);
    RP_TRY(read_elements(labels, &images->labels));
    RP_TRY(read_elements(pixels, &images->pixels));
    images->count = pixels->sizes[0];
    images->channels = pixels->dims == 4 ? (int)pixels->sizes[1] : 1;
    images->height = (int)pixels->sizes[pixels->dims - 2];
    images->width = (int)pixels->sizes[pixels->dims - 1];
    return RP_OK;
}

/* Both headers before any elements: most of what is wrong is seen in them. */
rp_status rpi_idx_read(const char *images_path, const char *labels_path,
                       rpi_images *out_images) {
    idx_reader pixels = {0}, labels = {0};
    rpi_images images = {0};
    rp_status status = open_idx(images_path, false, &pixels);
    if (status == RP_OK) status = open_idx(labels_path, true, &labels);
    if (status == RP_OK) status = read_both(&pixels, &labels, &images);
    close_idx(&pixels);
    close_idx(&labels);
    if (status == RP_OK) {
        *out_images = images;
    } else {
        rpi_free(images.pixels);
        rpi_free(images.labels);
    }
    return status;
}
