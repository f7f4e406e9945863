/* Frames that are only a header. */
#include "comm/protocol/control_frame.h"
#include "comm/core/communicator.h"
#include "comm/core/traffic.h"

rp_status rpi_control_frame_send(rp_comm *comm, int rank, const rpi_frame_header *header) {
    rpi_peer *peer = &comm->peers[rank];
    if (peer->broken) return RP_PENDING;
    rpi_link *link = rpi_connection_link(peer->connection);
    if (!link) return RP_PENDING;
    rpi_traffic_prepare(comm, rank, rpi_urgency_of_control(comm));
    if (rpi_connection_was_full(peer->connection)) return RP_PENDING;
    const rpi_transport *transport = link->endpoint->transport;
    void *region = NULL;
    rp_status status = transport->reserve(link, RPI_FRAME_HEADER_BYTES, &region);
    if (status == RP_OK) {
        rpi_frame_seal(region, header, 0, transport->checksum);
        status = transport->commit(link, RPI_FRAME_HEADER_BYTES);
        rpi_traffic_posted(comm, rank);
        rpi_comm_count_sent(comm, RPI_FRAME_HEADER_BYTES);
    } else {
        rpi_connection_note_full(peer->connection);
    }
    /* A link that has failed may still have frames: peek() tells when they are read. */
    return status;
}
