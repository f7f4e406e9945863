/* What each step does to memory. Local steps run inline here, a part at a time; they are
 * posted and finished like sends, so that a GPU can take them (device.h). */
#include "comm/communicator.h"
#include "comm/device.h"
#include "comm/fold.h"
#include "comm/reductions.h"
#include "comm/values.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#include <string.h>

static const rpi_action *action_of(const rpi_chunk *chunk, int action) {
    return &chunk->request->routine->action[action];
}

/* Dtype of the values in a slot. */
static rp_dtype slot_dtype(int slot, const rpi_run *run) {
    return slot == RPI_SLOT_SUM ? rpi_sum_dtype(run->dtype) : run->dtype;
}

/* Where a piece's values lie in a slot, on the host; IN is only ever read. */
static void *values_at(const rpi_chunk *chunk, int slot, int part, const rpi_piece *piece) {
    const rp_request *request = chunk->request;
    if (slot == RPI_SLOT_SUM) {
        size_t index = (size_t)request->routine->sum_of_part[part];
        return chunk->sums + index * chunk->sum_stride + piece->sum_offset;
    }
    if (chunk->device) return rpi_device_values(chunk, slot, part, piece);
    const void *base = slot == RPI_SLOT_IN ? piece->run->in : piece->run->out;
    return (unsigned char *)base + piece->offset * rp_dtype_bytes(piece->run->dtype);
}

static rpi_wire *wire_of(rpi_chunk *chunk, int slot) {
    return &chunk->wires[slot - RPI_SLOT_WIRE];
}

/* ---- values to values ---- */

/* Room for a piece on its way between dtypes; until the next call. */
static rp_status scratch_for(rpi_fabric *fabric, size_t bytes, void **out_scratch) {
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
    rp_dtype into = slot_dtype(action->into, piece->run);
    void *result = values_at(chunk, action->into, action->part, piece), *values = result;
    if (into != wide)
        RP_TRY(scratch_for(chunk->request->comm->fabric, piece->count * rp_dtype_bytes(wide),
                           &values));
    rpi_values_convert(values_at(chunk, action->from, action->part, piece),
                       slot_dtype(action->from, piece->run), values, wide, piece->count);
    weigh_values(chunk, action->weight, values, wide, piece->count);
    rpi_values_convert(values, wide, result, into, piece->count);
    return RP_OK;
}

static rp_status copy_part(rpi_chunk *chunk, int from, int into, int part) {
    rpi_piece piece;
    for (rpi_walk walk = rpi_chunk_walk(chunk, part, RPI_LEVEL_WORLD);
         rpi_walk_next(&walk, &piece);)
        rpi_values_convert(values_at(chunk, from, part, &piece), slot_dtype(from, piece.run),
                           values_at(chunk, into, part, &piece), slot_dtype(into, piece.run),
                           piece.count);
    return RP_OK;
}

static rp_status run_copy(rpi_chunk *chunk, const rpi_action *action) {
    if (!rpi_is_weight(action->weight))
        return copy_part(chunk, action->from, action->into, action->part);
    rpi_piece piece;
    for (rpi_walk walk = rpi_chunk_walk(chunk, action->part, action->level);
         rpi_walk_next(&walk, &piece);)
        RP_TRY(weigh_piece(chunk, action, &piece));
    return RP_OK;
}

/* Times the weight, then into the sum; in a copy, since what is added is not ours to change. */
static rp_status add_weighed(rpi_chunk *chunk, const rpi_action *action, const rpi_piece *piece,
                             void *values) {
    rp_dtype dtype = rpi_sum_dtype(piece->run->dtype);
    weigh_values(chunk, action->weight, values, dtype, piece->count);
    rpi_reduce(chunk->request->reduce, rpi_cpu_isa(), dtype, values, piece->count,
               values_at(chunk, action->into, action->part, piece));
    return RP_OK;
}

static rp_status add_piece(rpi_chunk *chunk, const rpi_action *action, const rpi_piece *piece) {
    const void *from = values_at(chunk, action->from, action->part, piece);
    rp_dtype dtype = slot_dtype(action->from, piece->run);
    if (!rpi_is_weight(action->weight)) {
        rpi_reduce(chunk->request->reduce, rpi_cpu_isa(), dtype, from, piece->count,
                   values_at(chunk, action->into, action->part, piece));
        return RP_OK;
    }
    rp_dtype wide = rpi_sum_dtype(piece->run->dtype);
    void *values = NULL;
    RP_TRY(scratch_for(chunk->request->comm->fabric, piece->count * rp_dtype_bytes(wide),
                       &values));
    rpi_values_convert(from, dtype, values, wide, piece->count);
    return add_weighed(chunk, action, piece, values);
}

