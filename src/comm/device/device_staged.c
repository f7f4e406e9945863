/* Pinned copies of memory of a GPU, for the host; device.h draws it. */
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/device/device.h"
#include "comm/values/values.h"

#include "base/memory.h"

#include <string.h>

/* ---- a chunk's state ---- */

rpi_staged *rpi_staged_of(const rpi_chunk *chunk, int kind, int part) {
    return &chunk->device->staged[kind][part];
}

rp_status rpi_device_chunk_new(const rpi_compiled_schedule *compiled,
                               rpi_device_chunk **out_chunk) {
    const rpi_schedule *schedule = &compiled->schedule;
    size_t parts = (size_t)schedule->parts * sizeof(rpi_staged);
    size_t steps = (size_t)schedule->count * sizeof(rpi_device_step);
    size_t head = rpi_align_up(sizeof(rpi_device_chunk));
    unsigned char *memory = NULL;
    size_t pinned =
        (size_t)(2 * schedule->encoded_slots + schedule->parts) * sizeof(rpi_pinned *);
    RP_TRY(rpi_alloc(head + RPI_STAGED_KINDS * parts + steps + pinned, "the state of a chunk",
                     &memory));
    rpi_device_chunk *chunk = (rpi_device_chunk *)(void *)memory;
    memory += head;
    for (int kind = 0; kind < RPI_STAGED_KINDS; kind++, memory += parts)
        chunk->staged[kind] = (rpi_staged *)(void *)memory;
    chunk->steps = (rpi_device_step *)(void *)memory;
    chunk->encoded_slots = (rpi_pinned **)(void *)(memory + steps);
    chunk->ragged = chunk->encoded_slots + schedule->encoded_slots;
    chunk->sums = chunk->ragged + schedule->encoded_slots;
    *out_chunk = chunk;
    return RP_OK;
}

/* Memory that the GPU may still access is not used again. */
static void give(rpi_transfer *transfer, rpi_pinned *pinned) {
    if (!pinned) return;
    if (!transfer->is_lost) {
        rpi_pinned_give(transfer->device, pinned);
        return;
    }
    pinned->next = transfer->left_behind;
    transfer->left_behind = pinned;
}

void rpi_device_encoded_give(rpi_chunk *chunk, int encoded_slot) {
    give(chunk->request->device, chunk->device->encoded_slots[encoded_slot]);
    give(chunk->request->device, chunk->device->ragged[encoded_slot]);
    chunk->device->encoded_slots[encoded_slot] = chunk->device->ragged[encoded_slot] = NULL;
}

void rpi_device_chunk_release(rpi_chunk *chunk) {
    rpi_transfer *transfer = chunk->request->device;
    const rpi_schedule *schedule = &chunk->request->compiled->schedule;
    rpi_device_chunk *device = chunk->device;
    for (int kind = 0; kind < RPI_STAGED_KINDS; kind++)
        for (int part = 0; part < schedule->parts; part++) {
            give(transfer, device->staged[kind][part].memory);
            device->staged[kind][part] = (rpi_staged){0};
        }
    for (int part = 0; part < schedule->parts; part++) {
        give(transfer, device->sums[part]);
        device->sums[part] = NULL;
    }
    memset(device->steps, 0, (size_t)schedule->count * sizeof *device->steps);
    device->closing = false;
    device->mark = 0;
    chunk->device = NULL;
}

/* ---- copies of values ---- */

static void *staged_at(const rpi_staged *staged, const rpi_slice *slice) {
    return staged->memory ? staged->memory->data + slice->sum_offset : NULL;
}

void *rpi_device_values(const rpi_chunk *chunk, int slot, int part, const rpi_slice *slice) {
    int kind = slot == RPI_SLOT_IN ? RPI_STAGED_IN : RPI_STAGED_OUT;
    return staged_at(rpi_staged_of(chunk, kind, part), slice);
}

