/* Zstandard by libzstd. */
#include "base/memory.h"
#include "train/texts/packing.h"

#include <string.h>

extern const rpi_packing rpi_packing_zstd;

/* A frame, or one that is skipped, with which pzstd and seekable files begin. */
static bool recognises(const uint8_t *bytes, size_t count) {
    static const uint8_t frame[] = {0x28, 0xb5, 0x2f, 0xfd}, skipped[] = {0x2a, 0x4d, 0x18};
    if (count < sizeof frame) return false;
    return memcmp(bytes, frame, sizeof frame) == 0 ||
           ((bytes[0] & 0xf0) == 0x50 && memcmp(bytes + 1, skipped, sizeof skipped) == 0);
}

#if RPI_HAVE_ZSTD

#    include <zstd.h>

enum { WINDOW_LOG_MOST = 31 }; /* RPI_PACKING_WINDOW_MOST */

static rp_status begin_zstd(void **out_state) {
    ZSTD_DStream *z = ZSTD_createDStream();
    if (!z) return RP_FAIL(NOMEM, "no memory to read zstd");
    (void)ZSTD_DCtx_setParameter(z, ZSTD_d_windowLogMax, WINDOW_LOG_MOST);
    *out_state = z;
    return RP_OK;
}

static rp_status step_zstd(void *context, rpi_unpacking *at, bool *out_ended) {
    ZSTD_inBuffer in = {at->in, at->in_count, 0};
    ZSTD_outBuffer out = {at->out, at->room, 0};
    size_t code = ZSTD_decompressStream(context, &out, &in);
    at->in += in.pos;
    at->in_count -= in.pos;
    at->out += out.pos;
    at->room -= out.pos;
    *out_ended = code == 0;
    return ZSTD_isError(code) ? RP_FAIL(CORRUPT, "%s", ZSTD_getErrorName(code)) : RP_OK;
}

static void end_zstd(void *context) {
    ZSTD_freeDStream(context);
}
#else
#    define begin_zstd NULL
#    define step_zstd  NULL
#    define end_zstd   NULL
#endif

const rpi_packing rpi_packing_zstd = {
    .name = "zstd",
    .command = "zstd -d",
    .package = "libzstd-dev",
    .magic = (const uint8_t[]){0},
    .magic_bytes = 0,
    .recognises = recognises,
    .begin = begin_zstd,
    .step = step_zstd,
    .end = end_zstd,
};
