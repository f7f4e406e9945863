/* Sends and receives: how an RTS precedes a send, and which rank a receive from any rank takes.
 *
 * A send and its receive are matched by number: each side counts its operations for a pair, a
 * direction and a tag. A receive from any rank has no number until a send is available for it.
 * So a sender whose receiver has not sent an RTR sends an RTS first, a header alone, which the
 * receiver counts and releases at once, so that it blocks nothing. */
#include "comm/protocol/pair_protocol.h"
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/protocol/control_frame.h"
#include "comm/protocol/operation_kinds.h"
#include "comm/protocol/unexpected.h"

#include "base/status.h"

#include <stdio.h>

static int tag_of(uint64_t sequence) {
    return (int)(sequence >> RPI_P2P_TAG_SHIFT & (RPI_P2P_NUMBERS - 1));
}

/* Whether this rank sends the message with this sequence number. */
static bool is_ours(const rp_comm *comm, int rank, uint64_t sequence) {
    return ((sequence & RPI_P2P_UPWARD) != 0) == (comm->rank < rank);
}

/* It is a receiver's RTR, whose send comes later. */
static bool is_future(const rp_comm *comm, int rank, const rpi_frame_header *header) {
    return is_ours(comm, rank, header->sequence) && header->bytes == 0;
}

static uint64_t sequence_of(bool upward, int tag, uint32_t number) {
    return RPI_P2P_SEQUENCE | (upward ? RPI_P2P_UPWARD : 0) |
           (uint64_t)tag << RPI_P2P_TAG_SHIFT | number;
}

/* The number of a receive from any rank until its sender is known. */
static rp_status number(rp_request *request) {
    rp_comm *comm = request->comm;
    if (rpi_request_is_unbound(request)) {
        request->sequence = sequence_of(false, request->tag, 0);
        return RP_OK;
    }
    rpi_tag *tag = NULL;
    RP_TRY(rpi_tags_get(&comm->peers[request->peer].tags, request->tag, &tag));
    uint32_t *count = rpi_p2p_is_send(request) ? &tag->sent : &tag->received;
    *count = rpi_tag_next(*count);
    bool upward = rpi_p2p_is_send(request) == (comm->rank < request->peer);
    request->sequence = sequence_of(upward, request->tag, *count);
    return RP_OK;
}

/* ---- RTS frames ---- */

/* The RTS of the message that this receive is for has come. */
static bool has_rts(const rp_request *request) {
    rp_comm *comm = request->comm;
    pthread_mutex_lock(&comm->context->lock);
    const rpi_tag *tag = rpi_tags_find(&comm->peers[request->peer].tags, request->tag);
    uint32_t number = (uint32_t)(request->sequence % RPI_P2P_NUMBERS);
    bool has_come = tag && !rpi_tag_is_new(tag, number);
    pthread_mutex_unlock(&comm->context->lock);
    return has_come;
}

void rpi_p2p_receive_rts(rp_comm *comm, int rank, const rpi_frame_header *header) {
    uint64_t sequence = header->sequence;
    if (!(sequence & RPI_P2P_SEQUENCE) || is_ours(comm, rank, sequence)) {
        rpi_comm_fail_text(comm, RP_CORRUPT, rank,
                           "rank %d announced operation %llu, which it cannot send", rank,
                           (unsigned long long)sequence);
        return;
    }
    uint32_t number = (uint32_t)(sequence % RPI_P2P_NUMBERS);
    rpi_tags *tags = &comm->peers[rank].tags;
    rpi_tag *tag = NULL;
    pthread_mutex_lock(&comm->context->lock);
    bool is_too_many = tags->count >= RPI_TAGS_MOST && !rpi_tags_find(tags, tag_of(sequence));
    rp_status status = is_too_many ? RP_FAIL(CORRUPT,
                                             "rank %d announced messages of more than "
                                             "%d tags",
                                             rank, RPI_TAGS_MOST)
                                   : rpi_tags_get(tags, tag_of(sequence), &tag);
    comm->rts_frames++;
    if (status == RP_OK && rpi_tag_is_new(tag, number)) {
        if (!rpi_tag_waits(tag)) tag->since = comm->rts_frames;
        tag->has_rts = number;
    }
    pthread_mutex_unlock(&comm->context->lock);
    if (status != RP_OK)
        rpi_comm_fail_text(comm, status, comm->rank, "%s", rp_last_error()->message);
}

