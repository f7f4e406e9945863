#include "comm/protocol/clear_to_send.h"
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/protocol/control_frame.h"
#include "comm/protocol/unexpected.h"

#include "base/status.h"

/* ---- at the sender ---- */

bool rpi_cts_has_come(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    const rp_request *request = chunk->request;
    return chunk->index <
           request->edges[rpi_request_rank(request, instruction->peer)].cts_chunks;
}

rp_status rpi_cts_await(rp_request *request, int rank, uint32_t chunk) {
    rpi_flow_edge *edge = &request->edges[rank];
    if (edge->asked) return RP_PENDING;
    rpi_frame_header header = request->header;
    header.kind = RPI_FRAME_CTS_REQUEST;
    header.chunk = chunk;
    edge->asked = rpi_control_frame_send(request->comm, rank, &header) == RP_OK;
    return RP_PENDING;
}

void rpi_cts_note_sent(rp_request *request, int rank, uint32_t chunk) {
    if (!request->kind->needs_cts) return;
    rpi_flow_edge *edge = &request->edges[rank];
    if (edge->told <= chunk) edge->told = chunk + 1;
}

void rpi_cts_note_started(rp_request *request, int rank, const rpi_frame_header *header) {
    if (!request->kind->needs_cts) return;
    rpi_flow_edge *edge = &request->edges[rank];
    if (edge->cts_chunks <= header->chunk) edge->cts_chunks = header->chunk + 1;
}

void rpi_cts_receive(rp_comm *comm, int rank, const rpi_frame_header *header) {
    rp_request *request = rpi_request_find(comm, rank, header->sequence);
    bool needs_cts = rpi_operation_kind_of(comm, header->sequence)->needs_cts;
    if (!needs_cts || rpi_receive_is_future(comm, rank, header))
        rpi_flow_fail_strange(comm, rank, "told of the start", header);
    else if (request && !rpi_request_is_same(request, header))
        rpi_receive_fail_mismatch(request, rank, header);
    else if (request && request->edges[rank].cts_chunks < header->chunk)
        request->edges[rank].cts_chunks = header->chunk;
    /* Without a request: other frames have shown it already, and it is over. */
}

/* ---- at the receiver ---- */

void rpi_cts_note_request(rp_request *request, int rank) {
    rpi_flow_edge *edge = &request->edges[rank];
    if (!edge->asks) request->asking++;
    edge->asks = true;
}

/* The first CTS at once, later ones for several chunks while more are to come. */
static bool may_wait(const rp_request *request, const rpi_flow_edge *edge, bool moved) {
    uint32_t untold = request->next_chunk - edge->told;
    bool last = request->next_chunk == (uint32_t)request->partition.split.chunks;
    return moved && edge->told && !last && 2 * untold < request->comm->chunks_in_flight;
}

void rpi_cts_send(rp_request *request, bool moved) {
    rpi_frame_header header = request->header;
    header.kind = RPI_FRAME_CTS;
    header.chunk = request->next_chunk;
    for (int rank = 0; rank < request->comm->world; rank++) {
        rpi_flow_edge *edge = &request->edges[rank];
        if (!edge->asks || edge->told >= request->next_chunk) continue;
        if (may_wait(request, edge, moved)) continue;
        if (rpi_control_frame_send(request->comm, rank, &header) == RP_OK)
            edge->told = request->next_chunk;
    }
}

void rpi_cts_receive_request(rp_comm *comm, int rank, const rpi_frame_header *header) {
    rp_request *request = rpi_request_find(comm, rank, header->sequence);
    if (!rpi_operation_kind_of(comm, header->sequence)->needs_cts) {
        rpi_flow_fail_strange(comm, rank, "asked for a start", header);
    } else if (request && !rpi_request_is_same(request, header)) {
        rpi_receive_fail_mismatch(request, rank, header);
    } else if (request) {
        if (rpi_request_expects(request, rank)) rpi_cts_note_request(request, rank);
    } else if (rpi_receive_is_future(comm, rank, header)) {
        rpi_unexpected *unexpected = NULL;
        if (rpi_unexpected_get_for_control(comm, rank, header->sequence, &unexpected) == RP_OK)
            unexpected->asks = true;
    } else {
        (void)rpi_receive_fail_finished(comm, rank, header, NULL);
    }
}

void rpi_flow_fail_strange(rp_comm *comm, int rank, const char *what,
                           const rpi_frame_header *header) {
    rpi_comm_fail_text(comm, RP_CORRUPT, rank, "rank %d %s of operation %llu, which cannot be",
                       rank, what, (unsigned long long)header->sequence);
}
