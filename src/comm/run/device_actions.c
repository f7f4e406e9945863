/* What each step does where elements lie in memory of a GPU; device.h draws it. */
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/device/device.h"
#include "comm/parts/parts.h"
#include "comm/run/in_place.h"

#include "base/log.h"
#include "base/status.h"
#include "cuda/device_codec.h"

#include <string.h>

/* ---- what the host needs ---- */

/* The slot of values that an action reads in place of a wire slot that has none. */
static int values_read(const rpi_chunk *chunk, int slot) {
    if (slot < RPI_SLOT_WIRE || slot == RPI_NO_SLOT) return slot;
    int wire = slot - RPI_SLOT_WIRE;
    return chunk->wires[wire].state == RPI_WIRE_VALUES
               ? chunk->request->routine->wires[wire].source
               : RPI_NO_SLOT;
}

static bool has_residual(const rpi_chunk *chunk, const rpi_action *encode) {
    rpi_piece piece;
    for (rpi_walk walk = rpi_chunk_walk(chunk, encode->part, encode->level);
         rpi_walk_next(&walk, &piece);)
        if (piece.residual) return true;
    return false;
}

static bool encodes(const rpi_action *action) {
    return action->kind == RPI_STEP_ENCODE || action->encodes;
}

/* Its values stay where they are: nothing is read now. */
static bool is_put_off(const rpi_chunk *chunk, const rpi_action *action) {
    return action->kind == RPI_STEP_ENCODE && rpi_action_stays_values(chunk, action);
}

/* RP_PENDING: something is coming. */
static rp_status gather(rpi_chunk *chunk, const rpi_action *action) {
    if (action->kind == RPI_STEP_FENCE || action->kind == RPI_STEP_RECV) return RP_OK;
    if (is_put_off(chunk, action)) return RP_OK;
    int into = action->kind == RPI_STEP_SEND ? RPI_NO_SLOT : action->into;
    bool reads = values_read(chunk, action->from) == RPI_SLOT_IN ||
                 values_read(chunk, action->first) == RPI_SLOT_IN;
    rp_status input = reads ? rpi_device_fetch_input(chunk, action->part) : RP_OK;
    if (input < 0) return input;
    if (encodes(action) && has_residual(chunk, action))
        RP_TRY(rpi_device_fetch(chunk, RPI_STAGED_RESIDUAL, action->part));
    if (into == RPI_SLOT_OUT)
        RP_TRY(rpi_staged_take(chunk, action->part,
                               rpi_staged_of(chunk, RPI_STAGED_OUT, action->part)));
    return input;
}

static void note_written(rpi_staged *staged) {
    if (!staged->memory) return; /* no elements */
    staged->state = RPI_STAGED_HERE;
    staged->dirty = true;
}

void rpi_device_ran(rpi_chunk *chunk, const rpi_action *action) {
    bool writes = action->kind == RPI_STEP_DECODE || action->kind == RPI_STEP_ADD ||
                  action->kind == RPI_STEP_COPY;
    if (writes && action->into == RPI_SLOT_OUT)
        note_written(rpi_staged_of(chunk, RPI_STAGED_OUT, action->part));
    if (encodes(action) && !is_put_off(chunk, action) && has_residual(chunk, action))
        note_written(rpi_staged_of(chunk, RPI_STAGED_RESIDUAL, action->part));
}

/* ---- what the GPU does ---- */

static rp_status begun(rpi_chunk *chunk, const rpi_action *action, int lane) {
    rpi_device_step *step = &chunk->device->steps[action - chunk->request->routine->action];
    RP_TRY(rpi_lane_mark(chunk->request->device, lane, &step->mark));
    step->lane = (uint8_t)lane;
    step->begun = true;
    return RP_PENDING;
}

static void say_once(const rpi_piece *piece) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    char text[64];
    if (atomic_flag_test_and_set(&said)) return;
    rpi_log(RP_LOG_INFO,
            "%s by %s: encoded on the host, though it lies in memory of a GPU (docs/comm.md)",
            rp_dtype_name(piece->run->dtype), rp_codec_text(piece->codec, text, sizeof text));
}

