/* Parts of values to bytes and back, and sums of what came by bytes. */
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

/* Accumulators of 16-bit data are rounded to it before they meet the codec. */
static rp_status encoder_input(rpi_chunk *chunk, int slot, int part, const rpi_piece *piece,
                               const void **out_values) {
    void *values = rpi_slot_values(chunk, slot, part, piece), *narrow = NULL;
    *out_values = values;
    if (rpi_slot_dtype(slot, piece->run) == piece->run->dtype) return RP_OK;
    RP_TRY(rpi_scratch_take(chunk->request->comm->fabric,
                            piece->count * rp_dtype_bytes(piece->run->dtype), &narrow));
    rpi_values_convert(values, RP_F32, narrow, piece->run->dtype, piece->count);
    *out_values = narrow;
    return RP_OK;
}

rp_status rpi_part_encode(rpi_chunk *chunk, rpi_encoding e, void *out, size_t *out_bytes) {
    const rp_request *request = chunk->request;
    unsigned char *bytes = out;
    rpi_piece piece;
    for (rpi_walk walk = rpi_chunk_walk(chunk, e.part, e.level);
         rpi_walk_next(&walk, &piece);) {
        rp_encode_context context = rpi_piece_context(request, &piece);
        context.role = (uint32_t)e.role + 2 * (uint32_t)request->comm->rank;
        context.residual =
            chunk->device ? rpi_device_residual(chunk, e.part, &piece) : piece.residual;
        const void *values = NULL;
        size_t written = 0, ahead = piece.varies ? RPI_LENGTH_BYTES : 0;
        RP_TRY(encoder_input(chunk, e.slot, e.part, &piece, &values));
        RP_TRY(rp_codec_encode(piece.codec, piece.run->dtype, values, piece.count, &context,
                               bytes + ahead, &written));
        if (ahead) rpi_piece_put_length(bytes, written);
        bytes += ahead + written;
    }
    *out_bytes = (size_t)(bytes - (unsigned char *)out);
    return RP_OK;
}

rpi_encoding rpi_encoding_of(const rpi_action *action) {
    return (rpi_encoding){action->from, action->part, action->role, action->level};
}

/* Readers can take exact values from where they are, when these are of the data's dtype and
 * nothing that error feedback held back goes out with them. */
static bool may_stay_values(const rpi_chunk *chunk, const rpi_action *encode, int source) {
    if (source == RPI_NO_SLOT) return false;
    rpi_piece piece;
    for (rpi_walk walk = rpi_chunk_walk(chunk, encode->part, encode->level);
         rpi_walk_next(&walk, &piece);)
        if (!rp_codec_is_exact(piece.codec, piece.run->dtype) || piece.residual ||
            rpi_slot_dtype(source, piece.run) != piece.run->dtype)
            return false;
    return true;
}

bool rpi_action_stays_values(const rpi_chunk *chunk, const rpi_action *encode) {
    const rpi_routine *routine = chunk->request->routine;
    return may_stay_values(chunk, encode, routine->wires[encode->into - RPI_SLOT_WIRE].source);
}

/* ---- bytes to values ---- */

/* What one piece's bytes are, and where in them it is. */
typedef struct arrived {
    const rp_request *request;
    const rpi_piece *piece;
    const void *bytes;
    size_t length;
    double share; /* of a neighbour's vector: its sender's weight; else 1 */
} arrived;

static void take_share(const arrived *from, void *values, rp_dtype dtype) {
    if (from->share == 1) return;
    rpi_values_scale(values, dtype, from->share, from->piece->count, values);
}

/* Into an accumulator of another dtype codecs can only add. */
static rp_status decode_piece(const arrived *from, void *values, rp_dtype dtype) {
    const rpi_piece *piece = from->piece;
    const rpi_run *run = piece->run;
    rp_encode_context context = rpi_piece_context(from->request, piece);
    if (dtype == run->dtype)
        return rp_codec_decode(piece->codec, run->dtype, from->bytes, from->length,
                               piece->count, &context, values);
    if (rp_codec_is_exact(piece->codec, run->dtype)) {
        rpi_values_convert(from->bytes, run->dtype, values, dtype, piece->count);
        return RP_OK;
    }
    memset(values, 0, piece->count * rp_dtype_bytes(dtype));
    return rp_codec_decode_add(piece->codec, run->dtype, from->bytes, from->length,
                               piece->count, &context, values);
}

/* Bytes of an exact codec are the elements themselves, and lossy ones only add. */
static rp_status combine_piece(const arrived *from, void *values) {
    const rpi_piece *piece = from->piece;
    const rpi_run *run = piece->run;
    rp_encode_context context = rpi_piece_context(from->request, piece);
    if (!rp_codec_is_exact(piece->codec, run->dtype))
        return rp_codec_decode_add(piece->codec, run->dtype, from->bytes, from->length,
                                   piece->count, &context, values);
    rpi_reduce(from->request->reduce, rpi_cpu_isa(), run->dtype, from->bytes, piece->count,
               values);
    return RP_OK;
}

