/* xz by liblzma. */
#include "base/memory.h"
#include "train/texts/packing.h"

extern const rpi_packing rpi_packing_xz;

#if RPI_HAVE_XZ

#    include <lzma.h>

/* Beside the window there is some memory of its own. */
#    define MEMORY_MOST (RPI_PACKING_WINDOW_MOST + (UINT64_C(1) << 26))

static rp_status start(lzma_stream *s) {
    lzma_ret code = lzma_stream_decoder(s, MEMORY_MOST, 0);
    return code == LZMA_OK ? RP_OK : RP_FAIL(NOMEM, "no memory to read xz");
}

typedef struct state {
    lzma_stream stream;
    bool is_between; /* streams */
} state;

static rp_status begin_xz(void **out_state) {
    state *s = NULL;
    RP_TRY(rpi_alloc(sizeof *s, "xz", &s));
    s->stream = (lzma_stream)LZMA_STREAM_INIT;
    rp_status status = start(&s->stream);
    if (status == RP_OK)
        *out_state = s;
    else
        rpi_free(s);
    return status;
}

static rp_status fail(lzma_ret code) {
    if (code == LZMA_MEM_ERROR) return RP_FAIL(NOMEM, "no memory to read xz");
    if (code == LZMA_MEMLIMIT_ERROR)
        return RP_FAIL(CORRUPT, "its window is larger than %llu bytes, which are the most",
                       (unsigned long long)RPI_PACKING_WINDOW_MOST);
    if (code == LZMA_FORMAT_ERROR) return RP_FAIL(CORRUPT, "no header of xz");
    if (code == LZMA_OPTIONS_ERROR) return RP_FAIL(CORRUPT, "options that are not known");
    return RP_FAIL(CORRUPT, "data and checks do not fit");
}

static rp_status step_xz(void *context, rpi_unpacking *at, bool *out_ended) {
    state *s = context;
    lzma_stream *z = &s->stream;
    if (s->is_between) RP_TRY(start(z));
    z->next_in = at->in;
    z->avail_in = at->in_count;
    z->next_out = at->out;
    z->avail_out = at->room;
    lzma_ret code = lzma_code(z, LZMA_RUN);
    at->in = z->next_in;
    at->in_count = z->avail_in;
    at->out = z->next_out;
    at->room = z->avail_out;
    *out_ended = s->is_between = code == LZMA_STREAM_END;
    return code == LZMA_OK || code == LZMA_STREAM_END || code == LZMA_BUF_ERROR ? RP_OK
                                                                                : fail(code);
}

static void end_xz(void *context) {
    state *s = context;
    if (!s) return;
    lzma_end(&s->stream);
    rpi_free(s);
}
#else
#    define begin_xz NULL
#    define step_xz  NULL
#    define end_xz   NULL
#endif

const rpi_packing rpi_packing_xz = {
    .name = "xz",
    .command = "xz -d",
    .package = "liblzma-dev",
    .magic = (const uint8_t[]){0xfd, '7', 'z', 'X', 'Z', 0},
    .magic_bytes = 6,
    .begin = begin_xz,
    .step = step_xz,
    .end = end_xz,
};