/* Kernels, or a copy where elements travel as they are. */
static bool knows_piece(const rpi_piece *piece, const rp_encode_context *context,
                        rpi_device_call *call, bool *out_copies) {
    *out_copies = rp_codec_is_exact(piece->codec, piece->run->dtype) && !context->residual;
    if (*out_copies) return true;
    if (!piece->varies && rpi_device_call_of(piece->codec, piece->run->dtype, piece->count,
                                             context, call) == RP_OK)
        return true;
    if (!rp_codec_is_exact(piece->codec, piece->run->dtype)) say_once(piece);
    return false;
}

static bool knows_part(const rpi_chunk *chunk, const rpi_action *action) {
    rpi_device_call call;
    rpi_piece piece;
    bool copies, any = false;
    for (rpi_walk walk = rpi_chunk_walk(chunk, action->part, action->level);
         rpi_walk_next(&walk, &piece);) {
        rp_encode_context context = rpi_piece_context(chunk->request, &piece);
        context.residual = action->kind == RPI_STEP_ENCODE ? piece.residual : NULL;
        if (!knows_piece(&piece, &context, &call, &copies)) return false;
        any = true;
    }
    return any;
}

static rp_status encode_piece(rpi_chunk *chunk, const rpi_action *action,
                              const rpi_piece *piece, unsigned char *out) {
    rpi_transfer *transfer = chunk->request->device;
    rp_encode_context context = rpi_piece_context(chunk->request, piece);
    rpi_device_call call;
    bool copies;
    context.role = (uint32_t)action->role + 2 * (uint32_t)chunk->request->comm->rank;
    context.residual = piece->residual;
    const void *values = rpi_device_place(chunk, RPI_STAGED_IN, piece);
    if (!knows_piece(piece, &context, &call, &copies))
        return RP_FAIL(INTERNAL, "a piece of a part that kernels know is not known to them");
    if (copies) return rpi_transfer_copy(transfer, RPI_LANE_FROM, out, values, piece->bytes);
    call.x = values;
    call.encoded = out;
    const rpi_cuda_library *cuda = transfer->device->cuda;
    return rpi_cuda_check(cuda, cuda->encode(&call, rpi_lane_stream(transfer, RPI_LANE_FROM)),
                          "encoding");
}

/* A pinned copy is newer than what the kernel would go on with. */
static bool has_staged_residual(const rpi_chunk *chunk, int part) {
    return rpi_staged_of(chunk, RPI_STAGED_RESIDUAL, part)->state != RPI_STAGED_NOT;
}

static bool takes_encode(const rpi_chunk *chunk, const rpi_action *action) {
    return action->kind == RPI_STEP_ENCODE && action->from == RPI_SLOT_IN &&
           !rpi_device_changes(chunk, action->part) && !is_put_off(chunk, action) &&
           !has_staged_residual(chunk, action->part) && knows_part(chunk, action);
}

static rp_status put_encodings(rpi_chunk *chunk, const rpi_action *action, unsigned char *out) {
    rpi_piece piece;
    for (rpi_walk walk = rpi_chunk_walk(chunk, action->part, action->level);
         rpi_walk_next(&walk, &piece); out += piece.bytes)
        RP_TRY(encode_piece(chunk, action, &piece, out));
    return RP_OK;
}

static rp_status with_device(rpi_chunk *chunk, const rpi_action *action,
                             rp_status (*put)(rpi_chunk *, const rpi_action *, unsigned char *),
                             unsigned char *bytes) {
    const rpi_device *device = chunk->request->device->device;
    rpi_cuda_before before;
    RP_TRY(rpi_device_enter(device, &before));
    rp_status status = put(chunk, action, bytes);
    rpi_device_leave(device, &before);
    return status;
}

