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

/* Floats, some of which are encoded: if all are exact they may be sent unencoded. */
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

/* If the GPU has no memory for it, the host adds. */
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
    return rpi_lane_copy(transfer, RPI_LANE_FROM, to, from, slice->count * sizeof(float));
}

static rp_status call_of(const rpi_chunk *chunk, const rpi_slice *slice,
                         rpi_device_call *out_call) {
    rp_encode_context context = rpi_slice_context(chunk->request, slice);
    return rpi_device_call_of(slice->codec, RP_F32, slice->count, &context, out_call);
}

/* Kernels that decode a part can also begin and end its sums. */
static bool begin_sums(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    rpi_device_call call;
    rpi_slice slice;
    for (rpi_walk walk = rpi_chunk_walk(chunk, instruction->part, instruction->level);
         rpi_walk_next(&walk, &slice);)
        if (call_of(chunk, &slice, &call) != RP_OK || !rpi_device_begins_sums(&call))
            return false;
    return true;
}

/* The part of sums in one launch: several instructions that follow each other. */
typedef struct addition {
    const rpi_instruction *instruction;
    const rpi_instruction *own_behind; /* an ADD of this rank's values; NULL: none */
    const rpi_instruction *mean;       /* and a mean behind it */
    bool begins_with_own, adds;
    unsigned char *in; /* an encoding; NULL: there is none */
} addition;

/* own: values that are not in the sum yet; NULL: there are none. */
static rp_status decode_slice(rpi_chunk *chunk, const rpi_slice *slice, const addition *a,
                              const void *own, void *sum) {
    rpi_transfer *transfer = chunk->request->device;
    rpi_device_call call;
    RP_TRY(call_of(chunk, slice, &call));
    call.encoded = a->in;
    call.y = sum;
    if (a->mean) call.factor = 1.0f / (float)a->mean->weight.over;
    if (own && rpi_device_begins_sums(&call)) {
        call.x = own;
        call.behind = a->own_behind != NULL;
    } else if (own) {
        RP_TRY(copy_slice(transfer, sum, own, slice));
    }
    bool adds = a->adds || a->own_behind;
    return rpi_lane_put(transfer, RPI_LANE_FROM, adds ? RPI_LANE_ADD : RPI_LANE_DECODE, &call);
}

/* Values of this rank, in the form of an exact encoding. */
static rp_status add_own(rpi_chunk *chunk, const rpi_slice *slice, const addition *a, void *own,
                         void *sum) {
    static const rp_codec exact = {0};
    rpi_slice of_own = *slice;
    addition it = *a;
    of_own.codec = &exact;
    it.in = own;
    return decode_slice(chunk, &of_own, &it, NULL, sum);
}

/* ADD: the own values first if the sum begins, as on the host. */
static rp_status put_slice(rpi_chunk *chunk, const rpi_slice *slice, const addition *a) {
    const rpi_instruction *instruction = a->instruction;
    rpi_transfer *transfer = chunk->request->device;
    void *sum = rpi_device_sum_place(chunk, instruction->part, slice);
    void *own = rpi_device_place(chunk, RPI_STAGED_IN, slice);
    if (instruction->into == RPI_SLOT_OUT)
        return copy_slice(transfer, rpi_device_place(chunk, RPI_STAGED_OUT, slice), sum, slice);
    if (instruction->from == RPI_SLOT_SUM) return RP_OK; /* weighed */
    if (a->adds && instruction->first == RPI_NO_SLOT && !a->in)
        return add_own(chunk, slice, a, own, sum);
    bool takes_own = instruction->from == RPI_SLOT_IN || instruction->first == RPI_SLOT_IN ||
                     a->begins_with_own || a->own_behind;
    if (a->in) return decode_slice(chunk, slice, a, takes_own ? own : NULL, sum);
    return takes_own ? copy_slice(transfer, sum, own, slice) : RP_OK;
}

static rp_status put_weight(rpi_chunk *chunk, const rpi_instruction *instruction) {
    rpi_transfer *transfer = chunk->request->device;
    if (!rpi_is_weight(instruction->weight) || instruction->weight.over == 1) return RP_OK;
    size_t bytes =
        rpi_partition_sum_bytes(&chunk->request->partition, chunk->index, instruction->part);
    rpi_device_call call = {.y = chunk->device->sums[instruction->part]->data,
                            .count = bytes / sizeof(float),
                            .divisor = instruction->weight.over};
    return rpi_lane_divide(transfer, RPI_LANE_FROM, &call);
}

