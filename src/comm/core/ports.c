/* The links of a fabric, which communicators it has, and whose a frame is. */
#include "comm/core/communicator.h"
#include "comm/core/request.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#include <string.h>
#include <unistd.h>

static bool is_crowded(const rpi_fabric *fabric) {
    const int *host_of = fabric->mesh->host_of;
    long here = 0;
    for (int rank = 0; rank < fabric->world; rank++)
        here += host_of[rank] == host_of[fabric->rank];
    return rpi_is_crowd(here, rpi_host_cores());
}

/* Its endpoint does not say which links have news. */
static bool is_polled(const rpi_link *link) {
    const rpi_transport *transport = link->endpoint->transport;
    return !transport->news || !transport->news(link->endpoint);
}

static void connect_port(rpi_fabric *fabric, int rank) {
    rpi_link *link = fabric->mesh->links[rank];
    fabric->ports[rank].link = link;
    fabric->ports[rank].called = true;
    if (is_polled(link)) rpi_rank_set_put(&fabric->polled, rank);
}

void rpi_fabric_connect(rpi_fabric *fabric) {
    for (int rank = 0; rank < fabric->world; rank++)
        if (fabric->mesh->links[rank]) connect_port(fabric, rank);
    fabric->crowded = is_crowded(fabric);
}

void rpi_left_free(rpi_left *left) {
    rpi_rank_set_free(&left->untold);
    rpi_free(left);
}

rp_status rpi_port_tell(rpi_port *port, const rpi_frame_header *header) {
    const rpi_transport *transport = port->link->endpoint->transport;
    void *region = NULL;
    port->link->traffic = RPI_TRAFFIC_PLAIN;
    RP_TRY(transport->lend(port->link, RPI_FRAME_HEADER_BYTES, &region));
    rpi_frame_seal(region, header, 0, transport->checksum);
    (void)transport->post(port->link, RPI_FRAME_HEADER_BYTES); /* a failure: peek() tells */
    return RP_OK;
}

/* What the link has no room for yet, later passes tell. */
static void tell_left(rpi_fabric *fabric, int rank) {
    for (rpi_left **at = &fabric->left, *left; (left = *at) != NULL;) {
        bool untold = left->untold.bits[rank / 64] >> (rank % 64) & 1;
        rp_status status = untold ? rpi_port_tell(&fabric->ports[rank], &left->header) : RP_OK;
        if (status == RP_PENDING) fabric->left_late = true;
        if (untold && status == RP_OK) {
            rpi_rank_set_remove(&left->untold, rank);
            left->count--;
        }
        if (left->count > 0) {
            at = &left->next;
            continue;
        }
        *at = left->next;
        rpi_left_free(left);
    }
}

static void tell_late(rpi_fabric *fabric) {
    if (!fabric->left_late) return;
    fabric->left_late = false;
    for (int rank = 0; rank < fabric->world; rank++)
        if (fabric->ports[rank].link && !fabric->ports[rank].broken) tell_left(fabric, rank);
}

bool rpi_fabric_take_links(rpi_fabric *fabric) {
    bool moved = false;
    int rank = -1;
    if (!fabric->mesh || !fabric->mesh->on_need) return false;
    tell_late(fabric);
    for (rp_status status; (status = rpi_mesh_met(fabric->mesh, &rank)) != RP_PENDING;) {
        moved = true;
        if (status == RP_OK) {
            connect_port(fabric, rank);
            tell_left(fabric, rank);
        } else {
            rpi_fabric_break(fabric, rank, status);
        }
    }
    return moved;
}

rpi_link *rpi_port_link(rpi_port *port) {
    rpi_fabric *fabric = port->fabric;
    if (port->link || port->called) return port->link;
    port->called = true;
    int rank = (int)(port - fabric->ports);
    rp_status status = rpi_mesh_call(fabric->mesh, rank);
    if (status != RP_OK) rpi_fabric_break(fabric, rank, status);
    return NULL;
}

/* One word a communicator. */
static void forget_older(rpi_fabric *fabric, const rpi_frame_header *header) {
    rpi_left **at = &fabric->left;
    while (*at && ((*at)->header.communicator != header->communicator ||
                   (*at)->header.epoch != header->epoch))
        at = &(*at)->next;
    rpi_left *older = *at;
    if (!older) return;
    *at = older->next;
    rpi_left_free(older);
}

