#include "comm/run/device_sums.h"

#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/run/device_steps.h"

#include "base/status.h"

/* ---- which parts ---- */

bool rpi_device_adds(const rpi_chunk *chunk, int part) {
    return chunk->device->sums[part] != NULL;
}

static bool touches_sum(const rpi_instruction *instruction) {
    return instruction->from == RPI_SLOT_SUM || instruction->into == RPI_SLOT_SUM;
}

/* A mean, of so many. */
static bool divides(const rpi_instruction *instruction) {
    return instruction->weight.times == 1 && instruction->weight.over > 0;
}

/* Floats, some of which are encoded: all exact ones may travel without being encoded. */
static bool has_kernels(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    bool is_lossy = false;
    rpi_slice slice;
    for (rpi_walk walk = rpi_chunk_walk(chunk, instruction->part, instruction->level);
         rpi_walk_next(&walk, &slice);) {
        if (slice.extent->dtype != RP_F32) return false;
        is_lossy |= !rp_codec_is_exact(slice.codec, RP_F32);
    }
    return is_lossy && rpi_device_knows_part(chunk, instruction);
}

static bool can_do(const rpi_instruction *instruction) {
    bool weighs = rpi_is_weight(instruction->weight), into = instruction->into == RPI_SLOT_SUM;
    bool encoded = instruction->from >= RPI_SLOT_ENCODED;
    switch (instruction->kind) {
    case RPI_STEP_ENCODE: return true;
    case RPI_STEP_DECODE: return into && encoded && !weighs;
    case RPI_STEP_ADD: return into && instruction->from != RPI_SLOT_SUM && !weighs;
    case RPI_STEP_COPY:
        if (!into) return instruction->into == RPI_SLOT_OUT && !weighs;
        return !encoded && (!weighs || divides(instruction));
    default: return false;
    }
}

static bool can_add(const rpi_chunk *chunk, int part) {
    const rpi_compiled_schedule *compiled = chunk->request->compiled;
    if (chunk->request->kind->among_neighbors) return false;
    if (compiled->sum_of_part[part] < 0 || rpi_device_changes(chunk, part)) return false;
    for (int i = 0; i < compiled->schedule.count; i++) {
        const rpi_instruction *instruction = &compiled->instruction[i];
        if (instruction->fused || instruction->part != part) continue;
        bool encodes = instruction->kind == RPI_STEP_ENCODE;
        if (!encodes && !touches_sum(instruction)) continue;
        if (!can_do(instruction) || !has_kernels(chunk, instruction)) return false;
    }
    return true;
}

/* Where the GPU has no memory for it, the host adds. */
rp_status rpi_device_sums_open(rpi_chunk *chunk) {
    rpi_transfer *transfer = chunk->request->device;
    for (int part = 0; part < chunk->request->compiled->schedule.parts; part++) {
        size_t bytes = rpi_partition_sum_bytes(&chunk->request->partition, chunk->index, part);
        if (!bytes || !can_add(chunk, part)) continue;
        RP_TRY(rpi_transfer_open(transfer));
        rp_status status =
            rpi_accumulator_take(transfer->device, bytes, &chunk->device->sums[part]);
        if (status != RP_OK && status != RP_NOMEM) return status;
    }
    return RP_OK;
}

/* ---- what they do ---- */

void *rpi_device_sum_place(const rpi_chunk *chunk, int part, const rpi_slice *slice) {
    return chunk->device->sums[part]->data + slice->sum_offset;
}

bool rpi_device_sums_take(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    return touches_sum(instruction) && instruction->kind != RPI_STEP_ENCODE &&
           rpi_device_adds(chunk, instruction->part);
}

/* The encoded slot that is added, or begins the sum. */
static int encoded_of(const rpi_instruction *instruction) {
    if (instruction->from >= RPI_SLOT_ENCODED) return instruction->from;
    return instruction->first >= RPI_SLOT_ENCODED ? instruction->first : RPI_NO_SLOT;
}

static rp_status copy_slice(rpi_transfer *transfer, void *to, const void *from,
                            const rpi_slice *slice) {
    return rpi_transfer_copy(transfer, RPI_LANE_FROM, to, from, slice->count * sizeof(float));
}

