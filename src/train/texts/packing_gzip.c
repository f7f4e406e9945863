/* gzip by zlib, which every build has. */
#include "base/memory.h"
#include "train/texts/packing.h"

#include <zlib.h>

extern const rpi_packing rpi_packing_gzip;

enum { GZIP_WINDOW = 15 + 16 }; /* the largest, with gzip's header */

typedef struct state {
    z_stream stream;
    bool is_between; /* streams */
} state;

static rp_status begin(void **out_state) {
    state *s = NULL;
    RP_TRY(rpi_alloc(sizeof *s, "gzip", &s));
    if (inflateInit2(&s->stream, GZIP_WINDOW) != Z_OK) {
        rpi_free(s);
        return RP_FAIL(NOMEM, "no memory to read gzip");
    }
    *out_state = s;
    return RP_OK;
}

static rp_status step(void *context, rpi_unpacking *at, bool *out_ended) {
    state *s = context;
    z_stream *z = &s->stream;
    if (s->is_between) (void)inflateReset(z);
    z->next_in = (Bytef *)(uintptr_t)at->in;
    z->avail_in = (uInt)at->in_count;
    z->next_out = at->out;
    z->avail_out = (uInt)at->room;
    int code = inflate(z, Z_NO_FLUSH);
    at->in += at->in_count - z->avail_in;
    at->in_count = z->avail_in;
    at->out += at->room - z->avail_out;
    at->room = z->avail_out;
    *out_ended = s->is_between = code == Z_STREAM_END;
    if (code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR) return RP_OK;
    if (code == Z_MEM_ERROR) return RP_FAIL(NOMEM, "no memory to read gzip");
    return RP_FAIL(CORRUPT, "%s", z->msg ? z->msg : "it needs a dictionary");
}

static void end(void *context) {
    state *s = context;
    if (!s) return;
    inflateEnd(&s->stream);
    rpi_free(s);
}

const rpi_packing rpi_packing_gzip = {
    .name = "gzip",
    .command = "gzip -d",
    .package = "zlib1g-dev",
    .magic = (const uint8_t[]){0x1f, 0x8b},
    .magic_bytes = 2,
    .begin = begin,
    .step = step,
    .end = end,
};
