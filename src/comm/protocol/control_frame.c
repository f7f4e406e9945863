/* Frames that are a header alone. */
#include "comm/protocol/control_frame.h"
#include "comm/core/communicator.h"
#include "comm/core/traffic.h"

rp_status rpi_flow_tell(rp_comm *comm, int rank, const rpi_frame_header *header) {
    rpi_peer *peer = &comm->peers[rank];
    if (peer->broken) return RP_PENDING;
    rpi_link *link = rpi_port_link(peer->port);
    if (!link) return RP_PENDING;
    rpi_traffic_prepare(comm, rank, rpi_urgency_of_words(comm));
    if (rpi_port_was_full(peer->port)) return RP_PENDING;
    const rpi_transport *transport = link->endpoint->transport;
    void *region = NULL;
    rp_status status = transport->lend(link, RPI_FRAME_HEADER_BYTES, &region);
    if (status == RP_OK) {
        rpi_frame_seal(region, header, 0, transport->checksum);
        status = transport->post(link, RPI_FRAME_HEADER_BYTES);
        rpi_traffic_posted(comm, rank);
        rpi_comm_count_sent(comm, RPI_FRAME_HEADER_BYTES);
    } else {
        rpi_port_is_full(peer->port);
    }
    /* A link that has failed may still hold frames: peek() tells when they are read. */
    return status;
}
