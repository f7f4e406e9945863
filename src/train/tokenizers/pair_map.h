/* A hash table from two numbers to two numbers. Nothing is ever taken out. */
#ifndef RPI_TRAIN_PAIR_MAP_H
#define RPI_TRAIN_PAIR_MAP_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct rpi_pair_entry {
    uint32_t left, right;   /* the key */
    uint32_t first, second; /* the value */
} rpi_pair_entry;

typedef struct rpi_pair_map {
    rpi_pair_entry *slots; /* left RPI_PAIR_EMPTY: free */
    size_t mask, count;
} rpi_pair_map;

#define RPI_PAIR_EMPTY UINT32_MAX /* no key's left */

/* The entry with this key, made with zeros where there is none; valid until the next call. */
rp_status rpi_pair_map_put(rpi_pair_map *map, uint32_t left, uint32_t right,
                           rpi_pair_entry **out_entry);
void rpi_pair_map_free(rpi_pair_map *map);

static inline size_t rpi_pair_hash(uint32_t left, uint32_t right) {
    uint64_t key = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    return (size_t)(key ^ key >> 32);
}

/* NULL: there is none. */
static inline rpi_pair_entry *rpi_pair_map_get(const rpi_pair_map *map, uint32_t left,
                                               uint32_t right) {
    if (!map->slots) return NULL;
    for (size_t i = rpi_pair_hash(left, right) & map->mask;; i = (i + 1) & map->mask) {
        rpi_pair_entry *entry = &map->slots[i];
        if (entry->left == left && entry->right == right) return entry;
        if (entry->left == RPI_PAIR_EMPTY) return NULL;
    }
}

#endif
