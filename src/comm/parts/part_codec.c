/* Parts of values to bytes and back, and sums of received bytes. */
#include "comm/core/chunk.h"
#include "comm/parts/parts.h"

#include "base/cpu.h"

#include "base/status.h"
#include "comm/device/device.h"
#include "comm/values/fold.h"
#include "comm/values/reductions.h"
#include "comm/values/values.h"

#include <string.h>

/* ---- values to bytes ---- */

/* Accumulators of 16-bit data are rounded to it before they are encoded. */
static rp_status encoder_input(rpi_chunk *chunk, int slot, int part, const rpi_slice *slice,
                               const void **out_values) {
    void *values = rpi_slot_values(chunk, slot, part, slice), *narrow = NULL;
    *out_values = values;
    if (rpi_slot_dtype(slot, slice->extent) == slice->extent->dtype) return RP_OK;
    RP_TRY(rpi_scratch_take(chunk->request->comm->context,
                            slice->count * rp_dtype_bytes(slice->extent->dtype), &narrow));
    rpi_values_convert(values, RP_F32, narrow, slice->extent->dtype, slice->count);
    *out_values = narrow;
    return RP_OK;
}

rp_status rpi_part_encode(rpi_chunk *chunk, rpi_encoding e, void *out, size_t *out_bytes) {
    const rp_request *request = chunk->request;
    unsigned char *bytes = out;
    rpi_slice slice;
    for (rpi_walk walk = rpi_chunk_walk(chunk, e.part, e.level);
         rpi_walk_next(&walk, &slice);) {
        rp_encode_context context = rpi_slice_context(request, &slice);
        context.role = (uint32_t)e.role + 2 * (uint32_t)request->comm->rank;
        context.residual =
            chunk->device ? rpi_device_residual(chunk, e.part, &slice) : slice.residual;
        const void *values = NULL;
        size_t written = 0, ahead = slice.varies ? RPI_LENGTH_BYTES : 0;
        RP_TRY(encoder_input(chunk, e.slot, e.part, &slice, &values));
        RP_TRY(rp_codec_encode(slice.codec, slice.extent->dtype, values, slice.count, &context,
                               bytes + ahead, &written));
        if (ahead) rpi_slice_put_length(bytes, written);
        bytes += ahead + written;
    }
    *out_bytes = (size_t)(bytes - (unsigned char *)out);
    return RP_OK;
}

rpi_encoding rpi_encoding_of(const rpi_instruction *instruction) {
    return (rpi_encoding){instruction->from, instruction->part, instruction->role,
                          instruction->level};
}

/* Readers can use exact values in place if these have the data's dtype and no residual is sent
 * with them. */
static bool may_stay_values(const rpi_chunk *chunk, const rpi_instruction *encode, int source) {
    if (source == RPI_NO_SLOT) return false;
    rpi_slice slice;
    for (rpi_walk walk = rpi_chunk_walk(chunk, encode->part, encode->level);
         rpi_walk_next(&walk, &slice);)
        if (!rp_codec_is_exact(slice.codec, slice.extent->dtype) || slice.residual ||
            rpi_slot_dtype(source, slice.extent) != slice.extent->dtype)
            return false;
    return true;
}

bool rpi_instruction_stays_values(const rpi_chunk *chunk, const rpi_instruction *encode) {
    const rpi_compiled_schedule *compiled = chunk->request->compiled;
    return may_stay_values(chunk, encode,
                           compiled->encoded_slots[encode->into - RPI_SLOT_ENCODED].source);
}

/* ---- bytes to values ---- */

/* The bytes of one slice, and their offset. */
typedef struct arrived {
    const rp_request *request;
    const rpi_slice *slice;
    const void *bytes;
    size_t length;
    double edge_weight; /* of a neighbour's vector: its sender's weight; else 1 */
} arrived;

static void take_edge_weight(const arrived *from, void *values, rp_dtype dtype) {
    if (from->edge_weight == 1) return;
    rpi_values_scale(values, dtype, from->edge_weight, from->slice->count, values);
}

/* Into an accumulator of another dtype codecs can only add. */
static rp_status decode_slice(const arrived *from, void *values, rp_dtype dtype) {
    const rpi_slice *slice = from->slice;
    const rpi_extent *extent = slice->extent;
    rp_encode_context context = rpi_slice_context(from->request, slice);
    if (dtype == extent->dtype)
        return rp_codec_decode(slice->codec, extent->dtype, from->bytes, from->length,
                               slice->count, &context, values);
    if (rp_codec_is_exact(slice->codec, extent->dtype)) {
        rpi_values_convert(from->bytes, extent->dtype, values, dtype, slice->count);
        return RP_OK;
    }
    memset(values, 0, slice->count * rp_dtype_bytes(dtype));
    return rp_codec_decode_add(slice->codec, extent->dtype, from->bytes, from->length,
                               slice->count, &context, values);
}

/* Bytes of an exact codec are the elements themselves; lossy codecs only add. */
static rp_status combine_slice(const arrived *from, void *values) {
    const rpi_slice *slice = from->slice;
    const rpi_extent *extent = slice->extent;
    rp_encode_context context = rpi_slice_context(from->request, slice);
    if (!rp_codec_is_exact(slice->codec, extent->dtype))
        return rp_codec_decode_add(slice->codec, extent->dtype, from->bytes, from->length,
                                   slice->count, &context, values);
    rpi_reduce(from->request->reduce, rpi_cpu_isa(), extent->dtype, from->bytes, slice->count,
               values);
    return RP_OK;
}

