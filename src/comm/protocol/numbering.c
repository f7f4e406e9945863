/* Numbers of communicators that are being made: given, and sent to members. */
#include "comm/protocol/numbering.h"
#include "comm/core/request.h"
#include "comm/protocol/offers.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

/* ---- what a communicator is known by ---- */

rp_status rpi_identity_make(rp_comm *comm) {
    size_t members = (size_t)comm->world * sizeof(uint32_t), name = strlen(comm->name);
    unsigned char *identity = NULL;
    RP_TRY(rpi_alloc(sizeof(uint32_t) + members + name, "name and members", &identity));
    uint32_t world = (uint32_t)comm->world;
    memcpy(identity, &world, sizeof world);
    for (int rank = 0; rank < comm->world; rank++) {
        uint32_t member = (uint32_t)comm->members[rank];
        memcpy(identity + (size_t)(rank + 1) * sizeof member, &member, sizeof member);
    }
    memcpy(identity + sizeof(uint32_t) + members, comm->name, name);
    comm->identity = identity;
    comm->identity_bytes = sizeof(uint32_t) + members + name;
    return RP_OK;
}

void rpi_identity_free(rp_comm *comm) {
    rpi_free(comm->identity);
    comm->identity = NULL;
    rpi_rank_set_free(&comm->untold);
    comm->untold_count = 0;
}

bool rpi_making_is_void(const rp_comm *comm) {
    if (!comm->is_made || comm->making == RPI_COMM_MET || comm->making == RPI_COMM_GIVEN_UP)
        return false;
    rp_status status = rpi_comm_failure(comm).status;
    return status == RP_TIMEOUT || status == RP_PEER;
}

/* ---- giving ---- */

/* The header of what it has posted, which is its first barrier, was made before. */
void rpi_number_take(rp_comm *comm, uint32_t numberer, uint32_t number) {
    comm->id = numberer;
    comm->epoch = number;
    rpi_comm_go_to(comm, RPI_COMM_NUMBERED);
    for (rp_request *request = comm->queue; request; request = request->next) {
        request->header.communicator = numberer;
        request->header.epoch = number;
    }
    uint64_t scope = ((uint64_t)number + 1) << 32 | numberer;
    if (comm->group) rpi_control_group_rename(comm->group, scope);
}

static rp_status give(rp_comm *comm) {
    rpi_context *context = comm->context;
    rpi_connection *own = &context->connections[context->rank];
    if (own->offered >= RPI_NUMBER_MAX)
        return RP_FAIL(UNSUPPORTED, "rank %d has numbered %u communicators, which is the most",
                       context->rank, RPI_NUMBER_MAX);
    RP_TRY(rpi_rank_set_make(comm->world, &comm->untold));
    for (int rank = 1; rank < comm->world; rank++) rpi_rank_set_put(&comm->untold, rank);
    comm->untold_count = comm->world - 1;
    rpi_number_take(comm, (uint32_t)context->rank + 1, ++own->offered);
    return RP_OK;
}

rp_status rpi_number_begin(rp_comm *comm) {
    if (rpi_comm_is_numbered(comm)) return RP_OK;
    if (comm->rank == 0) return give(comm);
    comm->context->unnumbered++;
    return RP_OK;
}

rp_status rpi_context_number_list(rpi_context *context, size_t count, uint32_t *out_first) {
    rpi_connection *own = &context->connections[context->rank];
    if (count > RPI_NUMBER_MAX - own->listed)
        return RP_FAIL(UNSUPPORTED,
                       "rank %d has numbered %u communicators of lists: %zu more "
                       "are too many",
                       context->rank, own->listed, count);
    *out_first = own->listed + 1;
    own->listed += (uint32_t)count;
    return RP_OK;
}

void rpi_context_receive_list(rpi_context *context, int numberer, uint32_t first,
                              size_t count) {
    rpi_connection *connection = &context->connections[numberer];
    uint32_t last = first + (uint32_t)count - 1;
    if (count && last > connection->listed) connection->listed = last;
}

/* ---- telling ---- */

rp_status rpi_number_send_one(rp_comm *comm, int rank) {
    rpi_peer *peer = &comm->peers[rank];
    if (peer->connection->full || peer->broken) return RP_PENDING;
    rpi_link *link = rpi_connection_link(peer->connection);
    if (!link) return RP_PENDING;
    const rpi_transport *transport = link->endpoint->transport;
    size_t bytes = RPI_FRAME_HEADER_BYTES + comm->identity_bytes;
    void *region = NULL;
    link->traffic = RPI_TRAFFIC_PLAIN;
    rp_status status = transport->reserve(link, bytes, &region);
    if (status != RP_OK) {
        rpi_connection_note_full(peer->connection);
        return RP_PENDING; /* peek() tells if a link has failed */
    }
    rpi_frame_header header = {
        .kind = RPI_FRAME_NUMBER, .communicator = comm->id, .epoch = comm->epoch};
    memcpy((unsigned char *)region + RPI_FRAME_HEADER_BYTES, comm->identity,
           comm->identity_bytes);
    rpi_frame_seal(region, &header, comm->identity_bytes, transport->checksum);
    (void)transport->commit(link, bytes);
    rpi_comm_count_sent(comm, bytes);
    rpi_rank_set_remove(&comm->untold, rank);
    comm->untold_count--;
    return RP_OK;
}

/* In the order of numbers on each link: communicators are examined in the order in which they
 * were numbered as long as they have members to tell, and a full link stays full for the rest
 * of an iteration. */
void rpi_number_send(rp_comm *comm) {
    for (int rank = rpi_rank_set_next(&comm->untold, 0); rank >= 0;
         rank = rpi_rank_set_next(&comm->untold, rank + 1)) {
        if (comm->peers[rank].broken) {
            rpi_rank_set_remove(&comm->untold, rank);
            comm->untold_count--;
            continue;
        }
        (void)rpi_number_send_one(comm, rank);
    }
    if (comm->untold_count == 0) rpi_identity_free(comm);
}

/* ---- leaving ---- */

/* It was given up before it had a number. A number that is offered for it, now or later, is
 * answered with that. Without memory for this the others wait for this rank until their
 * timeout. */
static void give_up(rp_comm *comm) {
    rpi_context *context = comm->context;
    rpi_offer *declined = NULL, **offer = rpi_offer_for(context, comm);
    if (offer) {
        rpi_offer_decline(context, *offer);
        return;
    }
    if (rpi_offer_new((uint32_t)comm->members[0] + 1, 0, comm->identity, comm->identity_bytes,
                      &declined) != RP_OK)
        return;
    declined->next = context->declined;
    context->declined = declined;
}

void rpi_number_end(rp_comm *comm) {
    if (rpi_comm_is_numbered(comm)) return;
    comm->context->unnumbered--;
    if (comm->identity && !rpi_making_is_void(comm)) give_up(comm);
}
