#include "comm/core/traffic.h"

#include "comm/core/communicator.h"

rpi_urgency rpi_urgency_of(const rp_request *request) {
    rp_priority priority = request->comm->priority;
    if (priority == RP_PRIORITY_BULK) return RPI_BULK;
    return priority == RP_PRIORITY_URGENT || request->partition.bytes <= RPI_SHORT_BYTES
               ? RPI_URGENT
               : RPI_NORMAL;
}

/* Others wait for them, so they are never delayed as bulk. */
rpi_urgency rpi_urgency_of_control(const rp_comm *comm) {
    return comm->priority == RP_PRIORITY_BULK ? RPI_NORMAL : RPI_URGENT;
}

rpi_urgency rpi_urgency_of_windows(const rp_comm *comm) {
    return comm->priority == RP_PRIORITY_URGENT ? RPI_URGENT
           : comm->priority == RP_PRIORITY_BULK ? RPI_BULK
                                                : RPI_NORMAL;
}

/* All frames of this communicator that were not urgent have left. */
static bool may_pass(const rpi_peer *peer, const rpi_link *link) {
    return peer->passable <= link->settled;
}

void rpi_traffic_prepare(rp_comm *comm, int rank, rpi_urgency urgency) {
    const rpi_peer *peer = &comm->peers[rank];
    rpi_link *link = rpi_peer_link(peer);
    bool company = comm->context->company;
    link->behind = peer->passable;
    if (urgency == RPI_URGENT)
        link->traffic = may_pass(peer, link) ? RPI_TRAFFIC_URGENT : RPI_TRAFFIC_PLAIN;
    else
        link->traffic = company ? RPI_TRAFFIC_BULK : RPI_TRAFFIC_PLAIN;
}

void rpi_traffic_posted(rp_comm *comm, int rank) {
    rpi_peer *peer = &comm->peers[rank];
    const rpi_link *link = rpi_peer_link(peer);
    if (link->traffic != RPI_TRAFFIC_URGENT) peer->passable = link->passable;
    if (link->traffic == RPI_TRAFFIC_BULK) comm->was_served = true;
}
