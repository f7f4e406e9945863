#include "comm/run/device_steps.h"

#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/parts/parts.h"
#include "comm/run/in_place.h"

#include "base/log.h"
#include "base/status.h"

#include <string.h>

rpi_device_step *rpi_device_step_of(const rpi_chunk *chunk,
                                    const rpi_instruction *instruction) {
    return &chunk->device->steps[instruction - chunk->request->compiled->instruction];
}

rp_status rpi_device_begun(rpi_chunk *chunk, const rpi_instruction *instruction, int lane) {
    rpi_device_step *step = rpi_device_step_of(chunk, instruction);
    RP_TRY(rpi_lane_mark(chunk->request->device, lane, &step->mark));
    step->lane = (uint8_t)lane;
    step->begun = true;
    return RP_PENDING;
}

/* ---- what has kernels ---- */

static void say_once(const rpi_slice *slice) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    char text[64];
    if (atomic_flag_test_and_set(&said)) return;
    rpi_log(RP_LOG_INFO,
            "%s by %s: encoded on the host, though it lies in memory of a GPU (docs/comm.md)",
            rp_dtype_name(slice->extent->dtype),
            rp_codec_text(slice->codec, text, sizeof text));
}

/* Kernels, or a copy if elements are sent as they are. */
bool rpi_device_knows_slice(const rpi_slice *slice, const rp_encode_context *context,
                            rpi_device_call *call, bool *out_copies) {
    *out_copies = rp_codec_is_exact(slice->codec, slice->extent->dtype) && !context->residual;
    if (*out_copies) return true;
    if (!slice->varies && rpi_device_call_of(slice->codec, slice->extent->dtype, slice->count,
                                             context, call) == RP_OK)
        return true;
    if (!rp_codec_is_exact(slice->codec, slice->extent->dtype)) say_once(slice);
    return false;
}

bool rpi_device_knows_part(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    rpi_device_call call;
    rpi_slice slice;
    bool copies, any = false;
    for (rpi_walk walk = rpi_chunk_walk(chunk, instruction->part, instruction->level);
         rpi_walk_next(&walk, &slice);) {
        rp_encode_context context = rpi_slice_context(chunk->request, &slice);
        context.residual = instruction->kind == RPI_STEP_ENCODE ? slice.residual : NULL;
        if (!rpi_device_knows_slice(&slice, &context, &call, &copies)) return false;
        any = true;
    }
    return any;
}

/* ---- bytes that the GPU reads and writes ---- */

unsigned char *rpi_device_slot_bytes(const rpi_chunk *chunk, int slot) {
    int index = slot - RPI_SLOT_ENCODED;
    const rpi_pinned *copy = chunk->device->ragged[index];
    return copy ? copy->data : chunk->device->encoded_slots[index]->data;
}

rpi_encoded_slot rpi_device_pinned_slot(const rpi_encoded_slot *encoded_slot,
                                        const rpi_pinned *pinned, size_t bytes) {
    return (rpi_encoded_slot){.state = RPI_ENCODED_PINNED,
                              .readers = encoded_slot->readers,
                              .data = pinned->data,
                              .bytes = bytes,
                              .edge_weight = encoded_slot->edge_weight};
}

rp_status rpi_device_pin_slot(rpi_chunk *chunk, const rpi_instruction *instruction, int slot) {
    int index = slot - RPI_SLOT_ENCODED;
    rpi_encoded_slot *encoded_slot = &chunk->encoded_slots[index];
    rpi_pinned *pinned = NULL;
    if (encoded_slot->state == RPI_ENCODED_PINNED) return RP_OK;
    RP_TRY(rpi_pinned_take(chunk->request->device->device, encoded_slot->bytes, &pinned));
    memcpy(pinned->data, encoded_slot->data, encoded_slot->bytes);
    if (!rpi_in_place_is_valid(chunk, instruction)) {
        rpi_pinned_give(chunk->request->device->device, pinned);
        return RP_PENDING;
    }
    rpi_encoded_slot there = rpi_device_pinned_slot(encoded_slot, pinned, encoded_slot->bytes);
    rpi_encoded_slot_empty(chunk, index);
    *encoded_slot = there;
    chunk->device->encoded_slots[index] = pinned;
    return RP_OK;
}

/* A piece of the part would begin at an address that kernels cannot use well. */
static bool is_ragged(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    rpi_device_call call;
    rpi_slice slice;
    size_t at = 0;
    for (rpi_walk walk = rpi_chunk_walk(chunk, instruction->part, instruction->level);
         rpi_walk_next(&walk, &slice); at += slice.bytes) {
        rp_encode_context context = rpi_slice_context(chunk->request, &slice);
        bool copies = false;
        if (rpi_device_knows_slice(&slice, &context, &call, &copies) && !copies &&
            at % rpi_device_alignment(&call))
            return true;
    }
    return false;
}

/* If the GPU has no memory for a copy, kernels use the slot itself. */
rp_status rpi_device_begin_slot(rpi_chunk *chunk, const rpi_instruction *instruction, int slot,
                                int lane, unsigned char **out_bytes) {
    int index = slot - RPI_SLOT_ENCODED;
    rpi_transfer *transfer = chunk->request->device;
    rpi_pinned **copy = &chunk->device->ragged[index];
    size_t bytes = chunk->encoded_slots[index].bytes;
    *out_bytes = chunk->device->encoded_slots[index]->data;
    if (!is_ragged(chunk, instruction)) return RP_OK;
    rp_status status = *copy ? RP_OK : rpi_accumulator_take(transfer->device, bytes, copy);
    if (status == RP_NOMEM) return RP_OK;
    RP_TRY(status);
    if (instruction->kind != RPI_STEP_ENCODE)
        RP_TRY(rpi_lane_copy(transfer, lane, (*copy)->data, *out_bytes, bytes));
    *out_bytes = (*copy)->data;
    return RP_OK;
}

rp_status rpi_device_end_slot(rpi_chunk *chunk, int slot, int lane, size_t bytes) {
    int index = slot - RPI_SLOT_ENCODED;
    const rpi_pinned *copy = chunk->device->ragged[index];
    if (!copy) return RP_OK;
    return rpi_lane_copy(chunk->request->device, lane,
                         chunk->device->encoded_slots[index]->data, copy->data, bytes);
}
