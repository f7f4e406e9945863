/* Pieces of one buffer handed out and given back in the same order: frames of any length, each
 * in one piece and aligned. Bookkeeping only; it never touches the buffer. */
#ifndef RPI_NET_EXTENTS_H
#define RPI_NET_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RPI_EXTENTS = 256, RPI_EXTENT_ALIGNMENT = 64 };

typedef struct rpi_extent {
    size_t offset, bytes;
} rpi_extent;

typedef struct rpi_extents {
    size_t capacity;       /* of the buffer, a multiple of the alignment */
    uint32_t first, count; /* index of the oldest, counted since the beginning; how many */
    rpi_extent at[RPI_EXTENTS];
} rpi_extents;

static inline size_t rpi_extent_round(size_t bytes) {
    return (bytes + RPI_EXTENT_ALIGNMENT - 1) & ~(size_t)(RPI_EXTENT_ALIGNMENT - 1);
}

/* The i-th oldest. */
static inline rpi_extent *rpi_extents_at(rpi_extents *extents, uint32_t i) {
    return &extents->at[(extents->first + i) % RPI_EXTENTS];
}

/* Where a new piece would lie; false when there is no room. */
bool rpi_extents_fit(rpi_extents *extents, size_t bytes, size_t *out_offset);
/* Add a piece where fit() said; it may be shorter than what was asked for there. */
void rpi_extents_push(rpi_extents *extents, size_t offset, size_t bytes);
static inline void rpi_extents_pop(rpi_extents *extents) {
    extents->first++;
    extents->count--;
}

#endif
