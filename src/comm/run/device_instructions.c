/* What each step does if elements are in memory of a GPU; device.h has a picture. */
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/device/device.h"
#include "comm/parts/parts.h"
#include "comm/run/device_steps.h"
#include "comm/run/device_sums.h"
#include "comm/run/in_place.h"

#include "base/log.h"
#include "base/status.h"
#include "cuda/device_codec.h"

#include <string.h>

/* ---- what the host needs ---- */

/* The slot of values that an instruction reads instead of an encoded slot that has none. */
static int values_read(const rpi_chunk *chunk, int slot) {
    if (slot < RPI_SLOT_ENCODED || slot == RPI_NO_SLOT) return slot;
    int encoded_slot = slot - RPI_SLOT_ENCODED;
    return chunk->encoded_slots[encoded_slot].state == RPI_ENCODED_VALUES
               ? chunk->request->compiled->encoded_slots[encoded_slot].source
               : RPI_NO_SLOT;
}

static bool has_residual(const rpi_chunk *chunk, const rpi_instruction *encode) {
    rpi_slice slice;
    for (rpi_walk walk = rpi_chunk_walk(chunk, encode->part, encode->level);
         rpi_walk_next(&walk, &slice);)
        if (slice.residual) return true;
    return false;
}

static bool encodes(const rpi_instruction *instruction) {
    return instruction->kind == RPI_STEP_ENCODE || instruction->encodes;
}

/* Its values stay in place: nothing is read now. */
static bool is_put_off(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    return instruction->kind == RPI_STEP_ENCODE &&
           rpi_instruction_stays_values(chunk, instruction);
}

/* Decodings of a chunk on which nothing depends are launched together, when the last can be:
 * the chunk is not over before. */
static bool may_hold(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    return instruction->kind == RPI_STEP_DECODE && instruction->into == RPI_SLOT_OUT &&
           !instruction->fused && instruction->nexts == 0 &&
           !rpi_instruction_is_void(chunk->request, chunk->index, instruction);
}

/* RP_PENDING: a copy is under way. */
static rp_status gather(rpi_chunk *chunk, const rpi_instruction *instruction) {
    if (instruction->kind == RPI_STEP_FENCE || instruction->kind == RPI_STEP_RECV) return RP_OK;
    if (is_put_off(chunk, instruction)) return RP_OK;
    int into = instruction->kind == RPI_STEP_SEND ? RPI_NO_SLOT : instruction->into;
    bool reads = values_read(chunk, instruction->from) == RPI_SLOT_IN ||
                 values_read(chunk, instruction->first) == RPI_SLOT_IN;
    rp_status input = reads ? rpi_device_fetch_input(chunk, instruction->part) : RP_OK;
    if (input < 0) return input;
    if (encodes(instruction) && has_residual(chunk, instruction))
        RP_TRY(rpi_device_fetch(chunk, RPI_STAGED_RESIDUAL, instruction->part));
    if (into == RPI_SLOT_OUT)
        RP_TRY(rpi_staged_take(chunk, instruction->part,
                               rpi_staged_of(chunk, RPI_STAGED_OUT, instruction->part)));
    return input;
}

static void note_written(rpi_staged *staged) {
    if (!staged->memory) return; /* no elements */
    staged->state = RPI_STAGED_HERE;
    staged->dirty = true;
}

void rpi_device_ran(rpi_chunk *chunk, const rpi_instruction *instruction) {
    chunk->device->decodings -= may_hold(chunk, instruction);
    bool writes = instruction->kind == RPI_STEP_DECODE || instruction->kind == RPI_STEP_ADD ||
                  instruction->kind == RPI_STEP_COPY;
    if (writes && instruction->into == RPI_SLOT_OUT)
        note_written(rpi_staged_of(chunk, RPI_STAGED_OUT, instruction->part));
    if (encodes(instruction) && !is_put_off(chunk, instruction) &&
        has_residual(chunk, instruction))
        note_written(rpi_staged_of(chunk, RPI_STAGED_RESIDUAL, instruction->part));
}

/* ---- what the GPU does ---- */

