/* Sends whose payload stays where it is, in a buffer of the caller's (redpoll/buffer.h).
 *
 *      a SEND of exact bytes that lie in one stretch in a buffer that its receiver sees
 *        | its frame is posted: a header, and a place
 *        v
 *      in use: not finished, so that no step writes there,      at the receiver: as any frame;
 *        |    and the request is not complete                   read where it lies, or copied
 *        |                                                      queued, then released
 *        |-- released by its receiver ----> finished
 *        |
 *        '-- the operation fails here ----> revoked: the caller owns the memory again. A
 *                                           receiver that has read it since leaves the step
 *                                           undone; the failure is on its way to it.
 *
 * In an all-reduce of two, a part that is sent comes back as the sum of that part. Its owner
 * writes the sum there, too, in the iteration that makes it (RPI_ENCODED_PUT), releases the
 * frame, and sends one that only says so (RPI_ENCODED_WRITTEN). Who revokes a part into which
 * its owner is writing just then takes the pages away from under it (rpi_buffers_detach()).
 *
 * Frames that follow to the same peer do not wait for that (rpi_chunk_let_sends_follow). What
 * is summed here, over what would be read in place, is copied, since two ranks that do so would
 * wait for each other. Where a rank holds a frame and waits for its own to be completed all
 * the same, rpi_receive_unblock() queues a copy of it. */
#include "comm/run/in_place.h"
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/run/chunk_steps.h"

#include "base/log.h"
#include "base/status.h"
#include "net/memory/buffers.h"
#include "net/world/mesh.h"

#include <string.h>

/* Copying a shorter payload is faster than completing such a frame. */
enum { IN_PLACE_LEAST = 16 * 1024 };

/* The slot of values that is a SEND's payload, or from which it is encoded; NO_SLOT: none. */
static int source_of(const rpi_chunk *chunk, const rpi_instruction *send) {
    if (send->encodes) return send->from;
    if (send->from < RPI_SLOT_ENCODED) return RPI_NO_SLOT;
    int encoded_slot = send->from - RPI_SLOT_ENCODED;
    return chunk->encoded_slots[encoded_slot].state == RPI_ENCODED_VALUES
               ? chunk->request->compiled->encoded_slots[encoded_slot].source
               : RPI_NO_SLOT;
}

/* Exact values in contiguous memory; NULL: they are not. */
static const unsigned char *one_slice(const rpi_chunk *chunk, const rpi_instruction *send,
                                      int slot) {
    const unsigned char *first = NULL, *end = NULL;
    rpi_slice slice;
    for (rpi_walk walk = rpi_partition_walk(&chunk->request->partition, chunk->index,
                                            send->part, send->level);
         rpi_walk_next(&walk, &slice);) {
        const rpi_extent *extent = slice.extent;
        const unsigned char *at = slot == RPI_SLOT_IN ? extent->in : extent->out;
        if (!at || slice.residual || !rp_codec_is_exact(slice.codec, extent->dtype))
            return NULL;
        at += slice.offset * rp_dtype_bytes(extent->dtype);
        if (first && at != end) return NULL;
        if (!first) first = at;
        end = at + slice.bytes;
    }
    return first;
}

static rpi_link *link_of(const rpi_chunk *chunk, const rpi_instruction *send) {
    const rp_request *request = chunk->request;
    return rpi_peer_link(&request->comm->peers[rpi_request_rank(request, send->peer)]);
}

/* This rank will write the sum of the part over the payload, for which it would have to wait
 * until the receiver has read that; the receiver would wait in the same way (oneshot of two
 * ranks). Copying is faster. */
static bool is_summed_here(const rpi_chunk *chunk, const rpi_instruction *send) {
    const rpi_compiled_schedule *compiled = chunk->request->compiled;
    for (int i = 0; i < compiled->schedule.count; i++) {
        const rpi_instruction *instruction = &compiled->instruction[i];
        bool sums_two = !instruction->fused && instruction->first != RPI_NO_SLOT;
        bool waits = !(chunk->finished[i / 64] >> (i % 64) & 1);
        if (sums_two && waits && instruction->part == send->part &&
            instruction->into == RPI_SLOT_OUT)
            return true;
    }
    return false;
}

