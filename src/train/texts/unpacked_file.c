#include "train/texts/unpacked_file.h"

#include "base/memory.h"
#include "base/regular_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER = 1 << 17 };

struct rpi_unpacked_file {
    char *path;
    int fd;
    int64_t offset;
    const rpi_packing *packing; /* NULL: none */
    void *state;
    bool is_within; /* a packed stream: its end has not come */
    bool is_read;   /* to the end of the file */
    size_t used, filled;
    uint8_t buffer[BUFFER];
};

/* More bytes into the buffer, which is used up. */
static rp_status fill(rpi_unpacked_file *f) {
    ssize_t got;
    do got = read(f->fd, f->buffer, sizeof f->buffer);
    while (got < 0 && errno == EINTR);
    if (got < 0) return RP_FAIL_ERRNO(IO, "cannot read %s", f->path);
    f->used = 0;
    f->filled = (size_t)got;
    f->offset += got;
    f->is_read = got == 0;
    return RP_OK;
}

static rp_status begin(rpi_unpacked_file *f) {
    RP_TRY(fill(f));
    f->packing = rpi_packing_of(f->buffer, f->filled);
    if (!f->packing) return RP_OK;
    rp_status status = rpi_packing_check(f->packing);
    if (status == RP_OK) status = f->packing->begin(&f->state);
    f->is_within = true;
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "%s: ", f->path);
}

rp_status rpi_unpacked_file_open(const char *path, rpi_unpacked_file **out_file) {
    rpi_unpacked_file *f = NULL;
    int64_t bytes = 0;
    int fd = -1;
    RP_TRY(rpi_regular_file_descriptor(path, &fd, &bytes));
    rp_status status = rpi_alloc(sizeof *f, "a file", &f);
    if (status != RP_OK) {
        close(fd);
        return status;
    }
    f->fd = fd;
    status = rpi_strdup(path, &f->path);
    if (status == RP_OK) status = begin(f);
    if (status == RP_OK)
        *out_file = f;
    else
        rpi_unpacked_file_close(f);
    return status;
}

void rpi_unpacked_file_close(rpi_unpacked_file *f) {
    if (!f) return;
    if (f->state) f->packing->end(f->state);
    close(f->fd);
    rpi_free(f->path);
    rpi_free(f);
}

int64_t rpi_unpacked_file_offset(const rpi_unpacked_file *f) {
    return f->offset - (int64_t)(f->filled - f->used);
}

/* ---- reading ---- */

/* Zeros may fill a file up behind a packed stream, as on tapes; something else is another. */
static void skip_padding(rpi_unpacked_file *f) {
    while (f->used < f->filled && f->buffer[f->used] == 0) f->used++;
    if (f->used < f->filled) f->is_within = true;
}

static rp_status unpack(rpi_unpacked_file *f, rpi_unpacking *at) {
    bool ended = false;
    size_t room = at->room, count = f->filled - f->used;
    at->in = f->buffer + f->used;
    at->in_count = count;
    rp_status status = f->packing->step(f->state, at, &ended);
    if (status == RP_CORRUPT)
        return rpi_fail_context(status, "%s is damaged, as %s before byte %lld: ", f->path,
                                f->packing->name, (long long)f->offset);
    if (status != RP_OK) return rpi_fail_context(status, "%s: ", f->path);
    f->used = f->filled - at->in_count;
    if (ended) f->is_within = false;
    if (ended || at->room < room || at->in_count < count) return RP_OK;
    if (!f->is_read)
        return RP_FAIL(CORRUPT, "%s is damaged: its %s does not go on", f->path,
                       f->packing->name);
    return RP_FAIL(CORRUPT, "%s is truncated: the end of the %s is missing", f->path,
                   f->packing->name);
}

static rp_status read_packed(rpi_unpacked_file *f, uint8_t *out, size_t most,
                             size_t *out_count) {
    rpi_unpacking at = {.out = out, .room = most};
    while (at.room == most) {
        if (f->used == f->filled && !f->is_read) RP_TRY(fill(f));
        if (!f->is_within) skip_padding(f);
        if (f->is_within)
            RP_TRY(unpack(f, &at));
        else if (f->is_read)
            break;
    }
    *out_count = most - at.room;
    return RP_OK;
}

rp_status rpi_unpacked_file_read(rpi_unpacked_file *f, void *out, size_t most,
                                 size_t *out_count) {
    if (f->packing) return read_packed(f, out, most, out_count);
    if (f->used == f->filled && !f->is_read) RP_TRY(fill(f));
    size_t left = f->filled - f->used, count = left < most ? left : most;
    memcpy(out, f->buffer + f->used, count);
    f->used += count;
    *out_count = count;
    return RP_OK;
}