static rp_status encode_slice(rpi_chunk *chunk, const rpi_instruction *instruction,
                              const rpi_slice *slice, unsigned char *out) {
    rpi_transfer *transfer = chunk->request->device;
    rp_encode_context context = rpi_slice_context(chunk->request, slice);
    rpi_device_call call;
    bool copies;
    context.role = (uint32_t)instruction->role + 2 * (uint32_t)chunk->request->comm->rank;
    context.residual = slice->residual;
    const void *values = instruction->from == RPI_SLOT_SUM
                             ? rpi_device_sum_place(chunk, instruction->part, slice)
                             : rpi_device_place(chunk, RPI_STAGED_IN, slice);
    if (!rpi_device_knows_slice(slice, &context, &call, &copies))
        return RP_FAIL(INTERNAL, "a piece of a part that kernels know is not known to them");
    if (copies) return rpi_lane_copy(transfer, RPI_LANE_FROM, out, values, slice->bytes);
    call.x = values;
    call.encoded = out;
    return rpi_lane_put(transfer, RPI_LANE_FROM, RPI_LANE_ENCODE, &call);
}

/* A pinned copy is newer than the memory that the kernel would use. */
static bool has_staged_residual(const rpi_chunk *chunk, int part) {
    return rpi_staged_of(chunk, RPI_STAGED_RESIDUAL, part)->state != RPI_STAGED_NOT;
}

static bool takes_encode(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    bool is_sum = instruction->from == RPI_SLOT_SUM;
    if (is_sum && !rpi_device_adds(chunk, instruction->part)) return false;
    return instruction->kind == RPI_STEP_ENCODE &&
           (is_sum || instruction->from == RPI_SLOT_IN) &&
           !rpi_device_changes(chunk, instruction->part) && !is_put_off(chunk, instruction) &&
           !has_staged_residual(chunk, instruction->part) &&
           rpi_device_knows_part(chunk, instruction);
}

static rp_status put_encodings(rpi_chunk *chunk, const rpi_instruction *instruction,
                               unsigned char *out) {
    rpi_slice slice;
    for (rpi_walk walk = rpi_chunk_walk(chunk, instruction->part, instruction->level);
         rpi_walk_next(&walk, &slice); out += slice.bytes)
        RP_TRY(encode_slice(chunk, instruction, &slice, out));
    return RP_OK;
}

static rp_status begin_encode(rpi_chunk *chunk, const rpi_instruction *instruction) {
    rpi_transfer *transfer = chunk->request->device;
    int index = instruction->into - RPI_SLOT_ENCODED;
    rpi_encoded_slot *encoded_slot = &chunk->encoded_slots[index];
    rpi_pinned **pinned = &chunk->device->encoded_slots[index];
    size_t bytes = rpi_partition_part_bytes(&chunk->request->partition, chunk->index,
                                            instruction->part, instruction->level);
    RP_TRY(rpi_transfer_open(transfer));
    RP_TRY(rpi_pinned_take(transfer->device, bytes, pinned));
    *encoded_slot = rpi_device_pinned_slot(encoded_slot, *pinned, bytes);
    unsigned char *out = NULL;
    RP_TRY(rpi_device_begin_slot(chunk, instruction, instruction->into, RPI_LANE_FROM, &out));
    RP_TRY(put_encodings(chunk, instruction, out));
    RP_TRY(rpi_device_end_slot(chunk, instruction->into, RPI_LANE_FROM, bytes));
    return rpi_device_begun(chunk, instruction, RPI_LANE_FROM);
}

static rp_status decode_slice(rpi_chunk *chunk, const rpi_slice *slice, unsigned char *in) {
    rpi_transfer *transfer = chunk->request->device;
    rp_encode_context context = rpi_slice_context(chunk->request, slice);
    void *values = rpi_device_place(chunk, RPI_STAGED_OUT, slice);
    rpi_device_call call;
    bool copies;
    if (!rpi_device_knows_slice(slice, &context, &call, &copies))
        return RP_FAIL(INTERNAL, "a piece of a part that kernels know is not known to them");
    if (copies) return rpi_lane_copy(transfer, RPI_LANE_INTO, values, in, slice->bytes);
    call.encoded = in;
    call.y = values;
    return rpi_lane_put(transfer, RPI_LANE_INTO, RPI_LANE_DECODE, &call);
}

static rp_status put_decodings(rpi_chunk *chunk, const rpi_instruction *instruction,
                               unsigned char *in) {
    rpi_slice slice;
    for (rpi_walk walk = rpi_chunk_walk(chunk, instruction->part, instruction->level);
         rpi_walk_next(&walk, &slice); in += slice.bytes)
        RP_TRY(decode_slice(chunk, &slice, in));
    return RP_OK;
}