static rpi_wire pinned_wire(const rpi_wire *wire, const rpi_pinned *pinned, size_t bytes) {
    return (rpi_wire){.state = RPI_WIRE_PINNED,
                      .readers = wire->readers,
                      .data = pinned->data,
                      .bytes = bytes,
                      .share = wire->share};
}

static rp_status begin_encode(rpi_chunk *chunk, const rpi_action *action) {
    rpi_transfer *transfer = chunk->request->device;
    int index = action->into - RPI_SLOT_WIRE;
    rpi_wire *wire = &chunk->wires[index];
    rpi_pinned **pinned = &chunk->device->wires[index];
    size_t bytes =
        rpi_cut_part_bytes(&chunk->request->cut, chunk->index, action->part, action->level);
    RP_TRY(rpi_transfer_open(transfer));
    RP_TRY(rpi_pinned_take(transfer->device, bytes, pinned));
    *wire = pinned_wire(wire, *pinned, bytes);
    RP_TRY(with_device(chunk, action, put_encodings, (*pinned)->data));
    return begun(chunk, action, RPI_LANE_FROM);
}

/* Bytes that came, where the GPU reads them. RP_PENDING: they are not what was sent any more.
 */
static rp_status pin_wire(rpi_chunk *chunk, const rpi_action *action) {
    int index = action->from - RPI_SLOT_WIRE;
    rpi_wire *wire = &chunk->wires[index];
    rpi_pinned *pinned = NULL;
    if (wire->state == RPI_WIRE_PINNED) return RP_OK;
    RP_TRY(rpi_pinned_take(chunk->request->device->device, wire->bytes, &pinned));
    memcpy(pinned->data, wire->data, wire->bytes);
    if (!rpi_in_place_stands(chunk, action)) {
        rpi_pinned_give(chunk->request->device->device, pinned);
        return RP_PENDING;
    }
    rpi_wire there = pinned_wire(wire, pinned, wire->bytes);
    rpi_wire_empty(chunk, index);
    *wire = there;
    chunk->device->wires[index] = pinned;
    return RP_OK;
}

static rp_status decode_piece(rpi_chunk *chunk, const rpi_piece *piece, unsigned char *in) {
    rpi_transfer *transfer = chunk->request->device;
    const rpi_cuda_library *cuda = transfer->device->cuda;
    rp_encode_context context = rpi_piece_context(chunk->request, piece);
    void *values = rpi_device_place(chunk, RPI_STAGED_OUT, piece);
    rpi_device_call call;
    bool copies;
    if (!knows_piece(piece, &context, &call, &copies))
        return RP_FAIL(INTERNAL, "a piece of a part that kernels know is not known to them");
    if (copies) return rpi_transfer_copy(transfer, RPI_LANE_INTO, values, in, piece->bytes);
    call.encoded = in;
    call.y = values;
    return rpi_cuda_check(
        cuda, cuda->decode(&call, 0, rpi_lane_stream(transfer, RPI_LANE_INTO)), "decoding");
}

static rp_status put_decodings(rpi_chunk *chunk, const rpi_action *action, unsigned char *in) {
    rpi_piece piece;
    for (rpi_walk walk = rpi_chunk_walk(chunk, action->part, action->level);
         rpi_walk_next(&walk, &piece); in += piece.bytes)
        RP_TRY(decode_piece(chunk, &piece, in));
    return RP_OK;
}

static bool takes_decode(const rpi_chunk *chunk, const rpi_action *action) {
    if (action->kind != RPI_STEP_DECODE || action->into != RPI_SLOT_OUT) return false;
    const rpi_wire *wire = &chunk->wires[action->from - RPI_SLOT_WIRE];
    bool has_bytes = wire->state == RPI_WIRE_FRAME || wire->state == RPI_WIRE_BLOCK ||
                     wire->state == RPI_WIRE_PINNED;
    return has_bytes && wire->share == 1 && knows_part(chunk, action);
}

