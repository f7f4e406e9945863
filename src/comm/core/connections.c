/* The links of a context, its communicators, and which of them a frame belongs to.
 *
 *          this rank needs a link            the link is there
 *     NONE ------------------------> CALLED ---------------------> MADE
 *      | \__________ the other rank has called _________________/  |
 *      |                               |                            |
 *      `--------- a failure -----------+----------------------------'
 *                                      v
 *                                   BROKEN     the link stays, where there is one
 */
#include "comm/core/communicator.h"
#include "comm/core/request.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/states.h"
#include "base/status.h"

#include <string.h>
#include <unistd.h>

static const rpi_states connection_next[] = {
    [RPI_CONNECTION_NONE] = RPI_STATE(RPI_CONNECTION_CALLED) | RPI_STATE(RPI_CONNECTION_MADE) |
                            RPI_STATE(RPI_CONNECTION_BROKEN),
    [RPI_CONNECTION_CALLED] = RPI_STATE(RPI_CONNECTION_MADE) | RPI_STATE(RPI_CONNECTION_BROKEN),
    [RPI_CONNECTION_MADE] = RPI_STATE(RPI_CONNECTION_BROKEN),
    [RPI_CONNECTION_BROKEN] = 0,
};

static bool is_oversubscribed(const rpi_context *context) {
    const int *host_of = context->mesh->host_of;
    long here = 0;
    for (int rank = 0; rank < context->world; rank++)
        here += host_of[rank] == host_of[context->rank];
    return rpi_is_oversubscribed(here, rpi_host_cores());
}

/* Its endpoint does not say which links are ready. */
static bool is_polled(const rpi_link *link) {
    const rpi_transport *transport = link->endpoint->transport;
    return !transport->ready || !transport->ready(link->endpoint);
}

static void make_connection(rpi_context *context, int rank) {
    rpi_link *link = context->mesh->links[rank];
    rpi_connection *connection = &context->connections[rank];
    connection->link = link;
    if (connection->state != RPI_CONNECTION_BROKEN) /* a link that comes late is closed later */
        RPI_ENTER(connection_next, connection->state, RPI_CONNECTION_MADE);
    if (is_polled(link)) rpi_rank_set_put(&context->polled, rank);
}

void rpi_context_connect(rpi_context *context) {
    for (int rank = 0; rank < context->world; rank++)
        if (context->mesh->links[rank]) make_connection(context, rank);
    context->oversubscribed = is_oversubscribed(context);
}

void rpi_fin_free(rpi_fin *fin) {
    rpi_rank_set_free(&fin->untold);
    rpi_free(fin);
}

rp_status rpi_connection_send_header(rpi_connection *connection,
                                     const rpi_frame_header *header) {
    const rpi_transport *transport = connection->link->endpoint->transport;
    void *region = NULL;
    connection->link->traffic = RPI_TRAFFIC_PLAIN;
    RP_TRY(transport->reserve(connection->link, RPI_FRAME_HEADER_BYTES, &region));
    rpi_frame_seal(region, header, 0, transport->checksum);
    (void)transport->commit(connection->link,
                            RPI_FRAME_HEADER_BYTES); /* a failure: peek() tells */
    return RP_OK;
}

/* Frames for which the link has no room yet are sent by later iterations. */
static void send_fin(rpi_context *context, int rank) {
    for (rpi_fin **at = &context->fins, *fin; (fin = *at) != NULL;) {
        bool untold = fin->untold.bits[rank / 64] >> (rank % 64) & 1;
        rp_status status =
            untold ? rpi_connection_send_header(&context->connections[rank], &fin->header)
                   : RP_OK;
        if (status == RP_PENDING) context->fins_late = true;
        if (untold && status == RP_OK) {
            rpi_rank_set_remove(&fin->untold, rank);
            fin->count--;
        }
        if (fin->count > 0) {
            at = &fin->next;
            continue;
        }
        *at = fin->next;
        rpi_fin_free(fin);
    }
}

static void tell_late(rpi_context *context) {
    if (!context->fins_late) return;
    context->fins_late = false;
    for (int rank = 0; rank < context->world; rank++)
        if (context->connections[rank].state == RPI_CONNECTION_MADE) send_fin(context, rank);
}

bool rpi_context_connect_new_links(rpi_context *context) {
    bool moved = false;
    int rank = -1;
    if (!context->mesh || !context->mesh->on_need) return false;
    tell_late(context);
    for (rp_status status; (status = rpi_mesh_connected(context->mesh, &rank)) != RP_PENDING;) {
        moved = true;
        if (status == RP_OK) {
            make_connection(context, rank);
            send_fin(context, rank);
        } else {
            rpi_context_break(context, rank, status);
        }
    }
    return moved;
}