static bool takes_decode(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    if (instruction->kind != RPI_STEP_DECODE || instruction->into != RPI_SLOT_OUT) return false;
    const rpi_encoded_slot *encoded_slot =
        &chunk->encoded_slots[instruction->from - RPI_SLOT_ENCODED];
    bool has_bytes = encoded_slot->state == RPI_ENCODED_FRAME ||
                     encoded_slot->state == RPI_ENCODED_BUFFER ||
                     encoded_slot->state == RPI_ENCODED_PINNED;
    return has_bytes && encoded_slot->edge_weight == 1 &&
           rpi_device_knows_part(chunk, instruction);
}

/* It writes the whole part, so values that the host has written there are obsolete. */
static void take_from_host(rpi_chunk *chunk, int part) {
    rpi_staged *out = rpi_staged_of(chunk, RPI_STAGED_OUT, part);
    out->dirty = false;
    out->state = RPI_STAGED_NOT;
}

static rp_status put_deferred(rpi_chunk *chunk) {
    const rpi_compiled_schedule *compiled = chunk->request->compiled;
    unsigned char *bytes = NULL;
    for (int pass = 0; pass < 2; pass++) /* copies of bytes, then kernels */
        for (int i = 0; i < compiled->schedule.count; i++) {
            const rpi_instruction *instruction = &compiled->instruction[i];
            if (!chunk->device->steps[i].deferred) continue;
            if (pass == 0) {
                RP_TRY(rpi_device_begin_slot(chunk, instruction, instruction->from,
                                             RPI_LANE_INTO, &bytes));
                continue;
            }
            chunk->device->steps[i].deferred = false;
            bytes = rpi_device_slot_bytes(chunk, instruction->from);
            RP_TRY(put_decodings(chunk, instruction, bytes));
            rp_status status = rpi_device_begun(chunk, instruction, RPI_LANE_INTO);
            if (status < 0) return status;
        }
    return RP_PENDING;
}

/* Its turn has come. */
static rp_status begin_decode(rpi_chunk *chunk, const rpi_instruction *instruction) {
    rpi_device_step *step = rpi_device_step_of(chunk, instruction);
    RP_TRY(rpi_transfer_open(chunk->request->device));
    RP_TRY(rpi_device_pin_slot(chunk, instruction, instruction->from));
    take_from_host(chunk, instruction->part);
    step->deferred = true;
    if (!may_hold(chunk, instruction)) return put_deferred(chunk);
    chunk->device->decodings--;
    return chunk->device->decodings ? RP_PENDING : put_deferred(chunk);
}

/* IN to OUT, as it is. */
static bool takes_copy(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    bool copies = instruction->kind == RPI_STEP_COPY && !rpi_is_weight(instruction->weight);
    bool decodes = instruction->kind == RPI_STEP_DECODE && !rpi_is_weight(instruction->weight);
    return (copies || decodes) && instruction->into == RPI_SLOT_OUT &&
           values_read(chunk, instruction->from) == RPI_SLOT_IN &&
           !rpi_device_changes(chunk, instruction->part);
}

static rp_status begin_copy(rpi_chunk *chunk, const rpi_instruction *instruction) {
    rpi_transfer *transfer = chunk->request->device;
    bool any = false;
    rpi_slice slice;
    RP_TRY(rpi_transfer_open(transfer));
    take_from_host(chunk, instruction->part);
    for (rpi_walk walk = rpi_chunk_walk(chunk, instruction->part, instruction->level);
         rpi_walk_next(&walk, &slice);) {
        void *into = rpi_device_place(chunk, RPI_STAGED_OUT, &slice);
        const void *from = rpi_device_place(chunk, RPI_STAGED_IN, &slice);
        if (into == from || !into || !from) continue;
        any = true;
        RP_TRY(rpi_lane_copy(transfer, RPI_LANE_INTO, into, from,
                             rpi_device_bytes(RPI_STAGED_IN, &slice)));
    }
    if (any) return rpi_device_begun(chunk, instruction, RPI_LANE_INTO);
    rpi_device_step_of(chunk, instruction)->begun = true;
    return RP_OK;
}

/* ---- steps ---- */

