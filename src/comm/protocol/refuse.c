/* Frames of operations that are over, or of none. */
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/protocol/exchange_protocol.h"
#include "comm/protocol/unexpected.h"

/* A frame that nothing here waits for: its operation is over, since it has sent all that it had
 * to and wanted nothing from this rank. */
rp_status rpi_receive_fail_finished(rp_comm *comm, int rank, const rpi_frame_header *header,
                                    const rp_request *request) {
    char words[160];
    if (request || header->sequence & RPI_P2P_SEQUENCE) {
        rpi_comm_fail_text(
            comm, RP_CORRUPT, rank,
            "rank %d sent a frame of operation %llu, chunk %u, which is finished", rank,
            rpi_sequence_number(header->sequence), header->chunk);
        return RP_CORRUPT;
    }
    if (rpi_is_exchange(header->sequence)) {
        rpi_exchange_fail_over(comm, rank, header->sequence, "sends its vector to");
        return RP_MISMATCH;
    }
    rpi_comm_fail_text(comm, RP_MISMATCH, rank,
                       "operation %llu: rank %d posted %s; that of rank %d is finished and "
                       "wanted nothing more from it",
                       (unsigned long long)header->sequence, rank,
                       rpi_posted_text(header, words, sizeof words), comm->rank);
    return RP_MISMATCH;
}