static rp_status add_decoded(rpi_chunk *chunk, const rpi_action *action, const arrived *from) {
    rp_dtype wide = rpi_sum_dtype(from->piece->run->dtype);
    void *values = NULL;
    RP_TRY(rpi_scratch_take(chunk->request->comm->fabric,
                            from->piece->count * rp_dtype_bytes(wide), &values));
    RP_TRY(decode_piece(from, values, wide));
    take_share(from, values, wide);
    return rpi_piece_add_weighed(chunk, action, from->piece, values);
}

rp_status rpi_part_decode(rpi_chunk *chunk, const rpi_action *action, bool add) {
    const rpi_wire *wire = rpi_wire_of(chunk, action->from);
    const unsigned char *bytes = wire->data;
    bool weighed = rpi_is_weight(action->weight) || wire->share != 1;
    rpi_piece piece;
    for (rpi_walk walk = rpi_chunk_walk(chunk, action->part, action->level);
         rpi_walk_next(&walk, &piece);) {
        void *values = rpi_slot_values(chunk, action->into, action->part, &piece);
        size_t length = rpi_piece_take_length(&piece, &bytes);
        rp_dtype dtype = rpi_slot_dtype(action->into, piece.run);
        arrived from = {chunk->request, &piece, bytes, length, wire->share};
        if (add && weighed)
            RP_TRY(add_decoded(chunk, action, &from));
        else if (add)
            RP_TRY(combine_piece(&from, values));
        else
            RP_TRY(decode_piece(&from, values, dtype));
        if (!add) take_share(&from, values, dtype);
        bytes += length;
    }
    return RP_OK;
}

/* ---- sums of two ---- */

/* Of exact bytes, which are as long as the values. */
static const void *piece_of(rpi_chunk *chunk, int slot, int part, const rpi_piece *piece,
                            size_t bytes_before) {
    if (slot < RPI_SLOT_WIRE) return rpi_slot_values(chunk, slot, part, piece);
    return rpi_wire_of(chunk, slot)->data + bytes_before;
}

size_t rpi_part_fold(rpi_chunk *chunk, const rpi_action *action, unsigned char *payload) {
    const bool is_long = chunk->request->cut.bytes >= rpi_cpu_cache_bytes();
    size_t before = 0;
    rpi_piece piece;
    for (rpi_walk walk = rpi_chunk_walk(chunk, action->part, action->level);
         rpi_walk_next(&walk, &piece);) {
        const rpi_fold fold = {
            .reduce = chunk->request->reduce,
            .dtype = piece.run->dtype,
            .first = piece_of(chunk, action->first, action->part, &piece, before),
            .second = piece_of(chunk, action->from, action->part, &piece, before),
            .weight = action->weight,
            .into_dtype = rpi_slot_dtype(action->into, piece.run),
            .into = rpi_slot_values(chunk, action->into, action->part, &piece),
            .also = payload ? payload + before : NULL,
            .is_long = is_long};
        rpi_fold_run(&fold, piece.count);
        before += piece.bytes;
    }
    return before;
}

/* Of encodings, which are as long as they say: an ADD to this rank's own values, in one pass
 * where these are floats. */
static rp_status add_to_own(const arrived *from, const void *own, void *sum) {
    const rpi_piece *piece = from->piece;
    rp_dtype dtype = piece->run->dtype;
    if (rp_codec_is_exact(piece->codec, dtype)) {
        rpi_fold_run(&(rpi_fold){.reduce = from->request->reduce,
                                 .dtype = dtype,
                                 .first = own,
                                 .second = from->bytes,
                                 .into_dtype = rpi_sum_dtype(dtype),
                                 .into = sum},
                     piece->count);
        return RP_OK;
    }
    rp_encode_context context = rpi_piece_context(from->request, piece);
    if (dtype == RP_F32)
        return rpi_codec_decode_sum(piece->codec, from->bytes, from->length, piece->count,
                                    &context, own, sum);
    rpi_values_convert(own, dtype, sum, rpi_sum_dtype(dtype), piece->count);
    return rp_codec_decode_add(piece->codec, dtype, from->bytes, from->length, piece->count,
                               &context, sum);
}

rp_status rpi_part_fold_encodings(rpi_chunk *chunk, const rpi_action *action) {
    rpi_action added = *action;
    if (action->from < RPI_SLOT_WIRE) added.from = action->first;
    const rpi_wire *wire = rpi_wire_of(chunk, added.from);
    const unsigned char *bytes = wire->data;
    if (wire->share != 1) { /* a neighbour's weight */
        RP_TRY(rpi_part_copy(chunk, RPI_SLOT_IN, action->into, action->part));
        return rpi_part_decode(chunk, &added, true);
    }
    rpi_piece piece;
    for (rpi_walk walk = rpi_chunk_walk(chunk, action->part, action->level);
         rpi_walk_next(&walk, &piece);) {
        arrived from = {chunk->request, &piece, NULL, rpi_piece_take_length(&piece, &bytes), 1};
        from.bytes = bytes;
        RP_TRY(add_to_own(&from, rpi_slot_values(chunk, RPI_SLOT_IN, action->part, &piece),
                          rpi_slot_values(chunk, action->into, action->part, &piece)));
        bytes += from.length;
    }
    return RP_OK;
}