float *rpi_device_residual(const rpi_chunk *chunk, int part, const rpi_slice *slice) {
    if (!slice->residual) return NULL;
    return staged_at(rpi_staged_of(chunk, RPI_STAGED_RESIDUAL, part), slice);
}

/* The residual that is sent with a slice's exact values; NULL: none is. */
static float *paid_with(const rpi_chunk *chunk, const rpi_slice *slice) {
    const rpi_device_change *change = &chunk->request->device->change;
    float *paid =
        change->paid ? change->paid[slice->extent - chunk->request->partition.extents] : NULL;
    return paid ? paid + slice->offset : NULL;
}

/* Also for those that the walk does not visit. */
static float *residual_there(const rpi_chunk *chunk, const rpi_slice *slice) {
    float *paid = paid_with(chunk, slice);
    return paid ? paid : slice->residual;
}

/* Their address on the device; NULL: none. */
void *rpi_device_place(const rpi_chunk *chunk, int kind, const rpi_slice *slice) {
    if (kind == RPI_STAGED_RESIDUAL) return residual_there(chunk, slice);
    const void *base = kind == RPI_STAGED_IN ? slice->extent->in : slice->extent->out;
    if (!base) return NULL;
    return (unsigned char *)(uintptr_t)base +
           slice->offset * rp_dtype_bytes(slice->extent->dtype);
}

size_t rpi_device_bytes(int kind, const rpi_slice *slice) {
    size_t each =
        kind == RPI_STAGED_RESIDUAL ? sizeof(float) : rp_dtype_bytes(slice->extent->dtype);
    return slice->count * each;
}

rp_status rpi_staged_take(rpi_chunk *chunk, int part, rpi_staged *staged) {
    size_t bytes = rpi_partition_sum_bytes(&chunk->request->partition, chunk->index, part);
    if (staged->memory || !bytes) return RP_OK;
    return rpi_pinned_take(chunk->request->device->device, bytes, &staged->memory);
}

static rp_status begin_fetch(rpi_chunk *chunk, int kind, int part) {
    rpi_transfer *transfer = chunk->request->device;
    rpi_staged *staged = rpi_staged_of(chunk, kind, part);
    rpi_slice slice;
    RP_TRY(rpi_transfer_open(transfer));
    RP_TRY(rpi_staged_take(chunk, part, staged));
    for (rpi_walk walk = rpi_chunk_walk(chunk, part, RPI_LEVEL_WORLD);
         rpi_walk_next(&walk, &slice);) {
        const void *from = rpi_device_place(chunk, kind, &slice);
        if (from)
            RP_TRY(rpi_lane_copy(transfer, RPI_LANE_FROM, staged_at(staged, &slice), from,
                                 rpi_device_bytes(kind, &slice)));
    }
    RP_TRY(rpi_lane_mark(transfer, RPI_LANE_FROM, &staged->mark));
    staged->state = RPI_STAGED_COMING;
    return RP_OK;
}

/* RP_PENDING: coming. */
rp_status rpi_device_fetch(rpi_chunk *chunk, int kind, int part) {
    rpi_staged *staged = rpi_staged_of(chunk, kind, part);
    if (staged->state == RPI_STAGED_HERE) return RP_OK;
    if (staged->state == RPI_STAGED_NOT) RP_TRY(begin_fetch(chunk, kind, part));
    if (!rpi_lane_has_come(chunk->request->device, RPI_LANE_FROM, staged->mark))
        return RP_PENDING;
    staged->state = RPI_STAGED_HERE;
    return RP_OK;
}

/* ---- contributions that are changed before they count (calls/contributions.c) ---- */

static bool flushes_residual(const rpi_chunk *chunk, int part) {
    rpi_slice slice;
    for (rpi_walk walk = rpi_chunk_walk(chunk, part, RPI_LEVEL_WORLD);
         chunk->request->device->change.paid && rpi_walk_next(&walk, &slice);)
        if (paid_with(chunk, &slice)) return true;
    return false;
}

