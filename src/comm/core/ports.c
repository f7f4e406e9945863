/* The links of a fabric, which communicators it has, and whose a frame is. */
#include "comm/core/communicator.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#include <string.h>
#include <unistd.h>

/* Barriers of communicators that are being made, at most: headers of 64 bytes. */
enum { EARLY_MAX = 16384 };

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

/* What the link has no room for yet, later passes tell. */
static void tell_left(rpi_fabric *fabric, int rank) {
    rpi_link *link = fabric->ports[rank].link;
    const rpi_transport *transport = link->endpoint->transport;
    for (rpi_left **at = &fabric->left, *left; (left = *at) != NULL;) {
        void *region = NULL;
        bool untold = left->untold.bits[rank / 64] >> (rank % 64) & 1;
        rp_status status =
            untold ? transport->lend(link, RPI_FRAME_HEADER_BYTES, &region) : RP_OK;
        if (status == RP_PENDING) fabric->left_late = true;
        if (untold && status == RP_OK) {
            rpi_frame_seal(region, &left->header, 0, transport->checksum);
            (void)transport->post(link, RPI_FRAME_HEADER_BYTES); /* a failure: peek() tells */
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

/* Who makes a communicator of this id again knows that all members have, too: one word an id.
 */
static void forget_older(rpi_fabric *fabric, uint32_t id) {
    rpi_left **at = &fabric->left;
    while (*at && (*at)->header.communicator != id) at = &(*at)->next;
    rpi_left *older = *at;
    if (!older) return;
    *at = older->next;
    rpi_left_free(older);
}

/* Without memory for it a rank that waits for this one hears nothing before its timeout. */
void rpi_fabric_note_left(rp_comm *comm, const rpi_frame_header *header) {
    rpi_fabric *fabric = comm->fabric;
    rpi_left *left = NULL;
    if (!fabric->mesh->on_need) return;
    forget_older(fabric, header->communicator);
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

/* ---- communicators ---- */

static uint64_t key_of(uint32_t id, uint32_t epoch) {
    return (uint64_t)epoch << 32 | id;
}

rp_comm *rpi_fabric_find(const rpi_fabric *fabric, uint32_t id, uint32_t epoch) {
    return rpi_index_find(&fabric->open, key_of(id, epoch), RPI_ALL_RANKS);
}

/* The value of an id in `made` is a number, one more than its last epoch: never NULL. */
static uint64_t made_of(const rpi_fabric *fabric, uint32_t id) {
    return (uintptr_t)rpi_index_find(&fabric->made, id, RPI_ALL_RANKS);
}

static rp_status note_made(rpi_fabric *fabric, uint32_t id, uint32_t epoch) {
    rpi_index_remove(&fabric->made, id, RPI_ALL_RANKS);
    return rpi_index_put(&fabric->made, id, RPI_ALL_RANKS, (void *)((uintptr_t)epoch + 1));
}

uint32_t rpi_fabric_next_epoch(const rpi_fabric *fabric, uint32_t id) {
    return (uint32_t)made_of(fabric, id);
}

static rp_status deliver_early(rp_comm *comm, const rpi_early *early) {
    int rank = comm->place_of[early->rank];
    rpi_aside *aside = NULL;
    rpi_block *block = NULL;
    if (rank < 0)
        return RP_FAIL(MISMATCH, "a rank that is no member of '%s' sent to it", comm->name);
    if (early->header.kind == RPI_FRAME_LEFT) {
        rpi_peer_hear_left(comm, rank, &early->header);
        return RP_OK;
    }
    RP_TRY(rpi_flow_come(comm, rank, &early->header, 0));
    RP_TRY(rpi_block_take(comm->fabric, 0, &block));
    block->header = early->header;
    rp_status status = rpi_aside_get(comm, rank, early->header.sequence, &aside);
    if (status == RP_OK)
        rpi_frames_append(&aside->frames, block);
    else
        rpi_block_give(comm->fabric, block);
    return status;
}

static rp_status take_early(rp_comm *comm) {
    rp_status status = RP_OK;
    for (rpi_early **at = &comm->fabric->early; *at && status == RP_OK;) {
        rpi_early *early = *at;
        if (early->header.communicator != comm->id || early->header.epoch != comm->epoch) {
            at = &early->next;
            continue;
        }
        status = deliver_early(comm, early);
        *at = early->next;
        comm->fabric->early_count--;
        rpi_free(early);
    }
    return status;
}

rp_status rpi_fabric_add(rp_comm *comm) {
    rpi_fabric *fabric = comm->fabric;
    RP_TRY(note_made(fabric, comm->id, comm->epoch));
    RP_TRY(rpi_index_put(&fabric->open, key_of(comm->id, comm->epoch), RPI_ALL_RANKS, comm));
    comm->next = fabric->comms;
    fabric->comms = comm;
    for (int rank = 0; rank < comm->world; rank++) {
        const rpi_port *port = comm->peers[rank].port;
        comm->peers[rank].broken = port->broken;
        if (port->broken) comm->has_broken = true;
        comm->peers[rank].reason = port->reason;
    }
    rp_status status = take_early(comm);
    if (status != RP_OK) (void)rpi_fabric_remove(comm);
    return status;
}

static void deactivate(rp_comm *comm) {
    rpi_fabric *fabric = comm->fabric;
    rp_comm **at = &fabric->active;
    while (*at && *at != comm) at = &(*at)->next_active;
    if (!*at) return;
    *at = comm->next_active;
    if (!*at) fabric->active_end = at;
    comm->is_active = false;
}

/* Windows call the driver without an operation in flight, which a destroy would wait for. */
static void forget_call(rp_comm *comm) {
    rpi_fabric *fabric = comm->fabric;
    pthread_mutex_lock(&fabric->lock);
    rp_comm **at = &fabric->callers;
    while (*at && *at != comm) at = &(*at)->next_caller;
    if (*at) *at = comm->next_caller;
    comm->is_caller = false;
    if (!fabric->callers) atomic_store(&fabric->posted, false);
    pthread_mutex_unlock(&fabric->lock);
}

bool rpi_fabric_remove(rp_comm *comm) {
    rpi_fabric *fabric = comm->fabric;
    forget_call(comm);
    rp_comm **at = &fabric->comms;
    while (*at && *at != comm) at = &(*at)->next;
    if (*at) *at = comm->next;
    deactivate(comm);
    rpi_index_remove(&fabric->open, key_of(comm->id, comm->epoch), RPI_ALL_RANKS);
    for (int rank = rpi_rank_set_next(&fabric->heads, 0); rank >= 0;
         rank = rpi_rank_set_next(&fabric->heads, rank + 1))
        if (fabric->ports[rank].comm == comm) rpi_port_release(&fabric->ports[rank]);
    if (atomic_load(&comm->failed)) fabric->failed = true;
    return !fabric->comms;
}

void rpi_fabric_activate(rp_comm *comm) {
    if (comm->is_active) return;
    comm->is_active = true;
    comm->next_active = NULL;
    *comm->fabric->active_end = comm;
    comm->fabric->active_end = &comm->next_active;
}

/* ---- frames of no communicator that is open ---- */

/* What may come before its communicator is opened here: its first barrier, and that a rank has
 * left. */
static bool may_be_early(const rpi_frame_header *header) {
    return !header->bytes && header->round & RPI_FRAME_EARLY;
}

rp_status rpi_fabric_take_unopened(rpi_fabric *fabric, int rank,
                                   const rpi_frame_header *header) {
    if (header->epoch < made_of(fabric, header->communicator)) return RP_OK;
    if (!may_be_early(header) || fabric->early_count == EARLY_MAX) {
        const rp_comm *first = fabric->comms;
        return RP_FAIL(
            MISMATCH,
            "rank %d sent a frame of communicator %08x, epoch %u; this is %s (%08x), "
            "epoch %u",
            rank, header->communicator, header->epoch, first->name, first->id, first->epoch);
    }
    rpi_early *early = NULL, **end = &fabric->early;
    RP_TRY(rpi_alloc(sizeof *early, "an early frame", &early));
    early->rank = rank;
    early->header = *header;
    while (*end) end = &(*end)->next;
    *end = early;
    fabric->early_count++;
    return RP_OK;
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