static rp_status decode_slice(rpi_chunk *chunk, const rpi_slice *slice, bool adds, void *in,
                              void *sum) {
    rpi_transfer *transfer = chunk->request->device;
    const rpi_cuda_library *cuda = transfer->device->cuda;
    rp_encode_context context = rpi_slice_context(chunk->request, slice);
    rpi_device_call call;
    RP_TRY(rpi_device_call_of(slice->codec, RP_F32, slice->count, &context, &call));
    call.encoded = in;
    call.y = sum;
    void *lane = rpi_lane_stream(transfer, RPI_LANE_FROM);
    return rpi_cuda_check(cuda, cuda->decode(&call, adds, lane), "adding");
}

/* Values of this rank, which lie as an exact encoding does. */
static rp_status add_own(rpi_chunk *chunk, const rpi_slice *slice, void *sum) {
    static const rp_codec exact = {0};
    rpi_slice own = *slice;
    own.codec = &exact;
    return decode_slice(chunk, &own, true, rpi_device_place(chunk, RPI_STAGED_IN, slice), sum);
}

/* ADD: the own values first where the sum begins, as the host has it. */
static rp_status put_slice(rpi_chunk *chunk, const rpi_instruction *instruction,
                           const rpi_slice *slice, unsigned char *in) {
    rpi_transfer *transfer = chunk->request->device;
    void *sum = rpi_device_sum_place(chunk, instruction->part, slice);
    void *own = rpi_device_place(chunk, RPI_STAGED_IN, slice);
    bool adds = instruction->kind == RPI_STEP_ADD;
    if (instruction->into == RPI_SLOT_OUT)
        return copy_slice(transfer, rpi_device_place(chunk, RPI_STAGED_OUT, slice), sum, slice);
    if (instruction->from == RPI_SLOT_SUM) return RP_OK; /* weighed */
    if (adds && instruction->first == RPI_NO_SLOT && !in) return add_own(chunk, slice, sum);
    if (instruction->from == RPI_SLOT_IN || instruction->first == RPI_SLOT_IN)
        RP_TRY(copy_slice(transfer, sum, own, slice));
    return in ? decode_slice(chunk, slice, adds, in, sum) : RP_OK;
}

static rp_status put_weight(rpi_chunk *chunk, const rpi_instruction *instruction) {
    rpi_transfer *transfer = chunk->request->device;
    const rpi_cuda_library *cuda = transfer->device->cuda;
    if (!rpi_is_weight(instruction->weight) || instruction->weight.over == 1) return RP_OK;
    size_t bytes =
        rpi_partition_sum_bytes(&chunk->request->partition, chunk->index, instruction->part);
    rpi_device_call call = {.y = chunk->device->sums[instruction->part]->data,
                            .count = bytes / sizeof(float),
                            .divisor = instruction->weight.over};
    return rpi_cuda_check(cuda, cuda->divide(&call, rpi_lane_stream(transfer, RPI_LANE_FROM)),
                          "a mean");
}

static rp_status put(rpi_chunk *chunk, const rpi_instruction *instruction, unsigned char *in) {
    rpi_slice slice;
    for (rpi_walk walk = rpi_chunk_walk(chunk, instruction->part, instruction->level);
         rpi_walk_next(&walk, &slice);) {
        RP_TRY(put_slice(chunk, instruction, &slice, in));
        if (in) in += slice.bytes;
    }
    return put_weight(chunk, instruction);
}

rp_status rpi_device_sums_begin(rpi_chunk *chunk, const rpi_instruction *instruction) {
    int slot = encoded_of(instruction);
    unsigned char *in = NULL;
    RP_TRY(rpi_transfer_open(chunk->request->device));
    if (slot != RPI_NO_SLOT) {
        RP_TRY(rpi_device_pin_slot(chunk, instruction, slot));
        RP_TRY(rpi_device_begin_slot(chunk, instruction, slot, RPI_LANE_FROM, &in));
    }
    RP_TRY(rpi_device_put(chunk, instruction, put, in));
    if (slot != RPI_NO_SLOT || instruction->into != RPI_SLOT_SUM)
        return rpi_device_begun(chunk, instruction, RPI_LANE_FROM);
    /* Nothing is given back, and whatever reads the sum is put behind it: no mark is needed. */
    chunk->device->steps[instruction - chunk->request->compiled->instruction].begun = true;
    return RP_OK;
}