bool rpi_device_changes(const rpi_chunk *chunk, int part) {
    return chunk->request->device->change.scales || flushes_residual(chunk, part);
}

static void change_slice(rpi_chunk *chunk, int part, const rpi_slice *slice) {
    static const rp_codec exact = {0};
    const rpi_device_change *change = &chunk->request->device->change;
    void *values = staged_at(rpi_staged_of(chunk, RPI_STAGED_IN, part), slice);
    rp_dtype dtype = slice->extent->dtype;
    if (change->scales) rpi_values_scale(values, dtype, change->factor, slice->count, values);
    if (!paid_with(chunk, slice)) return;
    rpi_staged *residual = rpi_staged_of(chunk, RPI_STAGED_RESIDUAL, part);
    rp_encode_context context = {.residual = staged_at(residual, slice)};
    (void)rp_codec_encode(&exact, dtype, values, slice->count, &context, values, NULL);
    residual->dirty = true;
}

/* IN as it counts. */
rp_status rpi_device_fetch_input(rpi_chunk *chunk, int part) {
    rpi_staged *in = rpi_staged_of(chunk, RPI_STAGED_IN, part);
    bool is_new = in->state != RPI_STAGED_HERE;
    rp_status residual = is_new && flushes_residual(chunk, part)
                             ? rpi_device_fetch(chunk, RPI_STAGED_RESIDUAL, part)
                             : RP_OK;
    if (residual < 0) return residual;
    RP_TRY(rpi_device_fetch(chunk, RPI_STAGED_IN, part));
    if (residual == RP_PENDING) {
        in->state = RPI_STAGED_COMING; /* not changed yet */
        return RP_PENDING;
    }
    rpi_slice slice;
    for (rpi_walk walk = rpi_chunk_walk(chunk, part, RPI_LEVEL_WORLD);
         is_new && rpi_device_changes(chunk, part) && rpi_walk_next(&walk, &slice);)
        change_slice(chunk, part, &slice);
    return RP_OK;
}

/* ---- the end of a chunk ---- */

static rp_status write_back(rpi_chunk *chunk, int kind, int part) {
    rpi_staged *staged = rpi_staged_of(chunk, kind, part);
    rpi_transfer *transfer = chunk->request->device;
    rpi_slice slice;
    staged->dirty = false;
    RP_TRY(rpi_transfer_open(transfer));
    for (rpi_walk walk = rpi_chunk_walk(chunk, part, RPI_LEVEL_WORLD);
         rpi_walk_next(&walk, &slice);) {
        void *there = rpi_device_place(chunk, kind, &slice);
        if (there)
            RP_TRY(rpi_lane_copy(transfer, RPI_LANE_INTO, there, staged_at(staged, &slice),
                                 rpi_device_bytes(kind, &slice)));
    }
    return RP_OK;
}

static rp_status close_chunk(rpi_chunk *chunk) {
    bool any = false;
    for (int kind = RPI_STAGED_OUT; kind <= RPI_STAGED_RESIDUAL; kind++)
        for (int part = 0; part < chunk->request->compiled->schedule.parts; part++) {
            if (!rpi_staged_of(chunk, kind, part)->dirty) continue;
            any = true;
            RP_TRY(write_back(chunk, kind, part));
        }
    if (any) RP_TRY(rpi_lane_mark(chunk->request->device, RPI_LANE_INTO, &chunk->device->mark));
    chunk->device->closing = true;
    return RP_OK;
}

rp_status rpi_device_is_finished(rpi_chunk *chunk) {
    rpi_device_chunk *device = chunk->device;
    if (!device->closing) RP_TRY(close_chunk(chunk));
    bool come = rpi_lane_has_come(chunk->request->device, RPI_LANE_INTO, device->mark);
    return come ? RP_OK : RP_PENDING;
}
