#include "comm/run/frame_place.h"
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/unexpected.h"
#include "comm/run/chunk_steps.h"
#include "comm/run/in_place.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

static rpi_chunk *find_chunk(const rp_request *request, uint32_t index) {
    for (rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next)
        if (chunk->index == index) return chunk;
    return NULL;
}

/* Only eager frames within the credit may come before their chunk has started; and RTRs of a
 * send that is posted here. */
static rp_status check_unopened(rp_comm *comm, int rank, const rpi_frame_header *header,
                                const rp_request *request) {
    if (header->kind == RPI_FRAME_EAGER || (request && !request->kind->needs_cts))
        return RP_PENDING;
    rpi_comm_fail_text(comm, RP_CORRUPT, rank,
                       "rank %d sent chunk %u of operation %llu, which rank %d has not begun "
                       "with",
                       rank, header->chunk, rpi_number_in_words(comm, header->sequence),
                       comm->rank);
    return RP_CORRUPT;
}

/* Where a frame goes. RP_PENDING: nowhere yet. A failure has been reported. */
rp_status rpi_frame_find_chunk(rp_comm *comm, int rank, const rpi_frame_header *header,
                               rpi_chunk **out_chunk) {
    rp_request *request = rpi_request_find(comm, rank, header->sequence);
    if (!request && rpi_receive_is_future(comm, rank, header))
        return check_unopened(comm, rank, header, NULL);
    if (request && !rpi_request_agrees(request, header)) {
        rpi_receive_fail_mismatch(request, rank, header);
        return RP_MISMATCH;
    }
    if (request && !rpi_request_expects(request, rank)) return RP_MISMATCH;
    rpi_chunk *chunk = request ? find_chunk(request, header->chunk) : NULL;
    if (request && header->chunk >= request->next_chunk &&
        header->chunk < (uint32_t)request->partition.split.chunks)
        return check_unopened(comm, rank, header, request);
    if (!chunk) return rpi_receive_fail_finished(comm, rank, header, request);
    *out_chunk = chunk;
    return RP_OK;
}

static rp_status fail_part(const rp_request *request, int rank, const rpi_frame_header *header,
                           size_t bytes, const char *why) {
    char text[160];
    rpi_comm_fail_text(
        request->comm, RP_CORRUPT, rank,
        "rank %d sent part %d in %zu bytes, which is not what comes next in %s%s%s", rank,
        (int)header->part, bytes, rpi_request_text(request, text, sizeof text), why ? ": " : "",
        why ? why : "");
    return RP_CORRUPT;
}

double rpi_frame_edge_weight(const rp_request *request, const void *payload) {
    double edge_weight = 1;
    if (request->kind->ahead_bytes && payload)
        memcpy(&edge_weight, payload, sizeof edge_weight);
    return edge_weight;
}

/* Encodings of any length are checked when they are due; for all others the length is enough.
 */
static rp_status check_part(const rpi_chunk *chunk, const rpi_instruction *instruction,
                            const void *payload, size_t bytes) {
    const rp_request *request = chunk->request;
    const rpi_partition *partition = &request->partition;
    size_t ahead = request->kind->ahead_bytes;
    if (bytes < ahead) return RP_FAIL(CORRUPT, "it has no weight");
    double edge_weight = rpi_frame_edge_weight(request, payload);
    if (!isfinite(edge_weight)) return RP_FAIL(CORRUPT, "its weight is %g", edge_weight);
    if (!partition->varies || instruction->into == RPI_SLOT_RTR) return RP_OK;
    return rpi_partition_check_part(partition, chunk->index, instruction->part,
                                    instruction->level, (const unsigned char *)payload + ahead,
                                    bytes - ahead);
}

/* The RECV for the next frame of this chunk from this rank; RP_PENDING: it is not due. payload
 * NULL: it was written over a payload of this rank. */
rp_status rpi_frame_find_recv(rpi_chunk *chunk, int rank, const rpi_frame_header *header,
                              const void *payload, size_t bytes, int *out_instruction) {
    const rp_request *request = chunk->request;
    const rpi_compiled_schedule *compiled = request->compiled;
    int peer = rpi_request_peer(request, rank);
    int first = compiled->first_recv[peer], count = compiled->first_recv[peer + 1] - first;
    if (chunk->received[peer] >= count) return fail_part(request, rank, header, bytes, NULL);
    int index = compiled->recvs[first + chunk->received[peer]];
    const rpi_instruction *instruction = &compiled->instruction[index];
    size_t most = rpi_instruction_bytes(request, chunk->index, instruction);
    bool fits = request->partition.varies ? bytes <= most : bytes == most;
    if (!fits || rpi_request_recv_part(request, header) != instruction->part)
        return fail_part(request, rank, header, bytes, NULL);
    if (!(chunk->ready[index / 64] >> (index % 64) & 1)) return RP_PENDING;
    if (!payload && !rpi_in_place_may_be_written(chunk, instruction))
        return fail_part(request, rank, header, bytes, "it was not to be written here");
    if (payload && check_part(chunk, instruction, payload, bytes) != RP_OK)
        return fail_part(request, rank, header, bytes, rp_last_error()->message);
    *out_instruction = index;
    return RP_OK;
}

/* Makes the bytes the RECV's encoded slot; the caller points the slot at them. */
rpi_encoded_slot *rpi_frame_finish_recv(rpi_chunk *chunk, int rank, int index) {
    const rpi_instruction *instruction = &chunk->request->compiled->instruction[index];
    chunk->received[rpi_request_peer(chunk->request, rank)]++;
    if (chunk->request->stage == RPI_REQUEST_PARKED)
        rpi_request_go_to(chunk->request, RPI_REQUEST_QUEUED);
    chunk->request->awaits_control = 0;
    rpi_chunk_finish(chunk, index);
    if (instruction->into < RPI_SLOT_ENCODED) return NULL;
    rpi_encoded_slot *encoded_slot =
        &chunk->encoded_slots[instruction->into - RPI_SLOT_ENCODED];
    return encoded_slot->readers ? encoded_slot : NULL;
}

void rpi_frame_fill_slot(const rp_request *request, rpi_encoded_slot *encoded_slot,
                         rpi_frame_buffer *buffer) {
    size_t ahead = request->kind->ahead_bytes;
    if (buffer->written) {
        encoded_slot->state = RPI_ENCODED_WRITTEN;
        rpi_frame_buffer_give(request->comm->context, buffer);
        return;
    }
    *encoded_slot =
        (rpi_encoded_slot){.state = RPI_ENCODED_BUFFER,
                           .readers = encoded_slot->readers,
                           .buffer = buffer,
                           .data = buffer->payload + ahead,
                           .bytes = buffer->bytes - ahead,
                           .edge_weight = rpi_frame_edge_weight(request, buffer->payload)};
}

void rpi_frame_place_unexpected(rpi_chunk *chunk, int rank, rpi_frame_buffer *buffer) {
    int peer = rpi_request_peer(chunk->request, rank);
    rpi_frames_append(&chunk->unexpected[peer], buffer);
    rpi_flow_placed(chunk->request, rank, &buffer->header, buffer->bytes);
}