/* It writes the whole part: what the host has written there before is nothing now. */
static void take_from_host(rpi_chunk *chunk, int part) {
    rpi_staged *out = rpi_staged_of(chunk, RPI_STAGED_OUT, part);
    out->dirty = false;
    out->state = RPI_STAGED_NOT;
}

static rp_status begin_decode(rpi_chunk *chunk, const rpi_action *action) {
    RP_TRY(rpi_transfer_open(chunk->request->device));
    RP_TRY(pin_wire(chunk, action));
    take_from_host(chunk, action->part);
    unsigned char *bytes = chunk->device->wires[action->from - RPI_SLOT_WIRE]->data;
    RP_TRY(with_device(chunk, action, put_decodings, bytes));
    return begun(chunk, action, RPI_LANE_INTO);
}

/* IN to OUT, as it is. */
static bool takes_copy(const rpi_chunk *chunk, const rpi_action *action) {
    bool copies = action->kind == RPI_STEP_COPY && !rpi_is_weight(action->weight);
    bool decodes = action->kind == RPI_STEP_DECODE && !rpi_is_weight(action->weight);
    return (copies || decodes) && action->into == RPI_SLOT_OUT &&
           values_read(chunk, action->from) == RPI_SLOT_IN &&
           !rpi_device_changes(chunk, action->part);
}

static rp_status begin_copy(rpi_chunk *chunk, const rpi_action *action) {
    rpi_transfer *transfer = chunk->request->device;
    bool any = false;
    rpi_piece piece;
    RP_TRY(rpi_transfer_open(transfer));
    take_from_host(chunk, action->part);
    for (rpi_walk walk = rpi_chunk_walk(chunk, action->part, action->level);
         rpi_walk_next(&walk, &piece);) {
        void *into = rpi_device_place(chunk, RPI_STAGED_OUT, &piece);
        const void *from = rpi_device_place(chunk, RPI_STAGED_IN, &piece);
        if (into == from || !into || !from) continue;
        any = true;
        RP_TRY(rpi_transfer_copy(transfer, RPI_LANE_INTO, into, from,
                                 rpi_device_bytes(RPI_STAGED_IN, &piece)));
    }
    if (any) return begun(chunk, action, RPI_LANE_INTO);
    chunk->device->steps[action - chunk->request->routine->action].begun = true;
    return RP_OK;
}

/* ---- steps ---- */

static rp_status begin(rpi_chunk *chunk, const rpi_action *action, bool *out_device) {
    *out_device = true;
    if (takes_encode(chunk, action)) return begin_encode(chunk, action);
    if (takes_decode(chunk, action)) return begin_decode(chunk, action);
    if (takes_copy(chunk, action)) return begin_copy(chunk, action);
    *out_device = false;
    return gather(chunk, action);
}

rp_status rpi_device_run(rpi_chunk *chunk, int index, bool *out_done) {
    const rpi_action *action = &chunk->request->routine->action[index];
    const rpi_device_step *step = &chunk->device->steps[index];
    const rpi_transfer *transfer = chunk->request->device;
    *out_done = false;
    if (rpi_action_is_void(chunk->request, chunk->index, action)) return RP_OK;
    if (!step->begun) return begin(chunk, action, out_done);
    *out_done = true;
    return rpi_lane_has_come(transfer, step->lane, step->mark) ? RP_OK : RP_PENDING;
}

/* Inputs that sums will need on the host come while frames do. */
rp_status rpi_device_chunk_begin(rpi_chunk *chunk) {
    const rpi_routine *routine = chunk->request->routine;
    for (int i = 0; i < routine->schedule.count; i++) {
        const rpi_action *action = &routine->action[i];
        bool sums =
            !action->fused && (action->kind == RPI_STEP_ADD ||
                               (action->kind == RPI_STEP_COPY && action->into == RPI_SLOT_SUM));
        bool reads = action->from == RPI_SLOT_IN || action->first == RPI_SLOT_IN;
        if (!sums || !reads) continue;
        rp_status status = rpi_device_fetch_input(chunk, action->part);
        if (status < 0) return status;
    }
    return RP_OK;
}
