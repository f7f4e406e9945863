/* Parts of values: copied, weighed, added. */
#include "comm/core/chunk.h"
#include "comm/parts/parts.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/device/device.h"
#include "comm/values/reductions.h"
#include "comm/values/values.h"

rp_dtype rpi_slot_dtype(int slot, const rpi_run *run) {
    return slot == RPI_SLOT_SUM ? rpi_sum_dtype(run->dtype) : run->dtype;
}

void *rpi_slot_values(const rpi_chunk *chunk, int slot, int part, const rpi_piece *piece) {
    const rp_request *request = chunk->request;
    if (slot == RPI_SLOT_SUM) {
        size_t index = (size_t)request->routine->sum_of_part[part];
        return chunk->sums + index * chunk->sum_stride + piece->sum_offset;
    }
    if (chunk->device) return rpi_device_values(chunk, slot, part, piece);
    const void *base = slot == RPI_SLOT_IN ? piece->run->in : piece->run->out;
    return (unsigned char *)base + piece->offset * rp_dtype_bytes(piece->run->dtype);
}

rpi_wire *rpi_wire_of(rpi_chunk *chunk, int slot) {
    return &chunk->wires[slot - RPI_SLOT_WIRE];
}

rp_status rpi_scratch_take(rpi_fabric *fabric, size_t bytes, void **out_scratch) {
    if (bytes > fabric->scratch_room) {
        RP_TRY(rpi_grow_array(0, bytes, 1, "16-bit sums", &fabric->scratch));
        fabric->scratch_room = bytes;
    }
    *out_scratch = fabric->scratch;
    return RP_OK;
}

static void weigh_values(const rpi_chunk *chunk, rpi_fraction weight, void *values,
                         rp_dtype dtype, size_t count) {
    if (!rpi_is_weight(weight)) return;
    if (!weight.over) {
        double factor = chunk->request->hood.places[weight.times - 1].weight;
        rpi_values_scale(values, dtype, factor, count, values);
        return;
    }
    rpi_values_weigh(values, dtype, weight.times, weight.over, count);
}

/* Weights act in the precision of accumulators, wherever the result goes. */
static rp_status weigh_piece(rpi_chunk *chunk, const rpi_action *action,
                             const rpi_piece *piece) {
    rp_dtype wide = rpi_sum_dtype(piece->run->dtype);
    rp_dtype into = rpi_slot_dtype(action->into, piece->run);
    void *result = rpi_slot_values(chunk, action->into, action->part, piece), *values = result;
    if (into != wide)
        RP_TRY(rpi_scratch_take(chunk->request->comm->fabric,
                                piece->count * rp_dtype_bytes(wide), &values));
    rpi_values_convert(rpi_slot_values(chunk, action->from, action->part, piece),
                       rpi_slot_dtype(action->from, piece->run), values, wide, piece->count);
    weigh_values(chunk, action->weight, values, wide, piece->count);
    rpi_values_convert(values, wide, result, into, piece->count);
    return RP_OK;
}

rp_status rpi_part_copy(rpi_chunk *chunk, int from, int into, int part) {
    rpi_piece piece;
    for (rpi_walk walk = rpi_chunk_walk(chunk, part, RPI_LEVEL_WORLD);
         rpi_walk_next(&walk, &piece);)
        rpi_values_convert(rpi_slot_values(chunk, from, part, &piece),
                           rpi_slot_dtype(from, piece.run),
                           rpi_slot_values(chunk, into, part, &piece),
                           rpi_slot_dtype(into, piece.run), piece.count);
    return RP_OK;
}

rp_status rpi_part_run_copy(rpi_chunk *chunk, const rpi_action *action) {
    if (!rpi_is_weight(action->weight))
        return rpi_part_copy(chunk, action->from, action->into, action->part);
    rpi_piece piece;
    for (rpi_walk walk = rpi_chunk_walk(chunk, action->part, action->level);
         rpi_walk_next(&walk, &piece);)
        RP_TRY(weigh_piece(chunk, action, &piece));
    return RP_OK;
}

rp_status rpi_piece_add_weighed(rpi_chunk *chunk, const rpi_action *action,
                                const rpi_piece *piece, void *values) {
    rp_dtype dtype = rpi_sum_dtype(piece->run->dtype);
    weigh_values(chunk, action->weight, values, dtype, piece->count);
    rpi_reduce(chunk->request->reduce, rpi_cpu_isa(), dtype, values, piece->count,
               rpi_slot_values(chunk, action->into, action->part, piece));
    return RP_OK;
}

static rp_status add_piece(rpi_chunk *chunk, const rpi_action *action, const rpi_piece *piece) {
    const void *from = rpi_slot_values(chunk, action->from, action->part, piece);
    rp_dtype dtype = rpi_slot_dtype(action->from, piece->run);
    if (!rpi_is_weight(action->weight)) {
        rpi_reduce(chunk->request->reduce, rpi_cpu_isa(), dtype, from, piece->count,
                   rpi_slot_values(chunk, action->into, action->part, piece));
        return RP_OK;
    }
    rp_dtype wide = rpi_sum_dtype(piece->run->dtype);
    void *values = NULL;
    RP_TRY(rpi_scratch_take(chunk->request->comm->fabric, piece->count * rp_dtype_bytes(wide),
                            &values));
    rpi_values_convert(from, dtype, values, wide, piece->count);
    return rpi_piece_add_weighed(chunk, action, piece, values);
}

rp_status rpi_part_add(rpi_chunk *chunk, const rpi_action *action) {
    rpi_piece piece;
    for (rpi_walk walk = rpi_chunk_walk(chunk, action->part, action->level);
         rpi_walk_next(&walk, &piece);)
        RP_TRY(add_piece(chunk, action, &piece));
    return RP_OK;
}