static rp_status add_values(rpi_chunk *chunk, const rpi_action *action) {
    rpi_piece piece;
    for (rpi_walk walk = rpi_chunk_walk(chunk, action->part, action->level);
         rpi_walk_next(&walk, &piece);)
        RP_TRY(add_piece(chunk, action, &piece));
    return RP_OK;
}

/* ---- values to bytes ---- */

/* Accumulators of 16-bit data are rounded to it before they meet the codec. */
static rp_status encoder_input(rpi_chunk *chunk, int slot, int part, const rpi_piece *piece,
                               const void **out_values) {
    void *values = values_at(chunk, slot, part, piece), *narrow = NULL;
    *out_values = values;
    if (slot_dtype(slot, piece->run) == piece->run->dtype) return RP_OK;
    RP_TRY(scratch_for(chunk->request->comm->fabric,
                       piece->count * rp_dtype_bytes(piece->run->dtype), &narrow));
    rpi_values_convert(values, RP_F32, narrow, piece->run->dtype, piece->count);
    *out_values = narrow;
    return RP_OK;
}

/* What an ENCODE is told: where its values are, and how they become bytes. */
typedef struct encoding {
    int slot, part, role, level;
} encoding;

/* *out_bytes: how many were written, no more than rpi_cut_part_bytes(). */
static rp_status encode_part(rpi_chunk *chunk, encoding e, void *out, size_t *out_bytes) {
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

static encoding encoding_of(const rpi_action *action) {
    return (encoding){action->from, action->part, action->role, action->level};
}

/* Readers can take exact values from where they are, when these are of the data's dtype and
 * nothing that error feedback held back goes out with them. */
static bool may_stay_values(const rpi_chunk *chunk, const rpi_action *encode, int source) {
    if (source == RPI_NO_SLOT) return false;
    rpi_piece piece;
    for (rpi_walk walk = rpi_chunk_walk(chunk, encode->part, encode->level);
         rpi_walk_next(&walk, &piece);)
        if (!rp_codec_is_exact(piece.codec, piece.run->dtype) || piece.residual ||
            slot_dtype(source, piece.run) != piece.run->dtype)
            return false;
    return true;
}

bool rpi_action_stays_values(const rpi_chunk *chunk, const rpi_action *encode) {
    const rpi_routine *routine = chunk->request->routine;
    return may_stay_values(chunk, encode, routine->wires[encode->into - RPI_SLOT_WIRE].source);
}

static rp_status run_encode(rpi_chunk *chunk, const rpi_action *action) {
    rpi_wire *wire = wire_of(chunk, action->into);
    const rp_request *request = chunk->request;
    if (rpi_action_stays_values(chunk, action)) {
        wire->state = RPI_WIRE_VALUES;
        return RP_OK;
    }
    rpi_block *block = NULL;
    size_t bytes = rpi_cut_part_bytes(&request->cut, chunk->index, action->part, action->level);
    RP_TRY(rpi_block_take(request->comm->fabric, bytes, &block));
    *wire = (rpi_wire){.state = RPI_WIRE_BLOCK,
                       .readers = wire->readers,
                       .block = block,
                       .data = block->payload,
                       .share = 1};
    RP_TRY(encode_part(chunk, encoding_of(action), block->payload, &wire->bytes));
    block->bytes = wire->bytes;
    return RP_OK;
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
    RP_TRY(scratch_for(chunk->request->comm->fabric, from->piece->count * rp_dtype_bytes(wide),
                       &values));
    RP_TRY(decode_piece(from, values, wide));
    take_share(from, values, wide);
    return add_weighed(chunk, action, from->piece, values);
}

static rp_status decode_part(rpi_chunk *chunk, const rpi_action *action, bool add) {
    const rpi_wire *wire = wire_of(chunk, action->from);
    const unsigned char *bytes = wire->data;
    bool weighed = rpi_is_weight(action->weight) || wire->share != 1;
    rpi_piece piece;
    for (rpi_walk walk = rpi_chunk_walk(chunk, action->part, action->level);
         rpi_walk_next(&walk, &piece);) {
        void *values = values_at(chunk, action->into, action->part, &piece);
        size_t length = rpi_piece_take_length(&piece, &bytes);
        rp_dtype dtype = slot_dtype(action->into, piece.run);
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

static rp_status run_decode(rpi_chunk *chunk, const rpi_action *action) {
    int slot = action->from - RPI_SLOT_WIRE;
    if (chunk->wires[slot].state == RPI_WIRE_THERE) return RP_OK;
    if (chunk->wires[slot].state != RPI_WIRE_VALUES) return decode_part(chunk, action, false);
    int source = chunk->request->routine->wires[slot].source;
    return source == action->into ? RP_OK
                                  : copy_part(chunk, source, action->into, action->part);
}

static rp_status run_add(rpi_chunk *chunk, const rpi_action *action) {
    if (action->from < RPI_SLOT_WIRE) return add_values(chunk, action);
    int slot = action->from - RPI_SLOT_WIRE;
    if (chunk->wires[slot].state != RPI_WIRE_VALUES) return decode_part(chunk, action, true);
    rpi_action values = *action;
    values.from = chunk->request->routine->wires[slot].source;
    return add_values(chunk, &values);
}

/* ---- sums of two ---- */

/* Of exact bytes, which are as long as the values. */
static const void *piece_of(rpi_chunk *chunk, int slot, int part, const rpi_piece *piece,
                            size_t bytes_before) {
    if (slot < RPI_SLOT_WIRE) return values_at(chunk, slot, part, piece);
    return wire_of(chunk, slot)->data + bytes_before;
}

/* payload: where a frame takes the sum, too; NULL: there is none. */
static size_t fold_part(rpi_chunk *chunk, const rpi_action *action, unsigned char *payload) {
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
            .into_dtype = slot_dtype(action->into, piece.run),
            .into = values_at(chunk, action->into, action->part, &piece),
            .also = payload ? payload + before : NULL};
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

static rp_status fold_encodings(rpi_chunk *chunk, const rpi_action *action) {
    rpi_action added = *action;
    if (action->from < RPI_SLOT_WIRE) added.from = action->first;
    const rpi_wire *wire = wire_of(chunk, added.from);
    const unsigned char *bytes = wire->data;
    if (wire->share != 1) { /* a neighbour's weight */
        RP_TRY(copy_part(chunk, RPI_SLOT_IN, action->into, action->part));
        return decode_part(chunk, &added, true);
    }
    rpi_piece piece;
    for (rpi_walk walk = rpi_chunk_walk(chunk, action->part, action->level);
         rpi_walk_next(&walk, &piece);) {
        arrived from = {chunk->request, &piece, NULL, rpi_piece_take_length(&piece, &bytes), 1};
        from.bytes = bytes;
        RP_TRY(add_to_own(&from, values_at(chunk, RPI_SLOT_IN, action->part, &piece),
                          values_at(chunk, action->into, action->part, &piece)));
        bytes += from.length;
    }
    return RP_OK;
}

/* ---- sending ---- */

size_t rpi_action_bytes(const rp_request *request, uint32_t chunk, const rpi_action *action) {
    int slot = action->kind == RPI_STEP_RECV ? action->into : action->from;
    if (slot == RPI_SLOT_TOKEN) return 0;
    size_t ahead = request->collective == RPI_NEIGHBOUR_ALL_REDUCE ? RPI_SHARE_BYTES : 0;
    return ahead + rpi_cut_part_bytes(&request->cut, chunk, action->part, action->level);
}

/* Of an edge between neighbours, whose weight goes ahead of the vector. */
static size_t put_share(const rpi_chunk *chunk, const rpi_action *action, void *payload) {
    const rp_request *request = chunk->request;
    if (request->collective != RPI_NEIGHBOUR_ALL_REDUCE) return 0;
    memcpy(payload, &request->hood.places[action->peer].weight, RPI_SHARE_BYTES);
    return RPI_SHARE_BYTES;
}

/* *out_bytes: of encodings, no more than there is room for. */
static rp_status fill_encodings(rpi_chunk *chunk, const rpi_action *action,
                                const rpi_action *fold, void *payload, size_t *out_bytes) {
    *out_bytes = fold ? fold_part(chunk, fold, payload) : 0;
    if (fold || action->from == RPI_SLOT_TOKEN) return RP_OK;
    if (action->encodes) return encode_part(chunk, encoding_of(action), payload, out_bytes);
    const rpi_wire *wire = wire_of(chunk, action->from);
    if (wire->state == RPI_WIRE_VALUES) {
        const rpi_wire_plan *plan =
            &chunk->request->routine->wires[action->from - RPI_SLOT_WIRE];
        encoding again = {plan->source, action->part, plan->role, plan->level};
        return encode_part(chunk, again, payload, out_bytes);
    }
    memcpy(payload, wire->data, wire->bytes);
    *out_bytes = wire->bytes;
    return RP_OK;
}

static void seal(const rpi_chunk *chunk, const rpi_action *action, uint8_t kind, void *region,
                 size_t bytes) {
    const rp_request *request = chunk->request;
    const rpi_link *link =
        rpi_peer_link(&request->comm->peers[rpi_request_rank(request, action->peer)]);
    rpi_frame_header header = request->header;
    header.kind = kind;
    header.chunk = chunk->index;
    header.part = action->part;
    header.round = action->round;
    if (action->level == RPI_LEVEL_HOST) header.round |= RPI_FRAME_EXACT;
    if (request->comm->is_made && header.sequence == 1) header.round |= RPI_FRAME_EARLY;
    if (request->cut.split.layout == RPI_SPLIT_BLOCKS)
        header.count = request->cut.runs[action->part].count;
    rpi_frame_seal(region, &header, bytes, link->endpoint->transport->checksum);
}

/* *out_bytes: of payload, no more than rpi_action_bytes(). */
static rp_status fill_frame(rpi_chunk *chunk, const rpi_action *action, const rpi_action *fold,
                            void *payload, size_t *out_bytes) {
    size_t ahead = put_share(chunk, action, payload);
    RP_TRY(fill_encodings(chunk, action, fold, (unsigned char *)payload + ahead, out_bytes));
    *out_bytes += ahead;
    return RP_OK;
}

static bool is_put(const rpi_chunk *chunk, const rpi_action *send) {
    return send->from >= RPI_SLOT_WIRE &&
           chunk->wires[send->from - RPI_SLOT_WIRE].state == RPI_WIRE_PUT;
}

/* A failed link is noted and looks full: whether it matters is decided in failure.c.
 * fold: the sum of two that it sends, which is made on the way; NULL: it is there. RP_PENDING:
 * there is no room, or the frame is out and the receiver reads its payload here. */
static rp_status run_send(rpi_chunk *chunk, const rpi_action *action, const rpi_action *fold) {
    rp_request *request = chunk->request;
    rp_comm *comm = request->comm;
    int rank = rpi_request_rank(request, action->peer);
    rpi_peer *peer = &comm->peers[rank];
    if (peer->port->full || peer->broken) return RP_PENDING;
    rpi_link *link = rpi_port_link(peer->port);
    if (!link) return RP_PENDING;
    size_t bytes = rpi_action_bytes(request, chunk->index, action);
    uint8_t kind = RPI_FRAME_DATA;
    RP_TRY(rpi_flow_admit(chunk, action, bytes, &kind));
    const rpi_transport *transport = link->endpoint->transport;
    bool put = is_put(chunk, action);
    const void *payload = fold || put ? NULL : rpi_in_place_payload(chunk, action, bytes);
    void *region = NULL;
    rp_status status = transport->lend(
        link, payload || put ? transport->sharing->frame_bytes : RPI_FRAME_HEADER_BYTES + bytes,
        &region);
    if (status != RP_OK) {
        rpi_port_is_full(peer->port);
        if (status != RP_PENDING) rpi_peer_break(comm, rank, status);
        return RP_PENDING;
    }
    if (!payload && !put)
        RP_TRY(fill_frame(chunk, action, fold, (unsigned char *)region + RPI_FRAME_HEADER_BYTES,
                          &bytes));
    if (!rpi_in_place_stands(chunk, fold ? fold : action)) return RP_PENDING;
    seal(chunk, action, kind, region, bytes);
    status = put       ? transport->sharing->post_written(link, bytes)
             : payload ? rpi_in_place_post(chunk, action, payload, bytes)
                       : transport->post(link, RPI_FRAME_HEADER_BYTES + bytes);
    comm->written_frames += put;
    if (status < 0) rpi_peer_break(comm, rank, status);
    rpi_flow_sent(chunk, action, bytes, kind);
    rpi_comm_count_sent(comm, RPI_FRAME_HEADER_BYTES + bytes);
    if (bytes)
        atomic_fetch_add_explicit(
            &comm->values_sent, rpi_cut_part_values(&request->cut, chunk->index, action->part),
            memory_order_relaxed);
    return payload ? RP_PENDING : RP_OK;
}

static bool is_sent(const rpi_chunk *chunk, const rpi_action *action) {
    return action->from >= RPI_SLOT_WIRE &&
           chunk->wires[action->from - RPI_SLOT_WIRE].state == RPI_WIRE_SENT;
}

/* Nothing but this sum is missing to send it. */
static bool sends_next(const rpi_chunk *chunk, const rpi_action *fold) {
    const rpi_routine *routine = chunk->request->routine;
    int edges = 0;
    for (int k = 0; fold->send >= 0 && k < fold->nexts; k++)
        edges += routine->next[fold->first_next + k] == fold->send;
    return edges > 0 && chunk->waits[fold->send] == edges;
}

/* Its receiver will read it where the sum is put. */
static bool stays_in_place(const rpi_chunk *chunk, const rpi_action *send) {
    size_t bytes = rpi_action_bytes(chunk->request, chunk->index, send);
    return rpi_in_place_payload(chunk, send, bytes) != NULL;
}

/* Written back to where the other's part of it came from, if that is where its receiver wants
 * it. Else, where the link has room, into its frame while it is in the cache. */
static rp_status run_fold(rpi_chunk *chunk, const rpi_action *fold) {
    if (!chunk->request->routine->plain) return fold_encodings(chunk, fold);
    const rpi_action *send = sends_next(chunk, fold) ? action_of(chunk, fold->send) : NULL;
    void *there = send ? rpi_in_place_begin_write(chunk, fold, send) : NULL;
    if (there) {
        fold_part(chunk, fold, there);
        rpi_in_place_end_write(chunk, send);
        wire_of(chunk, send->from)->state = RPI_WIRE_PUT;
        return RP_OK;
    }
    if (send && !stays_in_place(chunk, send)) {
        rp_status status = run_send(chunk, send, fold);
        if (status == RP_OK) wire_of(chunk, send->from)->state = RPI_WIRE_SENT;
        if (status != RP_PENDING) return status;
    }
    fold_part(chunk, fold, NULL);
    return RP_OK;
}

static rp_status send_or_wait(rpi_chunk *chunk, const rpi_action *send) {
    int index = (int)(send - chunk->request->routine->action);
    if (rpi_in_place_is_lent(chunk, index))
        return rpi_in_place_is_back(chunk, index) ? RP_OK : RP_PENDING;
    return is_sent(chunk, send) ? RP_OK : run_send(chunk, send, NULL);
}

bool rpi_action_is_void(const rp_request *request, uint32_t chunk, const rpi_action *action) {
    bool sends = action->kind == RPI_STEP_SEND && action->from != RPI_SLOT_TOKEN;
    bool receives = action->kind == RPI_STEP_RECV && action->into != RPI_SLOT_TOKEN;
    return (sends || receives) && rpi_cut_is_past(&request->cut, chunk, action->part);
}

static rp_status run(rpi_chunk *chunk, const rpi_action *action) {
    if (rpi_action_is_void(chunk->request, chunk->index, action)) {
        if (action->kind == RPI_STEP_RECV) chunk->received[action->peer]++;
        return RP_OK;
    }
    switch (action->kind) {
    case RPI_STEP_ENCODE: return run_encode(chunk, action);
    case RPI_STEP_SEND: return send_or_wait(chunk, action);
    case RPI_STEP_DECODE: return run_decode(chunk, action);
    case RPI_STEP_ADD:
        return action->first == RPI_NO_SLOT ? run_add(chunk, action) : run_fold(chunk, action);
    case RPI_STEP_COPY: return run_copy(chunk, action);
    case RPI_STEP_FENCE: return RP_OK;
    }
    return RP_FAIL(INTERNAL, "step kind %d cannot be run", action->kind);
}

static void read_wire(rpi_chunk *chunk, int slot) {
    if (slot >= RPI_SLOT_WIRE && slot != RPI_NO_SLOT)
        rpi_wire_read(chunk, slot - RPI_SLOT_WIRE);
}

static rp_status run_here(rpi_chunk *chunk, const rpi_action *action) {
    if (!rpi_in_place_stands(chunk, action)) return RP_PENDING;
    RP_TRY(run(chunk, action));
    return rpi_in_place_stands(chunk, action) ? RP_OK : RP_PENDING;
}

/* Where elements lie in memory of a GPU: there, or here on copies of them. */
static rp_status run_with_device(rpi_chunk *chunk, int index) {
    const rpi_action *action = action_of(chunk, index);
    bool done = false;
    RP_TRY(rpi_device_run(chunk, index, &done));
    if (done) return RP_OK;
    RP_TRY(run_here(chunk, action));
    rpi_device_ran(chunk, action);
    return RP_OK;
}

rp_status rpi_action_run(rpi_chunk *chunk, int index) {
    const rpi_action *action = action_of(chunk, index);
    rp_comm *comm = chunk->request->comm;
    int64_t start = rpi_now_ns();
    RP_TRY(chunk->device ? run_with_device(chunk, index) : run_here(chunk, action));
    int64_t spent = rpi_now_ns() - start;
    if (action->kind == RPI_STEP_ENCODE || action->kind == RPI_STEP_SEND)
        comm->encode_ns += spent;
    else
        comm->decode_ns += spent;
    read_wire(chunk, action->from);
    read_wire(chunk, action->first);
    return RP_OK;
}
