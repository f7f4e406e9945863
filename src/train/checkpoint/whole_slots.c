#include "train/checkpoint/whole_slots.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

/* Where each rank's elements lie among all, one rank's behind another's. */
static rp_status list_blocks(const rpi_trainer *t, float *packed, rp_block **out_blocks) {
    rp_block *blocks = NULL;
    RP_TRY(rpi_alloc_array((size_t)t->place.world, sizeof *blocks, "blocks", &blocks));
    for (int rank = 0; rank < t->place.world; rank++) {
        int64_t count = rpi_ownership_elements(&t->ownership, rank);
        blocks[rank] = (rp_block){packed, (size_t)count};
        packed += count;
    }
    *out_blocks = blocks;
    return RP_OK;
}

/* Each owner's elements are in the order of the arena. */
static void unpack(const rpi_ownership *ownership, rp_block *blocks, float *whole) {
    for (int i = 0; i < ownership->count; i++) {
        const rpi_owned_part *part = &ownership->parts[i];
        rp_block *from = &blocks[part->owner];
        memcpy(whole + part->range.first, from->data,
               (size_t)part->range.count * sizeof *whole);
        from->data = (float *)from->data + part->range.count;
    }
}

static rp_status gather_at_first(const rpi_trainer *t, const float *own, size_t count,
                                 float *whole) {
    size_t all = (size_t)rpi_weights_count(t->weights);
    float *packed = NULL;
    rp_block *blocks = NULL;
    rp_status status = rpi_alloc_array(all, sizeof *packed, "optimizer state", &packed);
    if (status == RP_OK) status = list_blocks(t, packed, &blocks);
    if (status == RP_OK) status = rp_gather(t->comm, own, count, blocks, RP_F32, NULL);
    if (status == RP_OK) unpack(&t->ownership, blocks, whole);
    rpi_free(blocks);
    rpi_free(packed);
    return status;
}

static rp_status gather_slot(const rpi_trainer *t, int slot, float **out_whole) {
    size_t count = (size_t)rpi_ownership_elements(&t->ownership, t->place.rank);
    const float *own = t->optimizer.slots[slot];
    if (t->place.rank) return rp_gather(t->comm, own, count, NULL, RP_F32, NULL);
    RP_TRY(rpi_alloc_array((size_t)rpi_weights_count(t->weights), sizeof **out_whole,
                           "optimizer state", out_whole));
    return gather_at_first(t, own, count, *out_whole);
}

rp_status rpi_whole_slots_gather(const rpi_trainer *t, rpi_whole_slots *out_slots) {
    for (int s = 0; t->ownership.count && s < t->optimizer.slot_count; s++)
        RP_TRY(gather_slot(t, s, &out_slots->copies[s]));
    return RP_OK;
}

void rpi_whole_slots_free(rpi_whole_slots *slots) {
    for (int s = 0; s <= RPI_OPTIMIZER_SLOTS; s++) rpi_free(slots->copies[s]);
    *slots = (rpi_whole_slots){0};
}

const float *rpi_whole_slots_at(const rpi_whole_slots *slots, const rpi_trainer *t, int slot,
                                int64_t first) {
    if (slots->copies[slot]) return slots->copies[slot] + first;
    return rpi_optimizer_state_slot(&t->optimizer, slot, first);
}