rpi_link *rpi_connection_link(rpi_connection *connection) {
    rpi_context *context = connection->context;
    if (connection->state != RPI_CONNECTION_NONE) return connection->link;
    RPI_ENTER(connection_next, connection->state, RPI_CONNECTION_CALLED);
    int rank = (int)(connection - context->connections);
    rp_status status = rpi_mesh_call(context->mesh, rank);
    if (status != RP_OK) rpi_context_break(context, rank, status);
    return NULL;
}

/* One control frame a communicator. */
static void drop_older(rpi_context *context, const rpi_frame_header *header) {
    rpi_fin **at = &context->fins;
    while (*at && ((*at)->header.communicator != header->communicator ||
                   (*at)->header.epoch != header->epoch))
        at = &(*at)->next;
    rpi_fin *older = *at;
    if (!older) return;
    *at = older->next;
    rpi_fin_free(older);
}

/* A rank that asks is told that this rank has left (late_links.c), so only the death that was
 * the reason is kept, at most one for each communicator. Without memory for it a rank that
 * waits for this one notices only by its timeout. */
void rpi_context_note_fin(rp_comm *comm, const rpi_frame_header *header) {
    rpi_context *context = comm->context;
    rpi_fin *fin = NULL;
    if (!context->mesh->on_need || !header->sequence) return;
    drop_older(context, header);
    if (rpi_alloc(sizeof *fin, "a FIN frame", &fin) != RP_OK) return;
    fin->header = *header;
    if (rpi_rank_set_make(context->world, &fin->untold) != RP_OK) {
        rpi_fin_free(fin);
        return;
    }
    for (int rank = 0; rank < comm->world; rank++) {
        const rpi_connection *connection = comm->peers[rank].connection;
        if (rank == comm->rank || connection->state > RPI_CONNECTION_CALLED) continue;
        rpi_rank_set_put(&fin->untold, comm->members[rank]);
        fin->count++;
    }
    fin->next = context->fins;
    if (fin->count > 0)
        context->fins = fin;
    else
        rpi_fin_free(fin);
}

/* ---- links ---- */

void rpi_connection_release(rpi_connection *connection) {
    rpi_rank_set_remove(&connection->context->heads,
                        (int)(connection - connection->context->connections));
    connection->head = NULL;
    connection->holder = NULL;
    connection->comm = NULL;
    connection->link->endpoint->transport->release(connection->link);
}

void rpi_context_break(rpi_context *context, int rank, rp_status status) {
    rpi_connection *connection = &context->connections[rank];
    if (connection->state == RPI_CONNECTION_BROKEN) return;
    RPI_ENTER(connection_next, connection->state, RPI_CONNECTION_BROKEN);
    connection->broken = status;
    context->breaks++;
    snprintf(connection->reason, sizeof connection->reason, "%s", rp_last_error()->message);
    for (rp_comm *comm = context->comms; comm; comm = comm->next) {
        int place = comm->place_of[rank];
        if (place < 0 || comm->peers[place].broken) continue;
        comm->peers[place].broken = status;
        comm->has_broken = true;
        comm->peers[place].reason = connection->reason;
    }
}

void rpi_context_fail_rank(rpi_context *context, int rank, rp_status status,
                           const char *message) {
    for (rp_comm *comm = context->comms; comm; comm = comm->next) {
        if (comm->place_of[rank] < 0) continue;
        rpi_comm_fail_text(comm, status, comm->place_of[rank], "%s", message);
        rpi_context_activate(comm);
    }
    rpi_context_break(context, rank, status);
}

void rpi_context_activate(rp_comm *comm) {
    if (comm->is_active) return;
    comm->is_active = true;
    comm->next_active = NULL;
    *comm->context->active_end = comm;
    comm->context->active_end = &comm->next_active;
}

/* ---- peers ---- */

void rpi_peer_break(rp_comm *comm, int rank, rp_status status) {
    rpi_context_break(comm->context, comm->members[rank], status);
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
    rpi_context_activate(comm);
}

void rpi_peer_receive_fin(rp_comm *comm, int rank, const rpi_frame_header *header) {
    uint64_t lost = header->sequence; /* one more than its place; 0: nobody */
    bool is_other = lost > 0 && lost <= (uint64_t)comm->world &&
                    lost != (uint64_t)comm->rank + 1 && lost != (uint64_t)rank + 1;
    if (is_other) fail_gone(comm, (int)lost - 1, rank);
    /* The first such frame of a making counts: later ones find that it has failed. */
    if (comm->making != RPI_COMM_MET && header->count != RPI_FIN_VOID)
        rpi_comm_go_to(comm, RPI_COMM_GIVEN_UP);
    rpi_peer_leave(comm, rank);
}
