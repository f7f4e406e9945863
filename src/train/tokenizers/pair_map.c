#include "train/tokenizers/pair_map.h"

#include "base/memory.h"

enum { LEAST_SLOTS = 64 };

static rpi_pair_entry *place(const rpi_pair_map *map, uint32_t left, uint32_t right) {
    size_t i = rpi_pair_hash(left, right) & map->mask;
    while (map->slots[i].left != RPI_PAIR_EMPTY) i = (i + 1) & map->mask;
    return &map->slots[i];
}

static rp_status grow(rpi_pair_map *map) {
    size_t old = map->slots ? map->mask + 1 : 0, slots = old ? 2 * old : LEAST_SLOTS;
    rpi_pair_map next = {.mask = slots - 1, .count = map->count};
    RP_TRY(rpi_alloc_array(slots, sizeof *next.slots, "a table of pairs", &next.slots));
    for (size_t i = 0; i < slots; i++) next.slots[i].left = RPI_PAIR_EMPTY;
    for (size_t i = 0; i < old; i++)
        if (map->slots[i].left != RPI_PAIR_EMPTY)
            *place(&next, map->slots[i].left, map->slots[i].right) = map->slots[i];
    rpi_free(map->slots);
    *map = next;
    return RP_OK;
}

rp_status rpi_pair_map_put(rpi_pair_map *map, uint32_t left, uint32_t right,
                           rpi_pair_entry **out_entry) {
    *out_entry = rpi_pair_map_get(map, left, right);
    if (*out_entry) return RP_OK;
    if (!map->slots || 2 * (map->count + 1) > map->mask + 1) RP_TRY(grow(map));
    *out_entry = place(map, left, right);
    **out_entry = (rpi_pair_entry){.left = left, .right = right};
    map->count++;
    return RP_OK;
}

void rpi_pair_map_free(rpi_pair_map *map) {
    rpi_free(map->slots);
    *map = (rpi_pair_map){0};
}
