/* Parts of values: copied, weighed, added. */
#include "comm/core/chunk.h"
#include "comm/parts/parts.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/device/device.h"
#include "comm/values/reductions.h"
#include "comm/values/values.h"

rp_dtype rpi_slot_dtype(int slot, const rpi_extent *extent) {
    return slot == RPI_SLOT_SUM ? rpi_sum_dtype(extent->dtype) : extent->dtype;
}

void *rpi_slot_values(const rpi_chunk *chunk, int slot, int part, const rpi_slice *slice) {
    const rp_request *request = chunk->request;
    if (slot == RPI_SLOT_SUM) {
        size_t index = (size_t)request->compiled->sum_of_part[part];
        return chunk->sums + index * chunk->sum_stride + slice->sum_offset;
    }
    if (chunk->device) return rpi_device_values(chunk, slot, part, slice);
    const void *base = slot == RPI_SLOT_IN ? slice->extent->in : slice->extent->out;
    return (unsigned char *)base + slice->offset * rp_dtype_bytes(slice->extent->dtype);
}

rpi_encoded_slot *rpi_encoded_slot_of(rpi_chunk *chunk, int slot) {
    return &chunk->encoded_slots[slot - RPI_SLOT_ENCODED];
}

rp_status rpi_scratch_take(rpi_context *context, size_t bytes, void **out_scratch) {
    if (bytes > context->scratch_room) {
        RP_TRY(rpi_grow_array(0, bytes, 1, "16-bit sums", &context->scratch));
        context->scratch_room = bytes;
    }
    *out_scratch = context->scratch;
    return RP_OK;
}

static void weigh_values(const rpi_chunk *chunk, rpi_fraction weight, void *values,
                         rp_dtype dtype, size_t count) {
    if (!rpi_is_weight(weight)) return;
    if (!weight.over) {
        double factor = chunk->request->neighborhood.places[weight.times - 1].weight;
        rpi_values_scale(values, dtype, factor, count, values);
        return;
    }
    rpi_values_weigh(values, dtype, weight.times, weight.over, count);
}

/* Weights act in the precision of accumulators, wherever the result goes. */
static rp_status weigh_slice(rpi_chunk *chunk, const rpi_instruction *instruction,
                             const rpi_slice *slice) {
    rp_dtype wide = rpi_sum_dtype(slice->extent->dtype);
    rp_dtype into = rpi_slot_dtype(instruction->into, slice->extent);
    void *result = rpi_slot_values(chunk, instruction->into, instruction->part, slice),
         *values = result;
    if (into != wide)
        RP_TRY(rpi_scratch_take(chunk->request->comm->context,
                                slice->count * rp_dtype_bytes(wide), &values));
    rpi_values_convert(rpi_slot_values(chunk, instruction->from, instruction->part, slice),
                       rpi_slot_dtype(instruction->from, slice->extent), values, wide,
                       slice->count);
    weigh_values(chunk, instruction->weight, values, wide, slice->count);
    rpi_values_convert(values, wide, result, into, slice->count);
    return RP_OK;
}

rp_status rpi_part_copy(rpi_chunk *chunk, int from, int into, int part) {
    rpi_slice slice;
    for (rpi_walk walk = rpi_chunk_walk(chunk, part, RPI_LEVEL_WORLD);
         rpi_walk_next(&walk, &slice);)
        rpi_values_convert(rpi_slot_values(chunk, from, part, &slice),
                           rpi_slot_dtype(from, slice.extent),
                           rpi_slot_values(chunk, into, part, &slice),
                           rpi_slot_dtype(into, slice.extent), slice.count);
    return RP_OK;
}

rp_status rpi_part_extent_copy(rpi_chunk *chunk, const rpi_instruction *instruction) {
    if (!rpi_is_weight(instruction->weight))
        return rpi_part_copy(chunk, instruction->from, instruction->into, instruction->part);
    rpi_slice slice;
    for (rpi_walk walk = rpi_chunk_walk(chunk, instruction->part, instruction->level);
         rpi_walk_next(&walk, &slice);)
        RP_TRY(weigh_slice(chunk, instruction, &slice));
    return RP_OK;
}

rp_status rpi_slice_add_weighed(rpi_chunk *chunk, const rpi_instruction *instruction,
                                const rpi_slice *slice, void *values) {
    rp_dtype dtype = rpi_sum_dtype(slice->extent->dtype);
    weigh_values(chunk, instruction->weight, values, dtype, slice->count);
    rpi_reduce(chunk->request->reduce, rpi_cpu_isa(), dtype, values, slice->count,
               rpi_slot_values(chunk, instruction->into, instruction->part, slice));
    return RP_OK;
}

static rp_status add_slice(rpi_chunk *chunk, const rpi_instruction *instruction,
                           const rpi_slice *slice) {
    const void *from = rpi_slot_values(chunk, instruction->from, instruction->part, slice);
    rp_dtype dtype = rpi_slot_dtype(instruction->from, slice->extent);
    if (!rpi_is_weight(instruction->weight)) {
        rpi_reduce(chunk->request->reduce, rpi_cpu_isa(), dtype, from, slice->count,
                   rpi_slot_values(chunk, instruction->into, instruction->part, slice));
        return RP_OK;
    }
    rp_dtype wide = rpi_sum_dtype(slice->extent->dtype);
    void *values = NULL;
    RP_TRY(rpi_scratch_take(chunk->request->comm->context, slice->count * rp_dtype_bytes(wide),
                            &values));
    rpi_values_convert(from, dtype, values, wide, slice->count);
    return rpi_slice_add_weighed(chunk, instruction, slice, values);
}

rp_status rpi_part_add(rpi_chunk *chunk, const rpi_instruction *instruction) {
    rpi_slice slice;
    for (rpi_walk walk = rpi_chunk_walk(chunk, instruction->part, instruction->level);
         rpi_walk_next(&walk, &slice);)
        RP_TRY(add_slice(chunk, instruction, &slice));
    return RP_OK;
}
