/* Frames of operations that are over, or of none. */
#include "comm/core/communicator.h"
#include "comm/protocol/unexpected.h"

rp_status rpi_receive_fail_chunk(rp_comm *comm, int rank, const rpi_frame_header *header) {
    rpi_comm_fail_text(comm, RP_CORRUPT, rank,
                       "rank %d sent a frame of operation %llu, chunk %u, which is finished",
                       rank, rpi_number_in_words(comm, header->sequence), header->chunk);
    return RP_CORRUPT;
}

/* A frame for which nothing here waits: its operation is over, since it has sent everything and
 * expected nothing from this rank. */
rp_status rpi_receive_fail_finished(rp_comm *comm, int rank, const rpi_frame_header *header,
                                    const rp_request *request) {
    if (request) return rpi_receive_fail_chunk(comm, rank, header);
    return rpi_operation_kind_of(comm, header->sequence)->refuse(comm, rank, header);
}
