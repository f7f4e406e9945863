#include "comm/core/number_index.h"

#include "base/memory.h"
#include "base/status.h"

enum { ROOM_MIN = 64 };

static size_t home_of(const rpi_index *index, uint64_t sequence, int rank) {
    uint64_t key = (sequence + (uint64_t)(uint32_t)rank * UINT64_C(0x9e3779b97f4a7c15)) *
                   UINT64_C(0xd6e8feb86659fd93);
    return (size_t)(key >> 32) & (index->room - 1);
}

/* The key's slot, or the free slot for it. */
static size_t probe(const rpi_index *index, uint64_t sequence, int rank) {
    size_t at = home_of(index, sequence, rank);
    while (index->slots[at].value &&
           (index->slots[at].sequence != sequence || index->slots[at].rank != rank))
        at = (at + 1) & (index->room - 1);
    return at;
}

void *rpi_index_find(const rpi_index *index, uint64_t sequence, int rank) {
    return index->count ? index->slots[probe(index, sequence, rank)].value : NULL;
}

static rp_status grow(rpi_index *index) {
    rpi_index larger = {.room = index->room ? 2 * index->room : ROOM_MIN,
                        .count = index->count};
    RP_TRY(rpi_alloc_array(larger.room, sizeof *larger.slots, "operations", &larger.slots));
    for (size_t i = 0; i < index->room; i++) {
        const rpi_index_slot *slot = &index->slots[i];
        if (slot->value) larger.slots[probe(&larger, slot->sequence, slot->rank)] = *slot;
    }
    rpi_free(index->slots);
    *index = larger;
    return RP_OK;
}

rp_status rpi_index_put(rpi_index *index, uint64_t sequence, int rank, void *value) {
    if (2 * (index->count + 1) > index->room) RP_TRY(grow(index));
    index->slots[probe(index, sequence, rank)] =
        (rpi_index_slot){.sequence = sequence, .rank = rank, .value = value};
    index->count++;
    return RP_OK;
}

/* Slots after a free one must stay reachable from where their search begins. */
static void close_gap(rpi_index *index, size_t gap) {
    size_t mask = index->room - 1;
    for (size_t at = (gap + 1) & mask; index->slots[at].value; at = (at + 1) & mask) {
        size_t home = home_of(index, index->slots[at].sequence, index->slots[at].rank);
        if (((at - home) & mask) < ((at - gap) & mask)) continue; /* its home is past the gap */
        index->slots[gap] = index->slots[at];
        gap = at;
    }
    index->slots[gap] = (rpi_index_slot){0};
}

void rpi_index_remove(rpi_index *index, uint64_t sequence, int rank) {
    if (!index->count) return;
    size_t at = probe(index, sequence, rank);
    if (!index->slots[at].value) return;
    close_gap(index, at);
    if (--index->count == 0 && index->room > ROOM_MIN) rpi_index_free(index);
}

void rpi_index_free(rpi_index *index) {
    rpi_free(index->slots);
    *index = (rpi_index){0};
}
