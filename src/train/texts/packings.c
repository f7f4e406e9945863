#include "train/texts/packing.h"

#include <string.h>

extern const rpi_packing rpi_packing_gzip;
extern const rpi_packing rpi_packing_xz;
extern const rpi_packing rpi_packing_bzip2;
extern const rpi_packing rpi_packing_zstd;

static const rpi_packing *const packings[] = {
    &rpi_packing_gzip,
    &rpi_packing_xz,
    &rpi_packing_bzip2,
    &rpi_packing_zstd,
};
enum { PACKINGS = sizeof packings / sizeof packings[0] };

const rpi_packing *rpi_packing_at(int index) {
    return index >= 0 && index < PACKINGS ? packings[index] : NULL;
}

const rpi_packing *rpi_packing_of(const uint8_t *bytes, size_t count) {
    for (int i = 0; i < PACKINGS; i++) {
        size_t magic = (size_t)packings[i]->magic_bytes;
        if (count < magic || memcmp(bytes, packings[i]->magic, magic) != 0) continue;
        if (!packings[i]->recognises || packings[i]->recognises(bytes, count))
            return packings[i];
    }
    return NULL;
}

rp_status rpi_packing_check(const rpi_packing *packing) {
    if (packing->step) return RP_OK;
    return RP_FAIL(UNSUPPORTED,
                   "this build of redpoll reads no %s: install %s (Debian and Ubuntu: apt-get "
                   "install %s) and build it again, or unpack the file: %s FILE",
                   packing->name, packing->package, packing->package, packing->command);
}