const void *rpi_in_place_payload(const rpi_chunk *chunk, const rpi_instruction *send,
                                 size_t bytes) {
    rpi_link *link = link_of(chunk, send);
    const rpi_zero_copy *zero_copy = link ? link->endpoint->transport->zero_copy : NULL;
    int slot = source_of(chunk, send);
    if (!zero_copy || bytes < IN_PLACE_LEAST) return NULL;
    if (slot != RPI_SLOT_IN && slot != RPI_SLOT_OUT) return NULL;
    if (chunk->request->kind->ahead_bytes) return NULL; /* has a weight */
    if (is_summed_here(chunk, send)) return NULL;
    const unsigned char *payload = one_slice(chunk, send, slot);
    return payload && zero_copy->reaches(link, payload, bytes) ? payload : NULL;
}

/* ---- answers that are written where the question lay ---- */

/* The RECV of the answer to this SEND: its frame does nothing but overwrite the values that
 * were sent, and comes from the rank that received them. That is so in worlds of two, where the
 * sum of a part returns from the rank to which the part was sent. NULL: there is none. */
static const rpi_instruction *answer_of(const rpi_chunk *chunk, const rpi_instruction *send) {
    const rpi_compiled_schedule *compiled = chunk->request->compiled;
    const rpi_instruction *recv = NULL;
    int decodes = 0;
    if (chunk->request->collective != RPI_ALL_REDUCE || compiled->schedule.world != 2)
        return NULL;
    for (int i = 0; i < compiled->schedule.count; i++) {
        const rpi_instruction *instruction = &compiled->instruction[i];
        if (instruction->fused || instruction->part != send->part || instruction == send)
            continue;
        if (instruction->kind == RPI_STEP_RECV && !recv)
            recv = instruction;
        else if (instruction->kind == RPI_STEP_DECODE && recv &&
                 instruction->from == recv->into && instruction->into == RPI_SLOT_OUT &&
                 !decodes)
            decodes++;
        else
            return NULL;
    }
    return decodes ? recv : NULL;
}

static bool is_in_place(const rpi_chunk *chunk, const rpi_instruction *send) {
    rpi_slice slice;
    for (rpi_walk walk = rpi_partition_walk(&chunk->request->partition, chunk->index,
                                            send->part, send->level);
         rpi_walk_next(&walk, &slice);)
        if (slice.extent->in != slice.extent->out) return false;
    return true;
}

static bool is_writable(const rpi_chunk *chunk, const rpi_instruction *send) {
    return answer_of(chunk, send) && is_in_place(chunk, send);
}

/* Whether its payload lies in a buffer that peers may have mapped. Whether this peer lives and
 * can read it is another check. */
static bool is_buffers(const rpi_chunk *chunk, const rpi_instruction *send) {
    const unsigned char *payload = one_slice(chunk, send, source_of(chunk, send));
    rpi_buffer_place place;
    return payload &&
           rpi_buffers_find(payload, rpi_instruction_bytes(chunk->request, chunk->index, send),
                            &place);
}

/* The SEND that it answers has completed, and its memory is still in the buffer. */
bool rpi_in_place_may_be_written(const rpi_chunk *chunk, const rpi_instruction *recv) {
    const rpi_compiled_schedule *compiled = chunk->request->compiled;
    for (int i = 0; i < compiled->schedule.count; i++) {
        const rpi_instruction *send = &compiled->instruction[i];
        if (send->fused || send->kind != RPI_STEP_SEND || send->part != recv->part) continue;
        bool gave = chunk->writable[i / 64] >> (i % 64) & 1;
        bool out = rpi_in_place_is_in_use(chunk, i) && !rpi_in_place_is_completed(chunk, i);
        return gave && !out && answer_of(chunk, send) == recv && is_buffers(chunk, send);
    }
    return false;
}

static rpi_link *link_of_frame(const rpi_chunk *chunk, int slot) {
    if (slot < RPI_SLOT_ENCODED || slot == RPI_NO_SLOT) return NULL;
    const rpi_encoded_slot *encoded_slot = &chunk->encoded_slots[slot - RPI_SLOT_ENCODED];
    if (encoded_slot->state != RPI_ENCODED_FRAME) return NULL;
    return rpi_peer_link(&chunk->request->comm->peers[encoded_slot->peer]);
}

