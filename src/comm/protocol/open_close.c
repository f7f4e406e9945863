/* Which communicators are open in a fabric, and frames that come before theirs is. */
#include "comm/protocol/open_close.h"
#include "comm/core/communicator.h"
#include "comm/core/frame_blocks.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/numbering.h"
#include "comm/protocol/offers.h"
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

static void enlist(rp_comm *comm) {
    rpi_fabric *fabric = comm->fabric;
    comm->next = fabric->comms;
    fabric->comms = comm;
    for (int rank = 0; rank < comm->world; rank++) {
        const rpi_port *port = comm->peers[rank].port;
        comm->peers[rank].broken = port->broken;
        if (port->broken) comm->has_broken = true;
        comm->peers[rank].reason = port->reason;
    }
}

rp_status rpi_fabric_open(rp_comm *comm) {
    rpi_fabric *fabric = comm->fabric;
    RP_TRY(rpi_index_put(&fabric->open, key_of(comm->id, comm->epoch), RPI_ALL_RANKS, comm));
    return take_early(comm);
}

rp_status rpi_fabric_add(rp_comm *comm) {
    RP_TRY(rpi_number_begin(comm));
    enlist(comm);
    rp_status status = comm->is_numbered ? rpi_fabric_open(comm) : RP_OK;
    if (comm->untold_count) rpi_fabric_activate(comm);
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
    rpi_number_end(comm);
    if (comm->is_numbered)
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

/* It was closed here, or is not for this rank any more: its numberer has told of it, or of one
 * behind it. */
static bool is_over(const rpi_fabric *fabric, const rpi_frame_header *header) {
    uint32_t numberer = header->communicator, world = (uint32_t)fabric->world;
    if (numberer == RPI_WORLD_NUMBERER)
        return fabric->has_had_world && header->epoch == fabric->world_epoch;
    if (!header->epoch || numberer > 2 * world) return false;
    if (numberer > world) return header->epoch <= fabric->ports[numberer - world - 1].listed;
    return header->epoch <= fabric->ports[numberer - 1].offered &&
           !rpi_offer_find(fabric, numberer, header->epoch);
}

/* Of single communicators that another rank numbers. */
static bool may_be_offered(const rpi_fabric *fabric, const rpi_frame_header *header) {
    uint32_t numberer = header->communicator;
    return numberer > 0 && numberer <= (uint32_t)fabric->world && header->epoch &&
           numberer != (uint32_t)fabric->rank + 1;
}

/* Who asks for this rank, or sends it what it is to answer, waits for what will not come. As a
 * rule it has been told; not where the link came later. */
static void answer_over(rpi_fabric *fabric, int rank, const rpi_frame_header *asked) {
    rpi_port *port = &fabric->ports[rank];
    rpi_frame_header header = {.kind = RPI_FRAME_LEFT,
                               .communicator = asked->communicator,
                               .epoch = asked->epoch,
                               .round = asked->communicator ? RPI_FRAME_EARLY : 0};
    bool waits = rpi_frame_rules[asked->kind].is_answered;
    if (waits && !port->broken) (void)rpi_port_tell(port, &header); /* if there is room */
}

static bool is_void(const rpi_frame_header *header, int rank) {
    return header->kind == RPI_FRAME_LEFT && header->count == RPI_LEFT_VOID &&
           header->communicator == (uint32_t)rank + 1;
}

static rp_status keep_early(rpi_fabric *fabric, int rank, const rpi_frame_header *header) {
    rpi_early *early = NULL, **end = &fabric->early;
    RP_TRY(rpi_alloc(sizeof *early, "an early frame", &early));
    early->rank = rank;
    early->header = *header;
    while (*end) end = &(*end)->next;
    *end = early;
    fabric->early_count++;
    return RP_OK;
}

rp_status rpi_fabric_take_unopened(rpi_fabric *fabric, int rank, const rpi_frame_header *header,
                                   const void *payload) {
    if (header->kind == RPI_FRAME_NUMBER) return rpi_offer_take(fabric, rank, header, payload);
    if (is_over(fabric, header)) {
        answer_over(fabric, rank, header);
        return RP_OK;
    }
    if (header->kind == RPI_FRAME_THERE) return RP_OK; /* it will be */
    if (is_void(header, rank)) {
        rpi_offer_take_back(fabric, header->communicator, header->epoch);
        return RP_OK;
    }
    if (may_be_early(header) && may_be_offered(fabric, header) &&
        fabric->early_count < EARLY_MAX)
        return keep_early(fabric, rank, header);
    const rp_comm *first = fabric->comms;
    return RP_FAIL(MISMATCH,
                   "rank %d sent a frame of communicator %u, epoch %u; this is %s "
                   "(%u), epoch %u",
                   rank, header->communicator, header->epoch, first->name, first->id,
                   first->epoch);
}
