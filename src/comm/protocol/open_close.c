/* Which communicators are open in a fabric, and frames that come before theirs is. */
#include "comm/protocol/open_close.h"
#include "comm/core/communicator.h"
#include "comm/core/frame_blocks.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/unexpected.h"

#include "base/memory.h"
#include "base/status.h"

/* Barriers of communicators that are being made, at most: headers of 64 bytes. */
enum { EARLY_MAX = 16384 };

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