static rp_status put(rpi_chunk *chunk, addition a) {
    rpi_slice slice;
    for (rpi_walk walk = rpi_chunk_walk(chunk, a.instruction->part, a.instruction->level);
         rpi_walk_next(&walk, &slice);) {
        RP_TRY(put_slice(chunk, &slice, &a));
        if (a.in) a.in += slice.bytes;
    }
    return put_weight(chunk, a.instruction);
}

/* ---- instructions that one launch does together ---- */

typedef bool is_what(const rpi_chunk *chunk, const rpi_instruction *instruction);

/* An instruction on the same sum that follows this one, and waits for no other; any: it may
 * wait for others, too. NULL: there is none. */
static const rpi_instruction *
find_behind(const rpi_chunk *chunk, const rpi_instruction *instruction, is_what *is, bool any) {
    const rpi_compiled_schedule *compiled = chunk->request->compiled;
    for (int k = 0; k < instruction->nexts; k++) {
        int index = compiled->next[instruction->first_next + k];
        const rpi_instruction *next = &compiled->instruction[index];
        bool here = next->part == instruction->part && next->into == RPI_SLOT_SUM;
        if (here && !next->fused && (any || chunk->waits[index] == 1) && is(chunk, next))
            return next;
    }
    return NULL;
}

/* Dividing by a power of two gives the same bits as multiplying by its inverse. */
static bool is_exact_mean(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    (void)chunk;
    return instruction->kind == RPI_STEP_COPY && instruction->from == RPI_SLOT_SUM &&
           divides(instruction) &&
           (instruction->weight.over & (instruction->weight.over - 1)) == 0;
}

static bool adds_own(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    (void)chunk;
    return instruction->kind == RPI_STEP_ADD && instruction->from == RPI_SLOT_IN &&
           instruction->first == RPI_NO_SLOT;
}

static bool adds_encoding(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    return instruction->kind == RPI_STEP_ADD && instruction->from >= RPI_SLOT_ENCODED &&
           instruction->first == RPI_NO_SLOT && begin_sums(chunk, instruction);
}

/* A sum that begins with the own values is begun by the first addition: they need no copy,
 * because nobody writes to them before the sum is sent, which is later. */
static bool leave_to_addition(rpi_chunk *chunk, const rpi_instruction *instruction) {
    if (instruction->kind != RPI_STEP_COPY || instruction->from != RPI_SLOT_IN ||
        instruction->into != RPI_SLOT_SUM || rpi_is_weight(instruction->weight))
        return false;
    const rpi_instruction *add = find_behind(chunk, instruction, adds_encoding, true);
    if (!add) return false;
    rpi_device_step_of(chunk, add)->begins = true;
    rpi_device_step_of(chunk, instruction)->begun = true;
    return true;
}

static addition addition_of(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    addition a = {.instruction = instruction, .adds = instruction->kind == RPI_STEP_ADD};
    bool decodes = instruction->kind == RPI_STEP_DECODE;
    a.begins_with_own = rpi_device_step_of(chunk, instruction)->begins;
    if (encoded_of(instruction) != RPI_NO_SLOT && !begin_sums(chunk, instruction)) return a;
    if (decodes) a.own_behind = find_behind(chunk, instruction, adds_own, false);
    const rpi_instruction *last = a.own_behind ? a.own_behind : instruction;
    if (last->kind == RPI_STEP_ADD) a.mean = find_behind(chunk, last, is_exact_mean, false);
    return a;
}

rp_status rpi_device_sums_begin(rpi_chunk *chunk, const rpi_instruction *instruction) {
    int slot = encoded_of(instruction);
    if (leave_to_addition(chunk, instruction)) return RP_OK;
    addition a = addition_of(chunk, instruction);
    RP_TRY(rpi_transfer_open(chunk->request->device));
    if (slot != RPI_NO_SLOT) {
        RP_TRY(rpi_device_pin_slot(chunk, instruction, slot));
        RP_TRY(rpi_device_begin_slot(chunk, instruction, slot, RPI_LANE_FROM, &a.in));
    }
    RP_TRY(put(chunk, a));
    if (a.own_behind) rpi_device_step_of(chunk, a.own_behind)->begun = true;
    if (a.mean) rpi_device_step_of(chunk, a.mean)->begun = true;
    if (slot != RPI_NO_SLOT || instruction->into != RPI_SLOT_SUM)
        return rpi_device_begun(chunk, instruction, RPI_LANE_FROM);
    /* Nothing is freed, and all that reads the sum comes after it in the lane, so no mark is
     * needed. */
    rpi_device_step_of(chunk, instruction)->begun = true;
    return RP_OK;
}
