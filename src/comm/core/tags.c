#include "comm/core/tags.h"

#include "base/memory.h"
#include "base/status.h"

#define NUMBERS (UINT32_C(1) << 31)

static size_t slot_of(uint32_t key, size_t room) {
    return (size_t)(key * UINT32_C(0x9e3779b1)) & (room - 1);
}

/* The key's slot, or the free slot for it. */
static rpi_tag *probe(const rpi_tags *tags, uint32_t key) {
    size_t at = slot_of(key, tags->room);
    while (tags->slots[at].key && tags->slots[at].key != key) at = (at + 1) & (tags->room - 1);
    return &tags->slots[at];
}

static rp_status grow(rpi_tags *tags) {
    rpi_tags larger = {.room = tags->room ? 2 * tags->room : 8, .count = tags->count};
    RP_TRY(rpi_alloc_array(larger.room, sizeof *larger.slots, "tags", &larger.slots));
    for (size_t i = 0; i < tags->room; i++)
        if (tags->slots[i].key) *probe(&larger, tags->slots[i].key) = tags->slots[i];
    rpi_free(tags->slots);
    *tags = larger;
    return RP_OK;
}

rpi_tag *rpi_tags_find(const rpi_tags *tags, int tag) {
    if (!tags->room) return NULL;
    rpi_tag *slot = probe(tags, (uint32_t)tag + 1);
    return slot->key ? slot : NULL;
}

rp_status rpi_tags_get(rpi_tags *tags, int tag, rpi_tag **out_tag) {
    *out_tag = rpi_tags_find(tags, tag);
    if (*out_tag) return RP_OK;
    if (2 * (tags->count + 1) > tags->room) RP_TRY(grow(tags));
    *out_tag = probe(tags, (uint32_t)tag + 1);
    (*out_tag)->key = (uint32_t)tag + 1;
    tags->count++;
    return RP_OK;
}

void rpi_tags_free(rpi_tags *tags) {
    rpi_free(tags->slots);
    *tags = (rpi_tags){0};
}

uint32_t rpi_tag_next(uint32_t number) {
    return (number + 1) % NUMBERS;
}

/* Later on the circle of numbers, by less than half of it. */
static bool is_later(uint32_t a, uint32_t b) {
    uint32_t ahead = (a - b) % NUMBERS;
    return ahead > 0 && ahead < NUMBERS / 2;
}

bool rpi_tag_waits(const rpi_tag *tag) {
    return is_later(tag->has_rts, tag->received);
}

bool rpi_tag_is_new(const rpi_tag *tag, uint32_t number) {
    return is_later(number, tag->has_rts);
}
