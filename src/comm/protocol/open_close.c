/* Which communicators are open in a context, and frames that come before theirs is. */
#include "comm/protocol/open_close.h"
#include "comm/core/communicator.h"
#include "comm/core/frame_buffers.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/numbering.h"
#include "comm/protocol/offers.h"
#include "comm/protocol/unexpected.h"

#include "base/memory.h"
#include "base/status.h"

/* The most barriers of communicators that are being made: headers of 64 bytes. */
enum { UNOPENED_MAX = 16384 };

static uint64_t key_of(uint32_t id, uint32_t epoch) {
    return (uint64_t)epoch << 32 | id;
}

rp_comm *rpi_context_find(const rpi_context *context, uint32_t id, uint32_t epoch) {
    return rpi_index_find(&context->open, key_of(id, epoch), RPI_ALL_RANKS);
}

static rp_status deliver_unopened(rp_comm *comm, const rpi_unopened *unopened) {
    int rank = comm->place_of[unopened->rank];
    rpi_unexpected *unexpected = NULL;
    rpi_frame_buffer *buffer = NULL;
    if (rank < 0)
        return RP_FAIL(MISMATCH, "a rank that is no member of '%s' sent to it", comm->name);
    if (unopened->header.kind == RPI_FRAME_FIN) {
        rpi_peer_receive_fin(comm, rank, &unopened->header);
        return RP_OK;
    }
    RP_TRY(rpi_flow_come(comm, rank, &unopened->header, 0));
    RP_TRY(rpi_frame_buffer_take(comm->context, 0, &buffer));
    buffer->header = unopened->header;
    rp_status status = rpi_unexpected_get(comm, rank, unopened->header.sequence, &unexpected);
    if (status == RP_OK)
        rpi_frames_append(&unexpected->frames, buffer);
    else
        rpi_frame_buffer_give(comm->context, buffer);
    return status;
}

static rp_status take_unopened(rp_comm *comm) {
    rp_status status = RP_OK;
    for (rpi_unopened **at = &comm->context->unopened; *at && status == RP_OK;) {
        rpi_unopened *unopened = *at;
        if (unopened->header.communicator != comm->id ||
            unopened->header.epoch != comm->epoch) {
            at = &unopened->next;
            continue;
        }
        status = deliver_unopened(comm, unopened);
        *at = unopened->next;
        comm->context->unopened_count--;
        rpi_free(unopened);
    }
    return status;
}

static void enlist(rp_comm *comm) {
    rpi_context *context = comm->context;
    comm->next = context->comms;
    context->comms = comm;
    for (int rank = 0; rank < comm->world; rank++) {
        const rpi_connection *connection = comm->peers[rank].connection;
        comm->peers[rank].broken = connection->broken;
        if (connection->broken) comm->has_broken = true;
        comm->peers[rank].reason = connection->reason;
    }
}

rp_status rpi_context_open(rp_comm *comm) {
    rpi_context *context = comm->context;
    RP_TRY(rpi_index_put(&context->open, key_of(comm->id, comm->epoch), RPI_ALL_RANKS, comm));
    return take_unopened(comm);
}

rp_status rpi_context_add(rp_comm *comm) {
    RP_TRY(rpi_number_begin(comm));
    enlist(comm);
    rp_status status = rpi_comm_is_numbered(comm) ? rpi_context_open(comm) : RP_OK;
    if (comm->untold_count) rpi_context_activate(comm);
    if (status != RP_OK) (void)rpi_context_remove(comm);
    return status;
}

static void deactivate(rp_comm *comm) {
    rpi_context *context = comm->context;
    rp_comm **at = &context->active;
    while (*at && *at != comm) at = &(*at)->next_active;
    if (!*at) return;
    *at = comm->next_active;
    if (!*at) context->active_end = at;
    comm->is_active = false;
}

/* A window may ask for progress while no operation is in flight for which a destroy would
 * wait. */
static void leave_inboxes(rp_comm *comm) {
    rpi_context *context = comm->context;
    pthread_mutex_lock(&context->lock);
    rp_comm **at = &context->inboxes;
    while (*at && *at != comm) at = &(*at)->next_inbox;
    if (*at) *at = comm->next_inbox;
    comm->has_inbox = false;
    if (!context->inboxes) atomic_store(&context->posted, false);
    pthread_mutex_unlock(&context->lock);
}