static rp_status begin_alone(rpi_chunk *chunk, const rpi_instruction *instruction,
                             bool *out_device) {
    *out_device = true;
    if (takes_encode(chunk, instruction)) return begin_encode(chunk, instruction);
    if (takes_decode(chunk, instruction)) return begin_decode(chunk, instruction);
    if (takes_copy(chunk, instruction)) {
        chunk->device->decodings -= may_hold(chunk, instruction);
        return begin_copy(chunk, instruction);
    }
    if (rpi_device_sums_take(chunk, instruction))
        return rpi_device_sums_begin(chunk, instruction);
    *out_device = false;
    return gather(chunk, instruction);
}

/* It follows in RPI_LANE_FROM, and waits only for this one. */
static bool follows(const rpi_chunk *chunk, const rpi_instruction *instruction, int next) {
    const rpi_compiled_schedule *compiled = chunk->request->compiled;
    const rpi_instruction *it = &compiled->instruction[next];
    int edges = 0;
    for (int k = 0; k < instruction->nexts; k++)
        edges += compiled->next[instruction->first_next + k] == next;
    if (chunk->waits[next] != edges || it->fused) return false;
    if (rpi_instruction_is_void(chunk->request, chunk->index, it)) return false;
    return (it->from == RPI_SLOT_SUM && takes_encode(chunk, it)) ||
           rpi_device_sums_take(chunk, it);
}

/* Work that follows an addition in its lane is put there at once: the lane keeps the order, and
 * nothing has to wait for the addition's end. */
static rp_status go_ahead(rpi_chunk *chunk, const rpi_instruction *instruction) {
    const rpi_compiled_schedule *compiled = chunk->request->compiled;
    bool on_device;
    for (int k = 0; k < instruction->nexts; k++) {
        int next = compiled->next[instruction->first_next + k];
        const rpi_instruction *it = &compiled->instruction[next];
        if (!follows(chunk, instruction, next)) continue;
        rp_status status = RP_OK;
        if (!rpi_device_step_of(chunk, it)->begun) status = begin_alone(chunk, it, &on_device);
        if (status < 0) return status;
        if (rpi_device_step_of(chunk, it)->begun) RP_TRY(go_ahead(chunk, it));
    }
    return RP_OK;
}

static rp_status begin(rpi_chunk *chunk, const rpi_instruction *instruction, bool *out_device) {
    rp_status status = begin_alone(chunk, instruction, out_device);
    bool goes_on = status >= 0 && *out_device && rpi_device_sums_take(chunk, instruction) &&
                   rpi_device_step_of(chunk, instruction)->begun;
    if (goes_on) RP_TRY(go_ahead(chunk, instruction));
    return status;
}

rp_status rpi_device_run(rpi_chunk *chunk, int index, bool *out_done) {
    const rpi_instruction *instruction = &chunk->request->compiled->instruction[index];
    const rpi_device_step *step = &chunk->device->steps[index];
    const rpi_transfer *transfer = chunk->request->device;
    *out_done = false;
    if (rpi_instruction_is_void(chunk->request, chunk->index, instruction)) return RP_OK;
    if (!step->begun && !step->deferred) return begin(chunk, instruction, out_done);
    *out_done = true;
    if (step->deferred) return chunk->device->decodings ? RP_PENDING : put_deferred(chunk);
    return rpi_lane_has_come(transfer, step->lane, step->mark) ? RP_OK : RP_PENDING;
}

/* Inputs that sums will need on the host are copied while frames are under way. */
rp_status rpi_device_chunk_begin(rpi_chunk *chunk) {
    const rpi_compiled_schedule *compiled = chunk->request->compiled;
    RP_TRY(rpi_device_sums_open(chunk));
    chunk->device->decodings = 0;
    for (int i = 0; i < compiled->schedule.count; i++) {
        const rpi_instruction *instruction = &compiled->instruction[i];
        chunk->device->decodings += may_hold(chunk, instruction);
        bool sums = !instruction->fused &&
                    (instruction->kind == RPI_STEP_ADD ||
                     (instruction->kind == RPI_STEP_COPY && instruction->into == RPI_SLOT_SUM));
        bool reads = instruction->from == RPI_SLOT_IN || instruction->first == RPI_SLOT_IN;
        if (!sums || !reads || rpi_device_adds(chunk, instruction->part)) continue;
        rp_status status = rpi_device_fetch_input(chunk, instruction->part);
        if (status < 0) return status;
    }
    return RP_OK;
}
