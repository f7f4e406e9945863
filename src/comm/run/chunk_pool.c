/* Chunks: taken from the pool of their schedule, started, and returned. */
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/frame_buffers.h"
#include "comm/device/device.h"
#include "comm/parts/parts.h"
#include "comm/run/executor.h"
#include "comm/run/in_place.h"
#include "comm/run/receive.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

static rp_status new_chunk(const rpi_compiled_schedule *compiled, rpi_chunk **out_chunk) {
    const rpi_schedule *schedule = &compiled->schedule;
    size_t words = (size_t)compiled->words * sizeof(uint64_t);
    size_t encoded_slots =
        rpi_align_up((size_t)schedule->encoded_slots * sizeof(rpi_encoded_slot));
    size_t received = rpi_align_up((size_t)schedule->world * sizeof(int32_t));
    size_t unexpected = rpi_align_up((size_t)schedule->world * sizeof(rpi_frame_list));
    size_t head = rpi_align_up(sizeof(rpi_chunk));
    unsigned char *memory = NULL;
    RP_TRY(rpi_alloc(head + encoded_slots + received + unexpected + 4 * words +
                         (size_t)schedule->count * (sizeof(uint32_t) + sizeof(uint16_t)),
                     "the state of a chunk", &memory));
    rpi_chunk *chunk = (rpi_chunk *)(void *)memory;
    chunk->encoded_slots = (rpi_encoded_slot *)(void *)(memory + head);
    chunk->received = (int32_t *)(void *)(memory + head + encoded_slots);
    chunk->unexpected = (rpi_frame_list *)(void *)(memory + head + encoded_slots + received);
    chunk->ready = (uint64_t *)(void *)(memory + head + encoded_slots + received + unexpected);
    chunk->finished = chunk->ready + compiled->words;
    chunk->in_use = chunk->finished + compiled->words;
    chunk->writable = chunk->in_use + compiled->words;
    chunk->frame_number = (uint32_t *)(void *)(chunk->writable + compiled->words);
    chunk->waits = (uint16_t *)(void *)(chunk->frame_number + schedule->count);
    *out_chunk = chunk;
    return RP_OK;
}

/* Bytes of an accumulator of the next chunk: of its longest part. */
static size_t sum_stride(const rp_request *request) {
    const rpi_compiled_schedule *compiled = request->compiled;
    size_t most = 0;
    for (int part = 0; compiled->sums && part < compiled->schedule.parts; part++) {
        if (compiled->sum_of_part[part] < 0) continue;
        size_t bytes = rpi_partition_sum_bytes(&request->partition, request->next_chunk, part);
        if (bytes > most) most = bytes;
    }
    return most;
}

static rp_status give_back(rpi_chunk *chunk, rpi_compiled_schedule *compiled,
                           rp_status status) {
    chunk->next = compiled->idle;
    compiled->idle = chunk;
    return status;
}

static rp_status take_chunk(rp_request *request, rpi_chunk **out_chunk) {
    rpi_compiled_schedule *compiled = request->compiled;
    rpi_chunk *chunk = compiled->idle;
    if (!chunk)
        RP_TRY(new_chunk(compiled, &chunk));
    else
        compiled->idle = chunk->next;
    *out_chunk = chunk;
    chunk->sum_stride = sum_stride(request);
    size_t sums = (size_t)compiled->sums * chunk->sum_stride;
    if (sums > chunk->sums_room) {
        chunk->sums_room = 0;
        rp_status status = rpi_grow_array(0, sums, 1, "accumulators", &chunk->sums);
        if (status != RP_OK) return give_back(chunk, compiled, status);
        chunk->sums_room = sums;
    }
    if (request->device && !chunk->of_device) {
        rp_status status = rpi_device_chunk_new(compiled, &chunk->of_device);
        if (status != RP_OK) return give_back(chunk, compiled, status);
    }
    return RP_OK;
}

static void reset_chunk(rpi_chunk *chunk, rp_request *request) {
    const rpi_compiled_schedule *compiled = request->compiled;
    chunk->next = NULL;
    chunk->request = request;
    chunk->index = request->next_chunk++;
    chunk->left = compiled->instructions;
    chunk->device = request->device ? chunk->of_device : NULL;
    memset(chunk->ready, 0, (size_t)compiled->words * sizeof *chunk->ready);
    memset(chunk->finished, 0, (size_t)compiled->words * sizeof *chunk->finished);
    memset(chunk->writable, 0, (size_t)compiled->words * sizeof *chunk->writable);
    memset(chunk->received, 0, (size_t)compiled->schedule.world * sizeof *chunk->received);
    for (int w = 0; w < compiled->schedule.encoded_slots; w++)
        chunk->encoded_slots[w] = (rpi_encoded_slot){
            .state = compiled->encoded_slots[w].stays ? RPI_ENCODED_VALUES : RPI_ENCODED_EMPTY,
            .readers = compiled->encoded_slots[w].readers,
            .edge_weight = 1};
    for (int i = 0; i < compiled->schedule.count; i++) {
        chunk->waits[i] = compiled->instruction[i].waits;
        if (!chunk->waits[i] && !compiled->instruction[i].fused)
            chunk->ready[i / 64] |= UINT64_C(1) << i % 64;
    }
}

rp_status rpi_chunk_start(rp_request *request) {
    rpi_chunk *chunk = NULL;
    RP_TRY(take_chunk(request, &chunk));
    reset_chunk(chunk, request);
    rpi_chunk **end = &request->chunks;
    while (*end) end = &(*end)->next;
    *end = chunk;
    rpi_receive_claim(chunk);
    return chunk->device ? rpi_device_chunk_begin(chunk) : RP_OK;
}

void rpi_chunk_release(rpi_chunk *chunk) {
    rpi_compiled_schedule *compiled = chunk->request->compiled;
    rpi_in_place_revoke(chunk);
    for (int w = 0; w < compiled->schedule.encoded_slots; w++) rpi_encoded_slot_empty(chunk, w);
    if (chunk->device) rpi_device_chunk_release(chunk);
    for (int peer = 0; peer < compiled->schedule.world; peer++)
        rpi_frames_clear(chunk->request->comm->context, &chunk->unexpected[peer]);
    chunk->next = compiled->idle;
    compiled->idle = chunk;
}