static rp_status add_decoded(rpi_chunk *chunk, const rpi_instruction *instruction,
                             const arrived *from) {
    rp_dtype wide = rpi_sum_dtype(from->slice->extent->dtype);
    void *values = NULL;
    RP_TRY(rpi_scratch_take(chunk->request->comm->context,
                            from->slice->count * rp_dtype_bytes(wide), &values));
    RP_TRY(decode_slice(from, values, wide));
    take_edge_weight(from, values, wide);
    return rpi_slice_add_weighed(chunk, instruction, from->slice, values);
}

rp_status rpi_part_decode(rpi_chunk *chunk, const rpi_instruction *instruction, bool add) {
    const rpi_encoded_slot *encoded_slot = rpi_encoded_slot_of(chunk, instruction->from);
    const unsigned char *bytes = encoded_slot->data;
    bool weighed = rpi_is_weight(instruction->weight) || encoded_slot->edge_weight != 1;
    rpi_slice slice;
    for (rpi_walk walk = rpi_chunk_walk(chunk, instruction->part, instruction->level);
         rpi_walk_next(&walk, &slice);) {
        void *values = rpi_slot_values(chunk, instruction->into, instruction->part, &slice);
        size_t length = rpi_slice_take_length(&slice, &bytes);
        rp_dtype dtype = rpi_slot_dtype(instruction->into, slice.extent);
        arrived from = {chunk->request, &slice, bytes, length, encoded_slot->edge_weight};
        if (add && weighed)
            RP_TRY(add_decoded(chunk, instruction, &from));
        else if (add)
            RP_TRY(combine_slice(&from, values));
        else
            RP_TRY(decode_slice(&from, values, dtype));
        if (!add) take_edge_weight(&from, values, dtype);
        bytes += length;
    }
    return RP_OK;
}

/* ---- sums of two ---- */

/* Of exact bytes, which are as long as the values. */
static const void *slice_of(rpi_chunk *chunk, int slot, int part, const rpi_slice *slice,
                            size_t bytes_before) {
    if (slot < RPI_SLOT_ENCODED) return rpi_slot_values(chunk, slot, part, slice);
    return rpi_encoded_slot_of(chunk, slot)->data + bytes_before;
}

size_t rpi_part_fold(rpi_chunk *chunk, const rpi_instruction *instruction,
                     unsigned char *payload) {
    const bool is_long = chunk->request->partition.bytes >= rpi_cpu_cache_bytes();
    size_t before = 0;
    rpi_slice slice;
    for (rpi_walk walk = rpi_chunk_walk(chunk, instruction->part, instruction->level);
         rpi_walk_next(&walk, &slice);) {
        const rpi_fold fold = {
            .reduce = chunk->request->reduce,
            .dtype = slice.extent->dtype,
            .first = slice_of(chunk, instruction->first, instruction->part, &slice, before),
            .second = slice_of(chunk, instruction->from, instruction->part, &slice, before),
            .weight = instruction->weight,
            .into_dtype = rpi_slot_dtype(instruction->into, slice.extent),
            .into = rpi_slot_values(chunk, instruction->into, instruction->part, &slice),
            .also = payload ? payload + before : NULL,
            .is_long = is_long};
        rpi_fold_extent(&fold, slice.count);
        before += slice.bytes;
    }
    return before;
}

/* For encodings of any length: an ADD to this rank's own values, in one pass if these are
 * floats. */
static rp_status add_to_own(const arrived *from, const void *own, void *sum) {
    const rpi_slice *slice = from->slice;
    rp_dtype dtype = slice->extent->dtype;
    if (rp_codec_is_exact(slice->codec, dtype)) {
        rpi_fold_extent(&(rpi_fold){.reduce = from->request->reduce,
                                    .dtype = dtype,
                                    .first = own,
                                    .second = from->bytes,
                                    .into_dtype = rpi_sum_dtype(dtype),
                                    .into = sum},
                        slice->count);
        return RP_OK;
    }
    rp_encode_context context = rpi_slice_context(from->request, slice);
    if (dtype == RP_F32)
        return rpi_codec_decode_sum(slice->codec, from->bytes, from->length, slice->count,
                                    &context, own, sum);
    rpi_values_convert(own, dtype, sum, rpi_sum_dtype(dtype), slice->count);
    return rp_codec_decode_add(slice->codec, dtype, from->bytes, from->length, slice->count,
                               &context, sum);
}

rp_status rpi_part_fold_encodings(rpi_chunk *chunk, const rpi_instruction *instruction) {
    rpi_instruction added = *instruction;
    if (instruction->from < RPI_SLOT_ENCODED) added.from = instruction->first;
    const rpi_encoded_slot *encoded_slot = rpi_encoded_slot_of(chunk, added.from);
    const unsigned char *bytes = encoded_slot->data;
    if (encoded_slot->edge_weight != 1) { /* a neighbour's weight */
        RP_TRY(rpi_part_copy(chunk, RPI_SLOT_IN, instruction->into, instruction->part));
        return rpi_part_decode(chunk, &added, true);
    }
    rpi_slice slice;
    for (rpi_walk walk = rpi_chunk_walk(chunk, instruction->part, instruction->level);
         rpi_walk_next(&walk, &slice);) {
        arrived from = {chunk->request, &slice, NULL, rpi_slice_take_length(&slice, &bytes), 1};
        from.bytes = bytes;
        RP_TRY(
            add_to_own(&from, rpi_slot_values(chunk, RPI_SLOT_IN, instruction->part, &slice),
                       rpi_slot_values(chunk, instruction->into, instruction->part, &slice)));
        bytes += from.length;
    }
    return RP_OK;
}