static bool is_alone(const rp_request *request) {
    /* The first frame from the other side: the RTR, or the data. */
    const rpi_chunk *first = request->chunks;
    int other = 1 - request->compiled->schedule.rank;
    return !request->chunks_done && (!first || !first->received[other]);
}

/* The receiver's RTR has come: it waits for this very send. */
static bool has_rtr(const rp_request *request) {
    const rp_comm *comm = request->comm;
    const rpi_connection *connection = comm->peers[request->peer].connection;
    bool waits = connection->head && !connection->holder && connection->comm == comm;
    if (waits && connection->header.sequence == request->sequence) return true;
    const rpi_chunk *first = request->chunks;
    return (first && first->unexpected[RPI_PAIR_RECEIVER].first) || !is_alone(request) ||
           rpi_unexpected_find(comm, request->peer, request->sequence);
}

/* True: done, or not needed any more. */
static bool rts_is_sent(const rp_request *request) {
    if (has_rtr(request)) return true;
    rpi_frame_header header = request->header;
    header.kind = RPI_FRAME_RTS;
    return rpi_control_frame_send(request->comm, request->peer, &header) == RP_OK;
}

/* ---- receives from any rank ---- */

/* Under the lock: the rank whose RTS for the tag has waited longest. */
static int first_sender(const rp_comm *comm, int tag) {
    int first = RPI_ANYBODY;
    uint64_t since = UINT64_MAX;
    for (int rank = 0; rank < comm->world; rank++) {
        const rpi_tag *counts = rpi_tags_find(&comm->peers[rank].tags, tag);
        if (!counts || !rpi_tag_waits(counts) || counts->since >= since) continue;
        first = rank;
        since = counts->since;
    }
    return first;
}

/* From here on it is a receive like any other. */
bool rpi_p2p_bind(rp_request *request) {
    rp_comm *comm = request->comm;
    pthread_mutex_lock(&comm->context->lock);
    int rank = first_sender(comm, request->tag);
    if (rank != RPI_ANYBODY) {
        request->peer = rank;
        (void)number(request); /* the tag is in the table: nothing to allocate */
        request->header.sequence = request->sequence;
        /* Its other RTS frames count as later than those that other ranks have sent so far. */
        rpi_tags_find(&comm->peers[rank].tags, request->tag)->since = ++comm->rts_frames;
    }
    pthread_mutex_unlock(&comm->context->lock);
    return rank != RPI_ANYBODY;
}

/* ---- the kind ---- */

static rp_status compile(rp_request *request, const char *algorithm,
                         const rpi_plan_request *plan, const rpi_load *load) {
    return rpi_comm_compiled_schedule(request->comm, request->collective, algorithm, plan, load,
                                      &request->compiled);
}

static int rank_of(const rp_request *request, int peer) {
    (void)peer;
    return request->peer;
}

static int other_side(const rp_request *request, int rank) {
    (void)rank;
    return 1 - request->compiled->schedule.rank;
}

static void see(const rp_request *request) {
    (void)request; /* numbers of pairs are compared with tags */
}

/* A receive needs no RTS: it sends an RTR. */
static void send_rts(rp_request *request) {
    if (!request->has_rts) request->has_rts = !rpi_p2p_is_send(request) || rts_is_sent(request);
}

/* Data answers an RTR. */
static bool has_cts(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    (void)chunk;
    return instruction->from != RPI_SLOT_RTR;
}

/* An RTR, which may wait for the RTS. */
static rp_status await_rts(rp_request *request, int rank, uint32_t chunk) {
    (void)rank;
    (void)chunk;
    if (has_rts(request)) return RP_OK;
    request->awaits_control = request->comm->control_frames;
    return RP_PENDING;
}

static void name(const rp_request *request, char *text, size_t bytes) {
    char tag[32] = "", peer[16] = "any rank";
    if (request->tag) snprintf(tag, sizeof tag, " with tag %d", request->tag);
    if (request->peer >= 0) snprintf(peer, sizeof peer, "rank %d", request->peer);
    snprintf(text, bytes, "%s %s%s", rpi_p2p_is_send(request) ? "send to" : "receive from",
             peer, tag);
}

const rpi_operation_kind rpi_operation_pair = {
    .by_pair = true,
    .compile = compile,
    .number = number,
    .rank_of = rank_of,
    .source = other_side,
    .destination = other_side,
    .see = see,
    .send_rts = send_rts,
    .is_alone = is_alone,
    .has_cts = has_cts,
    .await_cts = await_rts,
    .is_future = is_future,
    .refuse = rpi_receive_fail_chunk,
    .name = name,
};
