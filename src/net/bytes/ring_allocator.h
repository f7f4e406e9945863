/* Allocates regions of one buffer and frees them in the same order: frames of any length, each
 * contiguous and aligned. It only keeps the books, and never touches the buffer. */
#ifndef RPI_NET_RING_ALLOCATOR_H
#define RPI_NET_RING_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RPI_RING_REGIONS = 256, RPI_RING_ALIGNMENT = 64 };

typedef struct rpi_ring_region {
    size_t offset, bytes;
} rpi_ring_region;

typedef struct rpi_ring_allocator {
    size_t capacity;       /* of the buffer, a multiple of the alignment */
    uint32_t first, count; /* index of the oldest, counted since the beginning; how many */
    rpi_ring_region at[RPI_RING_REGIONS];
} rpi_ring_allocator;

static inline size_t rpi_ring_round(size_t bytes) {
    return (bytes + RPI_RING_ALIGNMENT - 1) & ~(size_t)(RPI_RING_ALIGNMENT - 1);
}

/* The i-th oldest. */
static inline rpi_ring_region *rpi_ring_allocator_at(rpi_ring_allocator *allocator,
                                                     uint32_t i) {
    return &allocator->at[(allocator->first + i) % RPI_RING_REGIONS];
}

/* Where a new region would begin; false if there is no room. */
bool rpi_ring_allocator_fit(rpi_ring_allocator *allocator, size_t bytes, size_t *out_offset);
/* Add a region where fit() said; it may be shorter than fit() was asked for. */
void rpi_ring_allocator_push(rpi_ring_allocator *allocator, size_t offset, size_t bytes);
static inline void rpi_ring_allocator_pop(rpi_ring_allocator *allocator) {
    allocator->first++;
    allocator->count--;
}

#endif
