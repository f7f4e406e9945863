#include "net/bytes/extents.h"

bool rpi_extents_fit(rpi_extents *extents, size_t bytes, size_t *out_offset) {
    size_t room = rpi_extent_round(bytes);
    if (extents->count == 0) {
        *out_offset = 0; /* what was used last is still in the cache */
        return room <= extents->capacity;
    }
    if (extents->count == RPI_EXTENTS) return false;
    const rpi_extent *oldest = rpi_extents_at(extents, 0);
    const rpi_extent *newest = rpi_extents_at(extents, extents->count - 1);
    size_t end = newest->offset + rpi_extent_round(newest->bytes);
    bool wrapped = newest->offset < oldest->offset;
    if (room <= (wrapped ? oldest->offset : extents->capacity) - end) {
        *out_offset = end;
        return true;
    }
    *out_offset = 0;
    return !wrapped && room <= oldest->offset;
}

void rpi_extents_push(rpi_extents *extents, size_t offset, size_t bytes) {
    *rpi_extents_at(extents, extents->count++) = (rpi_extent){offset, bytes};
}
