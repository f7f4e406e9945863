/* Packed files, and the contract of a packing, which packings.c lists. A new packing is one
 * file that exports one `const rpi_packing`, one row in packings.c and one word in
 * CMakeLists.txt. It is known by a file's first bytes, whatever the file's name says. */
#ifndef RPI_TRAIN_PACKING_H
#define RPI_TRAIN_PACKING_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a file's window may take: `xz --long`, `zstd --long=31`. */
#define RPI_PACKING_WINDOW_MOST (UINT64_C(1) << 31)

/* Bytes at hand and room for what they unpack to; a step moves both on. */
typedef struct rpi_unpacking {
    const uint8_t *in;
    size_t in_count;
    uint8_t *out;
    size_t room;
} rpi_unpacking;

typedef struct rpi_packing {
    const char *name;    /* "xz" */
    const char *command; /* what unpacks a file of it elsewhere: "xz -d" */
    const char *package; /* Debian's, which brings the library */
    const uint8_t *magic;
    int magic_bytes;
    /* Where a text might begin so, too: is it one? NULL: the magic is enough. */
    bool (*recognises)(const uint8_t *bytes, size_t count);
    rp_status (*begin)(void **out_state);
    /* Unpacks what fits. *out_ended: a stream is at its end; what stands behind it begins
     * another, with the next step. RP_CORRUPT in the library's words: damaged. NULL: this build
     * is without the library. */
    rp_status (*step)(void *state, rpi_unpacking *at, bool *out_ended);
    void (*end)(void *state);
} rpi_packing;

const rpi_packing *rpi_packing_at(int index); /* NULL past the end */
/* Of a file that begins so; NULL: it is not packed, or by none of these. */
const rpi_packing *rpi_packing_of(const uint8_t *bytes, size_t count);
/* RP_UNSUPPORTED: the library is missing in this build, and the package that brings it. */
rp_status rpi_packing_check(const rpi_packing *packing);

#endif