/* That this rank has left is told to who asks (late_links.c); only whose death was why is kept,
 * which a communicator has once at most. Without memory for it a rank that waits for this one
 * hears nothing before its timeout. */
void rpi_fabric_note_left(rp_comm *comm, const rpi_frame_header *header) {
    rpi_fabric *fabric = comm->fabric;
    rpi_left *left = NULL;
    if (!fabric->mesh->on_need || !header->sequence) return;
    forget_older(fabric, header);
    if (rpi_alloc(sizeof *left, "a word", &left) != RP_OK) return;
    left->header = *header;
    if (rpi_rank_set_make(fabric->world, &left->untold) != RP_OK) {
        rpi_left_free(left);
        return;
    }
    for (int rank = 0; rank < comm->world; rank++) {
        const rpi_port *port = comm->peers[rank].port;
        if (rank == comm->rank || port->link || port->broken) continue;
        rpi_rank_set_put(&left->untold, comm->members[rank]);
        left->count++;
    }
    left->next = fabric->left;
    if (left->count > 0)
        fabric->left = left;
    else
        rpi_left_free(left);
}

/* ---- links ---- */

void rpi_port_release(rpi_port *port) {
    rpi_rank_set_remove(&port->fabric->heads, (int)(port - port->fabric->ports));
    port->head = NULL;
    port->holder = NULL;
    port->comm = NULL;
    port->link->endpoint->transport->release(port->link);
}

void rpi_fabric_break(rpi_fabric *fabric, int rank, rp_status status) {
    rpi_port *port = &fabric->ports[rank];
    if (port->broken) return;
    port->broken = status;
    fabric->breaks++;
    snprintf(port->reason, sizeof port->reason, "%s", rp_last_error()->message);
    for (rp_comm *comm = fabric->comms; comm; comm = comm->next) {
        int place = comm->place_of[rank];
        if (place < 0 || comm->peers[place].broken) continue;
        comm->peers[place].broken = status;
        comm->has_broken = true;
        comm->peers[place].reason = port->reason;
    }
}

void rpi_fabric_fail_rank(rpi_fabric *fabric, int rank, rp_status status, const char *message) {
    for (rp_comm *comm = fabric->comms; comm; comm = comm->next) {
        if (comm->place_of[rank] < 0) continue;
        rpi_comm_fail_text(comm, status, comm->place_of[rank], "%s", message);
        rpi_fabric_activate(comm);
    }
    rpi_fabric_break(fabric, rank, status);
}

void rpi_fabric_activate(rp_comm *comm) {
    if (comm->is_active) return;
    comm->is_active = true;
    comm->next_active = NULL;
    *comm->fabric->active_end = comm;
    comm->fabric->active_end = &comm->next_active;
}

/* ---- peers ---- */

void rpi_peer_break(rp_comm *comm, int rank, rp_status status) {
    rpi_fabric_break(comm->fabric, comm->members[rank], status);
}

void rpi_peer_leave(rp_comm *comm, int rank) {
    rpi_peer *peer = &comm->peers[rank];
    if (peer->broken) return;
    peer->broken = RP_PEER;
    comm->has_broken = true;
    peer->reason = "connection closed by peer: it has destroyed the communicator";
}

static void fail_gone(rp_comm *comm, int lost, int witness) {
    char operation[160] = "";
    const rp_request *request = comm->queue;
    if (request) rpi_request_text(request, operation, sizeof operation);
    rpi_comm_fail_text(comm, RP_PEER, lost,
                       "%s is gone (connection closed by peer), as %s says%s%s",
                       rpi_rank_name(comm, lost).text, rpi_rank_name(comm, witness).text,
                       request ? ", in " : "", operation);
    rpi_fabric_activate(comm);
}

void rpi_peer_hear_left(rp_comm *comm, int rank, const rpi_frame_header *header) {
    uint64_t lost = header->sequence; /* one more than its place; 0: nobody */
    bool is_other = lost > 0 && lost <= (uint64_t)comm->world &&
                    lost != (uint64_t)comm->rank + 1 && lost != (uint64_t)rank + 1;
    if (is_other) fail_gone(comm, (int)lost - 1, rank);
    /* The first such word of a making counts: what comes behind it finds that it has failed. */
    if (!comm->has_met && header->count != RPI_LEFT_VOID) comm->is_given_up = true;
    rpi_peer_leave(comm, rank);
}
