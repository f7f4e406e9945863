/* bzip2 by libbz2. */
#include "base/memory.h"
#include "train/texts/packing.h"

#include <string.h>

extern const rpi_packing rpi_packing_bzip2;

/* "BZh", a digit, and how a block, or the end, begins. */
static bool recognises(const uint8_t *bytes, size_t count) {
    static const uint8_t block[] = {0x31, 0x41, 0x59, 0x26, 0x53, 0x59},
                         last[] = {0x17, 0x72, 0x45, 0x38, 0x50, 0x90};
    if (count < 4 + sizeof block || bytes[3] < '1' || bytes[3] > '9') return false;
    return memcmp(bytes + 4, block, sizeof block) == 0 ||
           memcmp(bytes + 4, last, sizeof last) == 0;
}

#if RPI_HAVE_BZIP2

#    include <bzlib.h>

typedef struct state {
    bz_stream stream;
    bool is_begun;
} state;

static rp_status begin_bzip2(void **out_state) {
    state *s = NULL;
    RP_TRY(rpi_alloc(sizeof *s, "bzip2", &s));
    *out_state = s;
    return RP_OK;
}

static rp_status start(state *s) {
    if (s->is_begun) return RP_OK;
    s->stream = (bz_stream){0};
    if (BZ2_bzDecompressInit(&s->stream, 0, 0) != BZ_OK)
        return RP_FAIL(NOMEM, "no memory to read bzip2");
    s->is_begun = true;
    return RP_OK;
}

static void stop(state *s) {
    if (s->is_begun) BZ2_bzDecompressEnd(&s->stream);
    s->is_begun = false;
}

static rp_status step_bzip2(void *context, rpi_unpacking *at, bool *out_ended) {
    state *s = context;
    bz_stream *z = &s->stream;
    RP_TRY(start(s));
    z->next_in = (char *)(uintptr_t)at->in;
    z->avail_in = (unsigned)at->in_count;
    z->next_out = (char *)at->out;
    z->avail_out = (unsigned)at->room;
    int code = BZ2_bzDecompress(z);
    at->in += at->in_count - z->avail_in;
    at->in_count = z->avail_in;
    at->out += at->room - z->avail_out;
    at->room = z->avail_out;
    *out_ended = code == BZ_STREAM_END;
    if (*out_ended) stop(s);
    if (code == BZ_OK || code == BZ_STREAM_END) return RP_OK;
    if (code == BZ_MEM_ERROR) return RP_FAIL(NOMEM, "no memory to read bzip2");
    return code == BZ_DATA_ERROR_MAGIC ? RP_FAIL(CORRUPT, "no header of bzip2")
                                       : RP_FAIL(CORRUPT, "data and checks do not fit");
}

static void end_bzip2(void *context) {
    state *s = context;
    if (!s) return;
    stop(s);
    rpi_free(s);
}
#else
#    define begin_bzip2 NULL
#    define step_bzip2  NULL
#    define end_bzip2   NULL
#endif

const rpi_packing rpi_packing_bzip2 = {
    .name = "bzip2",
    .command = "bzip2 -d",
    .package = "libbz2-dev",
    .magic = (const uint8_t[]){'B', 'Z', 'h'},
    .magic_bytes = 3,
    .recognises = recognises,
    .begin = begin_bzip2,
    .step = step_bzip2,
    .end = end_bzip2,
};
