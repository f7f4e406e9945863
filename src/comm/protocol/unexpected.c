/* Frames that nothing here waits for yet: set aside; and those that disagree (refuse.c: those
 * of what is over). */
#include "comm/protocol/unexpected.h"
#include "comm/core/communicator.h"
#include "comm/core/frame_blocks.h"
#include "comm/core/request.h"

#include "base/memory.h"
#include "base/status.h"

rpi_aside *rpi_aside_find(const rp_comm *comm, int rank, uint64_t sequence) {
    return rpi_index_find(&comm->aside, sequence, rank);
}

rp_status rpi_aside_get(rp_comm *comm, int rank, uint64_t sequence, rpi_aside **out_aside) {
    *out_aside = rpi_aside_find(comm, rank, sequence);
    if (*out_aside) return RP_OK;
    rpi_aside *aside = NULL;
    RP_TRY(rpi_alloc(sizeof *aside, "what is set aside", &aside));
    rp_status status = rpi_index_put(&comm->aside, sequence, rank, aside);
    if (status != RP_OK)
        rpi_free(aside);
    else
        *out_aside = aside;
    return status;
}

rp_status rpi_aside_get_for_word(rp_comm *comm, int rank, uint64_t sequence,
                                 rpi_aside **out_aside) {
    rpi_peer *peer = &comm->peers[rank];
    *out_aside = rpi_aside_find(comm, rank, sequence);
    if (*out_aside) return RP_OK;
    if (peer->words >= RPI_WORDS_MOST) {
        rpi_comm_fail_text(
            comm, RP_CORRUPT, rank,
            "rank %d spoke of more than %d operations that rank %d has not begun "
            "with",
            rank, RPI_WORDS_MOST, comm->rank);
        return RP_CORRUPT;
    }
    rp_status status = rpi_aside_get(comm, rank, sequence, out_aside);
    if (status != RP_OK) {
        rpi_comm_fail_text(comm, status, comm->rank, "%s", rp_last_error()->message);
        return status;
    }
    (*out_aside)->is_word = true;
    peer->words++;
    return RP_OK;
}

void rpi_aside_drop(rp_comm *comm, int rank, uint64_t sequence, rpi_aside *aside) {
    if (aside->is_word) comm->peers[rank].words--;
    rpi_index_remove(&comm->aside, sequence, rank);
    rpi_free(aside);
}

void rpi_aside_clear(rp_comm *comm) {
    for (size_t i = 0; i < comm->aside.room; i++) {
        rpi_aside *aside = comm->aside.slots[i].value;
        if (aside) rpi_frames_clear(comm->fabric, &aside->frames);
        rpi_free(aside);
    }
    rpi_index_free(&comm->aside);
}

void rpi_receive_fail_mismatch(rp_request *request, int rank, const rpi_frame_header *header) {
    rp_comm *comm = request->comm;
    char words[448];
    rpi_disagreement_text(request, header, rank, words, sizeof words);
    if (request->collective == RPI_SENDRECV)
        rpi_comm_fail_text(comm, RP_MISMATCH, rank, "%s", words);
    else if (header->signature == request->header.signature) /* but for a block's length */
        rpi_comm_fail_text(comm, RP_MISMATCH, rank, "%s %llu: %s",
                           rpi_collective_name(request->collective),
                           rpi_sequence_number(request->sequence), words);
    else
        rpi_comm_fail_text(comm, RP_MISMATCH, rank, "operation %llu: %s",
                           rpi_sequence_number(request->sequence), words);
}
