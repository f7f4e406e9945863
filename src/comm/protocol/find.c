/* Which operation does a frame belong to, or is that operation still to come? */
#include "comm/core/communicator.h"
#include "comm/protocol/unexpected.h"

rp_request *rpi_request_find(const rp_comm *comm, int rank, uint64_t sequence) {
    bool by_pair = rpi_operation_kind_of(comm, sequence)->by_pair;
    return rpi_index_find(&comm->by_number, sequence, by_pair ? rank : RPI_ALL_RANKS);
}

bool rpi_receive_is_future(const rp_comm *comm, int rank, const rpi_frame_header *header) {
    return rpi_operation_kind_of(comm, header->sequence)->is_future(comm, rank, header);
}
