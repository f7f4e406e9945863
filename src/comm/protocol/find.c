/* Which operation a frame belongs to, or is it still to come? */
#include "comm/core/communicator.h"
#include "comm/protocol/pair_protocol.h"
#include "comm/protocol/unexpected.h"

rp_request *rpi_request_find(const rp_comm *comm, int rank, uint64_t sequence) {
    return rpi_index_find(&comm->by_number, sequence,
                          sequence & RPI_P2P_SEQUENCE ? rank : RPI_ALL_RANKS);
}

bool rpi_receive_is_future(const rp_comm *comm, int rank, const rpi_frame_header *header) {
    if (header->sequence & RPI_P2P_SEQUENCE) return rpi_p2p_is_future(comm, rank, header);
    if (rpi_is_exchange(header->sequence)) return header->sequence > comm->seen_exchange;
    return header->sequence > comm->seen_sequence;
}
