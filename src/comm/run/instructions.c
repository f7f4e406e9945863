/* What each step does to memory. Local steps run inline here, a part at a time; they are begun
 * and finished like sends, so that a GPU can do them (device.h). */
#include "comm/core/chunk.h"
#include "comm/core/frame_buffers.h"
#include "comm/core/request.h"
#include "comm/device/device.h"
#include "comm/parts/parts.h"
#include "comm/run/executor.h"
#include "comm/run/in_place.h"

#include "base/clock.h"
#include "base/status.h"

static const rpi_instruction *instruction_of(const rpi_chunk *chunk, int instruction) {
    return &chunk->request->compiled->instruction[instruction];
}

static rp_status run_encode(rpi_chunk *chunk, const rpi_instruction *instruction) {
    rpi_encoded_slot *encoded_slot = rpi_encoded_slot_of(chunk, instruction->into);
    const rp_request *request = chunk->request;
    if (rpi_instruction_stays_values(chunk, instruction)) {
        encoded_slot->state = RPI_ENCODED_VALUES;
        return RP_OK;
    }
    rpi_frame_buffer *buffer = NULL;
    size_t bytes = rpi_partition_part_bytes(&request->partition, chunk->index,
                                            instruction->part, instruction->level);
    RP_TRY(rpi_frame_buffer_take(request->comm->context, bytes, &buffer));
    *encoded_slot = (rpi_encoded_slot){.state = RPI_ENCODED_BUFFER,
                                       .readers = encoded_slot->readers,
                                       .buffer = buffer,
                                       .data = buffer->payload,
                                       .edge_weight = 1};
    RP_TRY(rpi_part_encode(chunk, rpi_encoding_of(instruction), buffer->payload,
                           &encoded_slot->bytes));
    buffer->bytes = encoded_slot->bytes;
    return RP_OK;
}

static rp_status run_decode(rpi_chunk *chunk, const rpi_instruction *instruction) {
    int slot = instruction->from - RPI_SLOT_ENCODED;
    if (chunk->encoded_slots[slot].state == RPI_ENCODED_WRITTEN) return RP_OK;
    if (chunk->encoded_slots[slot].state != RPI_ENCODED_VALUES)
        return rpi_part_decode(chunk, instruction, false);
    int source = chunk->request->compiled->encoded_slots[slot].source;
    return source == instruction->into
               ? RP_OK
               : rpi_part_copy(chunk, source, instruction->into, instruction->part);
}

static rp_status run_add(rpi_chunk *chunk, const rpi_instruction *instruction) {
    if (instruction->from < RPI_SLOT_ENCODED) return rpi_part_add(chunk, instruction);
    int slot = instruction->from - RPI_SLOT_ENCODED;
    if (chunk->encoded_slots[slot].state != RPI_ENCODED_VALUES)
        return rpi_part_decode(chunk, instruction, true);
    rpi_instruction values = *instruction;
    values.from = chunk->request->compiled->encoded_slots[slot].source;
    return rpi_part_add(chunk, &values);
}

static bool is_sent(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    return instruction->from >= RPI_SLOT_ENCODED &&
           chunk->encoded_slots[instruction->from - RPI_SLOT_ENCODED].state == RPI_ENCODED_SENT;
}

/* Only this sum is missing to send it. */
static bool sends_next(const rpi_chunk *chunk, const rpi_instruction *fold) {
    const rpi_compiled_schedule *compiled = chunk->request->compiled;
    int edges = 0;
    for (int k = 0; fold->send >= 0 && k < fold->nexts; k++)
        edges += compiled->next[fold->first_next + k] == fold->send;
    return edges > 0 && chunk->waits[fold->send] == edges;
}

/* Its receiver will read it where the sum is written. */
static bool stays_in_place(const rpi_chunk *chunk, const rpi_instruction *send) {
    size_t bytes = rpi_instruction_bytes(chunk->request, chunk->index, send);
    return rpi_in_place_payload(chunk, send, bytes) != NULL;
}

/* The sum of two is written over the values of the other rank, if those lie in its buffer and
 * it wants the sum there. Otherwise, if the link has room, the sum is also written into its
 * frame while it is in the cache. */
