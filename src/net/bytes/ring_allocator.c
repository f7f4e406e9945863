#include "net/bytes/ring_allocator.h"

bool rpi_ring_allocator_fit(rpi_ring_allocator *allocator, size_t bytes, size_t *out_offset) {
    size_t room = rpi_ring_round(bytes);
    if (allocator->count == 0) {
        *out_offset = 0; /* what was used last is still in the cache */
        return room <= allocator->capacity;
    }
    if (allocator->count == RPI_RING_REGIONS) return false;
    const rpi_ring_region *oldest = rpi_ring_allocator_at(allocator, 0);
    const rpi_ring_region *newest = rpi_ring_allocator_at(allocator, allocator->count - 1);
    size_t end = newest->offset + rpi_ring_round(newest->bytes);
    bool wrapped = newest->offset < oldest->offset;
    if (room <= (wrapped ? oldest->offset : allocator->capacity) - end) {
        *out_offset = end;
        return true;
    }
    *out_offset = 0;
    return !wrapped && room <= oldest->offset;
}

void rpi_ring_allocator_push(rpi_ring_allocator *allocator, size_t offset, size_t bytes) {
    *rpi_ring_allocator_at(allocator, allocator->count++) = (rpi_ring_region){offset, bytes};
}