bool rpi_context_remove(rp_comm *comm) {
    rpi_context *context = comm->context;
    leave_inboxes(comm);
    rp_comm **at = &context->comms;
    while (*at && *at != comm) at = &(*at)->next;
    if (*at) *at = comm->next;
    deactivate(comm);
    rpi_number_end(comm);
    if (rpi_comm_is_numbered(comm))
        rpi_index_remove(&context->open, key_of(comm->id, comm->epoch), RPI_ALL_RANKS);
    for (int rank = rpi_rank_set_next(&context->heads, 0); rank >= 0;
         rank = rpi_rank_set_next(&context->heads, rank + 1))
        if (context->connections[rank].comm == comm)
            rpi_connection_release(&context->connections[rank]);
    if (rpi_comm_has_failed(comm)) context->failed = true;
    return !context->comms;
}

/* ---- frames of no communicator that is open ---- */

/* Frames that may come before their communicator is opened here: its first barrier, and that a
 * rank has left. */
static bool may_be_unopened(const rpi_frame_header *header) {
    return !header->bytes && header->round & RPI_FRAME_BEFORE_OPEN;
}

/* It was closed here, or does not have this rank any more: its numberer has told us of it, or
 * of a later one. */
static bool is_over(const rpi_context *context, const rpi_frame_header *header) {
    uint32_t numberer = header->communicator, world = (uint32_t)context->world;
    if (numberer == RPI_WORLD_NUMBERER)
        return context->has_had_world && header->epoch == context->world_epoch;
    if (!header->epoch || numberer > 2 * world) return false;
    if (numberer > world)
        return header->epoch <= context->connections[numberer - world - 1].listed;
    return header->epoch <= context->connections[numberer - 1].offered &&
           !rpi_offer_find(context, numberer, header->epoch);
}

/* Of single communicators that another rank numbers. */
static bool may_be_offered(const rpi_context *context, const rpi_frame_header *header) {
    uint32_t numberer = header->communicator;
    return numberer > 0 && numberer <= (uint32_t)context->world && header->epoch &&
           numberer != (uint32_t)context->rank + 1;
}

/* A rank that asks for this one, or sends it a frame that needs an answer, waits in vain.
 * Usually it has been told; not if the link was made later. */
static void answer_over(rpi_context *context, int rank, const rpi_frame_header *asked) {
    rpi_connection *connection = &context->connections[rank];
    rpi_frame_header header = {.kind = RPI_FRAME_FIN,
                               .communicator = asked->communicator,
                               .epoch = asked->epoch,
                               .round = asked->communicator ? RPI_FRAME_BEFORE_OPEN : 0};
    bool waits = rpi_frame_rules[asked->kind].is_answered;
    if (waits && !connection->broken)
        (void)rpi_connection_send_header(connection, &header); /* if there is room */
}

static bool is_void(const rpi_frame_header *header, int rank) {
    return header->kind == RPI_FRAME_FIN && header->count == RPI_FIN_VOID &&
           header->communicator == (uint32_t)rank + 1;
}

static rp_status keep_unopened(rpi_context *context, int rank, const rpi_frame_header *header) {
    rpi_unopened *unopened = NULL, **end = &context->unopened;
    RP_TRY(rpi_alloc(sizeof *unopened, "an early frame", &unopened));
    unopened->rank = rank;
    unopened->header = *header;
    while (*end) end = &(*end)->next;
    *end = unopened;
    context->unopened_count++;
    return RP_OK;
}

rp_status rpi_context_take_unopened(rpi_context *context, int rank,
                                    const rpi_frame_header *header, const void *payload) {
    if (header->kind == RPI_FRAME_NUMBER) return rpi_offer_take(context, rank, header, payload);
    if (is_over(context, header)) {
        answer_over(context, rank, header);
        return RP_OK;
    }
    if (header->kind == RPI_FRAME_PING) return RP_OK; /* it will be */
    if (is_void(header, rank)) {
        rpi_offer_take_back(context, header->communicator, header->epoch);
        return RP_OK;
    }
    if (may_be_unopened(header) && may_be_offered(context, header) &&
        context->unopened_count < UNOPENED_MAX)
        return keep_unopened(context, rank, header);
    const rp_comm *first = context->comms;
    return RP_FAIL(MISMATCH,
                   "rank %d sent a frame of communicator %u, epoch %u; this is %s "
                   "(%u), epoch %u",
                   rank, header->communicator, header->epoch, first->name, first->id,
                   first->epoch);
}