static rp_status run_fold(rpi_chunk *chunk, const rpi_instruction *fold) {
    if (!chunk->request->compiled->plain) return rpi_part_fold_encodings(chunk, fold);
    const rpi_instruction *send =
        sends_next(chunk, fold) ? instruction_of(chunk, fold->send) : NULL;
    void *there = send ? rpi_in_place_begin_write(chunk, fold, send) : NULL;
    if (there) {
        rpi_part_fold(chunk, fold, there);
        rpi_in_place_end_write(chunk, send);
        rpi_encoded_slot_of(chunk, send->from)->state = RPI_ENCODED_PUT;
        return RP_OK;
    }
    if (send && !stays_in_place(chunk, send)) {
        rp_status status = rpi_frame_send(chunk, send, fold);
        if (status == RP_OK) rpi_encoded_slot_of(chunk, send->from)->state = RPI_ENCODED_SENT;
        if (status != RP_PENDING) return status;
    }
    rpi_part_fold(chunk, fold, NULL);
    return RP_OK;
}

static rp_status send_or_wait(rpi_chunk *chunk, const rpi_instruction *send) {
    int index = (int)(send - chunk->request->compiled->instruction);
    if (rpi_in_place_is_in_use(chunk, index))
        return rpi_in_place_is_completed(chunk, index) ? RP_OK : RP_PENDING;
    return is_sent(chunk, send) ? RP_OK : rpi_frame_send(chunk, send, NULL);
}

static rp_status run(rpi_chunk *chunk, const rpi_instruction *instruction) {
    if (rpi_instruction_is_void(chunk->request, chunk->index, instruction)) {
        if (instruction->kind == RPI_STEP_RECV) chunk->received[instruction->peer]++;
        return RP_OK;
    }
    switch (instruction->kind) {
    case RPI_STEP_ENCODE: return run_encode(chunk, instruction);
    case RPI_STEP_SEND: return send_or_wait(chunk, instruction);
    case RPI_STEP_DECODE: return run_decode(chunk, instruction);
    case RPI_STEP_ADD:
        return instruction->first == RPI_NO_SLOT ? run_add(chunk, instruction)
                                                 : run_fold(chunk, instruction);
    case RPI_STEP_COPY: return rpi_part_extent_copy(chunk, instruction);
    case RPI_STEP_FENCE: return RP_OK;
    }
    return RP_FAIL(INTERNAL, "step kind %d cannot be run", instruction->kind);
}

static void read_encoded(rpi_chunk *chunk, int slot) {
    if (slot >= RPI_SLOT_ENCODED && slot != RPI_NO_SLOT)
        rpi_encoded_slot_read(chunk, slot - RPI_SLOT_ENCODED);
}

/* Values that were read while their sender revoked them must not be used: the step stays, and
 * does not run again, since the payload does not become valid again. It ends with the failure.
 */
static rp_status run_here(rpi_chunk *chunk, const rpi_instruction *instruction) {
    if (!rpi_in_place_is_valid(chunk, instruction)) return RP_PENDING;
    RP_TRY(run(chunk, instruction));
    return rpi_in_place_is_valid(chunk, instruction) ? RP_OK : RP_PENDING;
}

/* If elements are in memory of a GPU: there, or here on copies of them. */
static rp_status run_with_device(rpi_chunk *chunk, int index) {
    const rpi_instruction *instruction = instruction_of(chunk, index);
    bool done = false;
    RP_TRY(rpi_device_run(chunk, index, &done));
    if (done) return RP_OK;
    RP_TRY(run_here(chunk, instruction));
    rpi_device_ran(chunk, instruction);
    return RP_OK;
}

rp_status rpi_instruction_run(rpi_chunk *chunk, int index) {
    const rpi_instruction *instruction = instruction_of(chunk, index);
    rp_comm *comm = chunk->request->comm;
    int64_t start = rpi_now_ns();
    RP_TRY(chunk->device ? run_with_device(chunk, index) : run_here(chunk, instruction));
    int64_t spent = rpi_now_ns() - start;
    if (instruction->kind == RPI_STEP_ENCODE || instruction->kind == RPI_STEP_SEND)
        comm->encode_ns += spent;
    else
        comm->decode_ns += spent;
    read_encoded(chunk, instruction->from);
    read_encoded(chunk, instruction->first);
    return RP_OK;
}
