/* Frames for which nothing here waits yet: queued as unexpected; and those that disagree
 * (refuse.c: those of operations that are over). */
#include "comm/protocol/unexpected.h"
#include "comm/core/communicator.h"
#include "comm/core/frame_buffers.h"
#include "comm/core/request.h"

#include "base/memory.h"
#include "base/status.h"

rpi_unexpected *rpi_unexpected_find(const rp_comm *comm, int rank, uint64_t sequence) {
    return rpi_index_find(&comm->unexpected, sequence, rank);
}

rp_status rpi_unexpected_get(rp_comm *comm, int rank, uint64_t sequence,
                             rpi_unexpected **out_unexpected) {
    *out_unexpected = rpi_unexpected_find(comm, rank, sequence);
    if (*out_unexpected) return RP_OK;
    rpi_unexpected *unexpected = NULL;
    RP_TRY(rpi_alloc(sizeof *unexpected, "unexpected frames", &unexpected));
    rp_status status = rpi_index_put(&comm->unexpected, sequence, rank, unexpected);
    if (status != RP_OK)
        rpi_free(unexpected);
    else
        *out_unexpected = unexpected;
    return status;
}

rp_status rpi_unexpected_get_for_control(rp_comm *comm, int rank, uint64_t sequence,
                                         rpi_unexpected **out_unexpected) {
    rpi_peer *peer = &comm->peers[rank];
    *out_unexpected = rpi_unexpected_find(comm, rank, sequence);
    if (*out_unexpected) return RP_OK;
    if (peer->control_frames >= RPI_UNEXPECTED_CONTROL_MOST) {
        rpi_comm_fail_text(
            comm, RP_CORRUPT, rank,
            "rank %d spoke of more than %d operations that rank %d has not begun "
            "with",
            rank, RPI_UNEXPECTED_CONTROL_MOST, comm->rank);
        return RP_CORRUPT;
    }
    rp_status status = rpi_unexpected_get(comm, rank, sequence, out_unexpected);
    if (status != RP_OK) {
        rpi_comm_fail_text(comm, status, comm->rank, "%s", rp_last_error()->message);
        return status;
    }
    (*out_unexpected)->is_control = true;
    peer->control_frames++;
    return RP_OK;
}

void rpi_unexpected_drop(rp_comm *comm, int rank, uint64_t sequence,
                         rpi_unexpected *unexpected) {
    if (unexpected->is_control) comm->peers[rank].control_frames--;
    rpi_index_remove(&comm->unexpected, sequence, rank);
    rpi_free(unexpected);
}

void rpi_unexpected_clear(rp_comm *comm) {
    for (size_t i = 0; i < comm->unexpected.room; i++) {
        rpi_unexpected *unexpected = comm->unexpected.slots[i].value;
        if (unexpected) rpi_frames_clear(comm->context, &unexpected->frames);
        rpi_free(unexpected);
    }
    rpi_index_free(&comm->unexpected);
}

void rpi_receive_fail_mismatch(rp_request *request, int rank, const rpi_frame_header *header) {
    rp_comm *comm = request->comm;
    char words[448];
    rpi_disagreement_text(request, header, rank, words, sizeof words);
    if (request->kind->by_pair)
        rpi_comm_fail_text(comm, RP_MISMATCH, rank, "%s", words);
    else if (header->signature == request->header.signature) /* but for a block's length */
        rpi_comm_fail_text(comm, RP_MISMATCH, rank, "%s %llu: %s",
                           rpi_collective_name(request->collective),
                           rpi_number_in_words(comm, request->sequence), words);
    else
        rpi_comm_fail_text(comm, RP_MISMATCH, rank, "operation %llu: %s",
                           rpi_number_in_words(comm, request->sequence), words);
}
