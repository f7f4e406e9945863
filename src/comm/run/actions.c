/* What each step does to memory. Local steps run inline here, a part at a time; they are
 * posted and finished like sends, so that a GPU can take them (device.h). */
#include "comm/core/chunk.h"
#include "comm/core/frame_blocks.h"
#include "comm/core/request.h"
#include "comm/device/device.h"
#include "comm/parts/parts.h"
#include "comm/run/executor.h"
#include "comm/run/in_place.h"

#include "base/clock.h"
#include "base/status.h"

static const rpi_action *action_of(const rpi_chunk *chunk, int action) {
    return &chunk->request->routine->action[action];
}

static rp_status run_encode(rpi_chunk *chunk, const rpi_action *action) {
    rpi_wire *wire = rpi_wire_of(chunk, action->into);
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
    RP_TRY(rpi_part_encode(chunk, rpi_encoding_of(action), block->payload, &wire->bytes));
    block->bytes = wire->bytes;
    return RP_OK;
}

static rp_status run_decode(rpi_chunk *chunk, const rpi_action *action) {
    int slot = action->from - RPI_SLOT_WIRE;
    if (chunk->wires[slot].state == RPI_WIRE_THERE) return RP_OK;
    if (chunk->wires[slot].state != RPI_WIRE_VALUES)
        return rpi_part_decode(chunk, action, false);
    int source = chunk->request->routine->wires[slot].source;
    return source == action->into ? RP_OK
                                  : rpi_part_copy(chunk, source, action->into, action->part);
}

static rp_status run_add(rpi_chunk *chunk, const rpi_action *action) {
    if (action->from < RPI_SLOT_WIRE) return rpi_part_add(chunk, action);
    int slot = action->from - RPI_SLOT_WIRE;
    if (chunk->wires[slot].state != RPI_WIRE_VALUES)
        return rpi_part_decode(chunk, action, true);
    rpi_action values = *action;
    values.from = chunk->request->routine->wires[slot].source;
    return rpi_part_add(chunk, &values);
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
    if (!chunk->request->routine->plain) return rpi_part_fold_encodings(chunk, fold);
    const rpi_action *send = sends_next(chunk, fold) ? action_of(chunk, fold->send) : NULL;
    void *there = send ? rpi_in_place_begin_write(chunk, fold, send) : NULL;
    if (there) {
        rpi_part_fold(chunk, fold, there);
        rpi_in_place_end_write(chunk, send);
        rpi_wire_of(chunk, send->from)->state = RPI_WIRE_PUT;
        return RP_OK;
    }
    if (send && !stays_in_place(chunk, send)) {
        rp_status status = rpi_frame_send(chunk, send, fold);
        if (status == RP_OK) rpi_wire_of(chunk, send->from)->state = RPI_WIRE_SENT;
        if (status != RP_PENDING) return status;
    }
    rpi_part_fold(chunk, fold, NULL);
    return RP_OK;
}

static rp_status send_or_wait(rpi_chunk *chunk, const rpi_action *send) {
    int index = (int)(send - chunk->request->routine->action);
    if (rpi_in_place_is_lent(chunk, index))
        return rpi_in_place_is_back(chunk, index) ? RP_OK : RP_PENDING;
    return is_sent(chunk, send) ? RP_OK : rpi_frame_send(chunk, send, NULL);
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
    case RPI_STEP_COPY: return rpi_part_run_copy(chunk, action);
    case RPI_STEP_FENCE: return RP_OK;
    }
    return RP_FAIL(INTERNAL, "step kind %d cannot be run", action->kind);
}

static void read_wire(rpi_chunk *chunk, int slot) {
    if (slot >= RPI_SLOT_WIRE && slot != RPI_NO_SLOT)
        rpi_wire_read(chunk, slot - RPI_SLOT_WIRE);
}

/* What was read while its sender withdrew it is not what was sent: the step stays, and does not
 * run again, since the payload does not come to stand again. It ends with the failure. */
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
