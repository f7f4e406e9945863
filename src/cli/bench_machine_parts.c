/* What a rank does alone beside training: copies, codecs, the disk. */
#include "cli/bench_machine.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "cli/gaussian.h"
#include "redpoll/codec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- copies ---- */

enum { COPY_BYTES = 64 << 20 };

typedef struct memory {
    char *from, *to;
    int copy;
} memory;

static void close_memory(void *self) {
    memory *m = self;
    if (!m) return;
    rpi_free(m->from);
    rpi_free(m->to);
    rpi_free(m);
}

static rp_status open_memory(rpi_machine_bench *b, void **out_self) {
    memory *m = NULL;
    const double copied = COPY_BYTES;
    RP_TRY(rpi_alloc(sizeof *m, "memory", &m));
    *out_self = m;
    RP_TRY(rpi_alloc(COPY_BYTES, "a copy", &m->from));
    RP_TRY(rpi_alloc(COPY_BYTES, "a copy", &m->to));
    memset(m->from, 1, COPY_BYTES);
    return rpi_machine_item_open(b, RPI_WORK_COPY, 0, "", &copied, 2 * copied, &m->copy);
}

static rp_status run_memory(rpi_machine_bench *b, void *self) {
    memory *m = self;
    RP_TRY(rp_barrier(b->comm));
    int64_t start = rpi_now_ns();
    memcpy(m->to, m->from, COPY_BYTES);
    rpi_machine_item_time(b, m->copy, rpi_seconds(rpi_now_ns() - start));
    return RP_OK;
}

const rpi_machine_part rpi_machine_memory = {
    .what = "copies of memory",
    .open = open_memory,
    .run = run_memory,
    .close = close_memory,
};

/* ---- codecs: those of docs/codecs.md that are often taken; another is measured when asked
 * ----
 */

static const char *const codec_texts[] = {"bf16", "q8", "q4", "q2", "topk"};
enum { CODECS = sizeof codec_texts / sizeof codec_texts[0], CODED = 1 << 20 };

typedef struct codecs {
    rp_codec codecs[CODECS];
    float *values, *sum;
    void *encoded;
    int items[CODECS][2];
} codecs;

static void close_codecs(void *self) {
    codecs *c = self;
    if (!c) return;
    rpi_free(c->values);
    rpi_free(c->sum);
    rpi_free(c->encoded);
    rpi_free(c);
}

static rp_status open_codecs(rpi_machine_bench *b, void **out_self) {
    codecs *c = NULL;
    size_t most = 0;
    RP_TRY(rpi_alloc(sizeof *c, "codecs", &c));
    *out_self = c;
    for (int i = 0; i < CODECS; i++) {
        char text[RPI_MACHINE_NAME];
        RP_TRY(rp_codec_parse(codec_texts[i], &c->codecs[i]));
        rp_codec_text(&c->codecs[i], text, sizeof text);
        size_t bytes = rp_codec_encoded_bytes(&c->codecs[i], RP_F32, CODED);
        if (bytes > most) most = bytes;
        for (int pass = 0; pass < 2; pass++)
            RP_TRY(rpi_machine_item_open(b, RPI_WORK_CODEC, pass, text, NULL,
                                         CODED * sizeof(float), &c->items[i][pass]));
    }
    RP_TRY(rpi_alloc_array(CODED, sizeof(float), "elements", &c->values));
    RP_TRY(rpi_alloc_array(CODED, sizeof(float), "elements", &c->sum));
    rpi_gaussian(1, 0, 0, CODED, c->values);
    return rpi_alloc(most, "an encoding", &c->encoded);
}