void *rpi_in_place_begin_write(const rpi_chunk *chunk, const rpi_instruction *fold,
                               const rpi_instruction *send) {
    rpi_link *link = link_of_frame(chunk, fold->from);
    if (!link) link = link_of_frame(chunk, fold->first);
    if (!link || link != link_of(chunk, send)) return NULL;
    const rpi_zero_copy *zero_copy = link->endpoint->transport->zero_copy;
    return zero_copy ? zero_copy->begin_write(link) : NULL;
}

void rpi_in_place_end_write(const rpi_chunk *chunk, const rpi_instruction *send) {
    rpi_link *link = link_of(chunk, send);
    link->endpoint->transport->zero_copy->end_write(link);
}

/* ---- what a peer reads in place ---- */

rp_status rpi_in_place_commit(rpi_chunk *chunk, const rpi_instruction *send,
                              const void *payload, size_t bytes) {
    int index = (int)(send - chunk->request->compiled->instruction);
    rpi_link *link = link_of(chunk, send);
    bool writable = is_writable(chunk, send);
    RP_TRY(link->endpoint->transport->zero_copy->commit(link, payload, bytes, writable,
                                                        &chunk->frame_number[index]));
    chunk->in_use[index / 64] |= UINT64_C(1) << index % 64;
    if (writable) chunk->writable[index / 64] |= UINT64_C(1) << index % 64;
    chunk->request->comm->in_place_frames++;
    rpi_chunk_let_sends_follow(chunk, index);
    return RP_OK;
}

bool rpi_in_place_any_in_use(const rpi_chunk *chunk) {
    for (int word = 0; word < chunk->request->compiled->words; word++)
        if (chunk->in_use[word]) return true;
    return false;
}

bool rpi_in_place_is_completed(const rpi_chunk *chunk, int index) {
    rpi_link *link = link_of(chunk, &chunk->request->compiled->instruction[index]);
    return link->endpoint->transport->zero_copy->is_completed(link, chunk->frame_number[index]);
}

/* A peer that writes there may be stopped, and continue later: nobody waits for it. */
static void take_away(const rpi_chunk *chunk, const rpi_instruction *send) {
    size_t bytes = rpi_instruction_bytes(chunk->request, chunk->index, send);
    const unsigned char *payload = one_slice(chunk, send, source_of(chunk, send));
    if (payload && rpi_buffers_detach((void *)(uintptr_t)payload, bytes) != RP_OK)
        rpi_log(RP_LOG_WARNING, "a rank may still write into the buffer at %p: %s",
                (const void *)payload, rp_last_error()->message);
}

void rpi_in_place_revoke(rpi_chunk *chunk) {
    const rpi_compiled_schedule *compiled = chunk->request->compiled;
    for (int word = 0; word < compiled->words; word++)
        for (uint64_t left = chunk->in_use[word]; left; left &= left - 1) {
            int index = 64 * word + __builtin_ctzll(left);
            rpi_link *link = link_of(chunk, &compiled->instruction[index]);
            if (!link->endpoint->transport->zero_copy->revoke(link, chunk->frame_number[index]))
                take_away(chunk, &compiled->instruction[index]);
        }
    memset(chunk->in_use, 0, (size_t)compiled->words * sizeof *chunk->in_use);
}

static bool slot_is_valid(const rpi_chunk *chunk, int slot) {
    if (slot < RPI_SLOT_ENCODED || slot == RPI_NO_SLOT) return true;
    const rpi_encoded_slot *encoded_slot = &chunk->encoded_slots[slot - RPI_SLOT_ENCODED];
    if (encoded_slot->state != RPI_ENCODED_FRAME) return true;
    rpi_link *link = rpi_peer_link(&chunk->request->comm->peers[encoded_slot->peer]);
    const rpi_zero_copy *zero_copy = link->endpoint->transport->zero_copy;
    return !zero_copy || zero_copy->is_valid(link);
}

bool rpi_in_place_is_valid(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    return slot_is_valid(chunk, instruction->from) && slot_is_valid(chunk, instruction->first);
}

bool rpi_comm_reads_in_place(const rp_comm *comm) {
    const rpi_mesh *mesh = comm ? comm->context->mesh : NULL;
    for (int rank = 0; mesh && rank < comm->world; rank++) {
        if (rank == comm->rank) continue;
        int kind = mesh->kind_of[comm->members[rank]];
        if (mesh->endpoints[kind]->transport->zero_copy) return true;
    }
    return false;
}
