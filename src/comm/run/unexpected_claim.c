/* Frames that were queued as unexpected are claimed: a request is compared with those that came
 * before it was posted, a chunk that starts takes over its own, and its RECVs take them in
 * order. */
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/protocol/clear_to_send.h"
#include "comm/protocol/exchange_protocol.h"
#include "comm/protocol/unexpected.h"
#include "comm/run/frame_place.h"
#include "comm/run/receive.h"

bool rpi_receive_unexpected(rpi_chunk *chunk, int index) {
    rp_comm *comm = chunk->request->comm;
    int peer = chunk->request->compiled->instruction[index].peer, next = -1;
    int rank = rpi_request_rank(chunk->request, peer);
    rpi_frame_list *frames = &chunk->unexpected[peer];
    const rpi_frame_buffer *first = frames->first;
    if (!first) return false;
    const void *payload = first->written ? NULL : first->payload;
    if (rpi_frame_find_recv(chunk, rank, &first->header, payload, first->bytes, &next) != RP_OK)
        return false;
    rpi_frame_buffer *buffer = rpi_frames_pop(frames);
    rpi_encoded_slot *encoded_slot = rpi_frame_finish_recv(chunk, rank, next);
    if (encoded_slot)
        rpi_frame_fill_slot(chunk->request, encoded_slot, buffer);
    else
        rpi_frame_buffer_give(comm->context, buffer);
    return true;
}

void rpi_receive_check_empty(rpi_chunk *chunk) {
    const rp_request *request = chunk->request;
    for (int peer = 0; peer < request->compiled->schedule.world; peer++) {
        const rpi_frame_buffer *buffer = chunk->unexpected[peer].first;
        if (!buffer) continue;
        (void)rpi_receive_fail_finished(request->comm, rpi_request_rank(request, peer),
                                        &buffer->header, request);
        return;
    }
}

static void drop_empty(rp_comm *comm, int rank, uint64_t sequence, rpi_unexpected *unexpected) {
    if (!unexpected->frames.first) rpi_unexpected_drop(comm, rank, sequence, unexpected);
}

/* Frames of one chunk are usually together, those of earlier chunks first. */
static void claim_from(rpi_chunk *chunk, int rank) {
    rp_comm *comm = chunk->request->comm;
    uint64_t sequence = chunk->request->sequence;
    rpi_unexpected *unexpected = rpi_unexpected_find(comm, rank, sequence);
    if (!unexpected) return;
    rpi_frame_buffer *buffer = unexpected->frames.first;
    unexpected->frames = (rpi_frame_list){0};
    for (rpi_frame_buffer *next; buffer; buffer = next) {
        next = buffer->next;
        if (buffer->header.chunk == chunk->index)
            rpi_frame_place_unexpected(chunk, rank, buffer);
        else
            rpi_frames_append(&unexpected->frames, buffer);
    }
    drop_empty(comm, rank, sequence, unexpected);
}

void rpi_receive_claim(rpi_chunk *chunk) {
    const rpi_index *unexpected = &chunk->request->comm->unexpected;
    for (int rank = 0; unexpected->count && rank < chunk->request->comm->world; rank++)
        if (rpi_request_concerns(chunk->request, rank)) claim_from(chunk, rank);
}

static bool compare_with(rp_request *request, int rank) {
    rp_comm *comm = request->comm;
    rpi_unexpected *unexpected = rpi_unexpected_find(comm, rank, request->sequence);
    if (!unexpected) return true;
    for (const rpi_frame_buffer *buffer = unexpected->frames.first; buffer;
         buffer = buffer->next) {
        const rpi_frame_header *header = &buffer->header;
        bool agrees = rpi_request_agrees(request, header);
        if (agrees && !rpi_request_expects(request, rank)) return false;
        if (agrees && header->chunk < (uint32_t)request->partition.split.chunks)
            rpi_cts_note_started(request, rank, header);
        else if (agrees)
            (void)rpi_receive_fail_finished(comm, rank, header, request);
        else
            rpi_receive_fail_mismatch(request, rank, header);
        if (rpi_comm_has_failed(comm)) return false;
    }
    if (unexpected->expects && !rpi_exchange_sends(request, rank)) return false;
    if (unexpected->asks && !rpi_request_expects(request, rank)) return false;
    if (unexpected->asks) rpi_cts_note_request(request, rank);
    drop_empty(comm, rank, request->sequence, unexpected);
    return true;
}

bool rpi_receive_compare(rp_request *request) {
    const rp_comm *comm = request->comm;
    for (int rank = 0; comm->unexpected.count && rank < comm->world; rank++)
        if (rpi_request_concerns(request, rank) && !compare_with(request, rank)) return false;
    return true;
}