static rp_status run_codecs(rpi_machine_bench *b, void *self) {
    codecs *c = self;
    for (int i = 0; i < CODECS; i++) {
        size_t bytes = 0;
        RP_TRY(rp_barrier(b->comm));
        int64_t start = rpi_now_ns();
        RP_TRY(
            rp_codec_encode(&c->codecs[i], RP_F32, c->values, CODED, NULL, c->encoded, &bytes));
        int64_t middle = rpi_now_ns();
        RP_TRY(
            rp_codec_decode_add(&c->codecs[i], RP_F32, c->encoded, bytes, CODED, NULL, c->sum));
        rpi_machine_item_time(b, c->items[i][0], rpi_seconds(middle - start));
        rpi_machine_item_time(b, c->items[i][1], rpi_seconds(rpi_now_ns() - middle));
    }
    return RP_OK;
}

const rpi_machine_part rpi_machine_codecs = {
    .what = "codecs, encoding and decoding with a sum",
    .open = open_codecs,
    .run = run_codecs,
    .close = close_codecs,
};

/* ---- the disk ---- */

enum { FILE_BYTES = 16 << 20 };

typedef struct disk {
    char path[1024];
    char *bytes;
    int written, read;
} disk;

static void close_disk(void *self) {
    disk *d = self;
    if (!d) return;
    if (d->path[0]) (void)unlink(d->path);
    rpi_free(d->bytes);
    rpi_free(d);
}

static rp_status open_disk(rpi_machine_bench *b, void **out_self) {
    disk *d = NULL;
    RP_TRY(rpi_alloc(sizeof *d, "the disk", &d));
    *out_self = d;
    if (rp_comm_rank(b->comm) > 0) return RP_OK; /* one rank saves */
    snprintf(d->path, sizeof d->path, "%s/.redpoll-bench-%ld", b->folder, (long)getpid());
    RP_TRY(rpi_alloc(FILE_BYTES, "a file", &d->bytes));
    memset(d->bytes, 0x5a, FILE_BYTES);
    RP_TRY(rpi_machine_item_open(b, RPI_WORK_DISK, 0, "", NULL, FILE_BYTES, &d->written));
    return rpi_machine_item_open(b, RPI_WORK_DISK, 1, "", NULL, FILE_BYTES, &d->read);
}

static rp_status move_all(int fd, char *bytes, bool writes) {
    for (size_t done = 0; done < FILE_BYTES;) {
        ssize_t n = writes ? write(fd, bytes + done, FILE_BYTES - done)
                           : read(fd, bytes + done, FILE_BYTES - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return RP_FAIL(IO, "%s", n ? strerror(errno) : "it ends too early");
        done += (size_t)n;
    }
    return RP_OK;
}

/* Removes the file from the page cache as far as the system allows, so that it is read from the
 * disk. */
static rp_status write_file(const disk *d) {
    int fd = open(d->path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) return RP_FAIL(IO, "%s", strerror(errno));
    rp_status status = move_all(fd, d->bytes, true);
    if (status == RP_OK && fsync(fd) < 0) status = RP_FAIL(IO, "%s", strerror(errno));
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    (void)close(fd);
    return status;
}

static rp_status read_file(const disk *d) {
    int fd = open(d->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return RP_FAIL(IO, "%s", strerror(errno));
    rp_status status = move_all(fd, d->bytes, false);
    (void)close(fd);
    return status;
}

static rp_status run_disk(rpi_machine_bench *b, void *self) {
    disk *d = self;
    if (!d->path[0]) return RP_OK;
    int64_t start = rpi_now_ns();
    rp_status status = write_file(d);
    int64_t middle = rpi_now_ns();
    if (status == RP_OK) status = read_file(d);
    if (status != RP_OK) return rpi_fail_context(status, "a file in %s: ", b->folder);
    rpi_machine_item_time(b, d->written, rpi_seconds(middle - start));
    rpi_machine_item_time(b, d->read, rpi_seconds(rpi_now_ns() - middle));
    return RP_OK;
}

const rpi_machine_part rpi_machine_disk = {
    .what = "a file on the disk",
    .open = open_disk,
    .run = run_disk,
    .close = close_disk,
};
