/* Sends and receives: their numbers, and who is meant by a receive from any rank.
 *
 * A send and its receive meet by number: each side counts what it posts for a pair, a direction
 * and a tag. A receive from any rank has none until a send is left over for it. So a sender
 * whose receiver has not said that it is ready announces the send with a header alone, which
 * the receiver counts and gives back at once: it stands in nothing's way. */
#include "comm/communicator.h"
#include "comm/posting.h"

#include "base/fpenv.h"
#include "base/memory.h"
#include "base/status.h"

/* Point to point runs a schedule of a world of two: 0 sends, 1 receives. */
enum { SENDER, RECEIVER };
enum { ANYBODY = -1 };

static bool is_send(const rp_request *request) {
    return request->routine->schedule.rank == SENDER;
}

/* ---- numbers ---- */

static uint64_t sequence_of(bool upward, int tag, uint32_t number) {
    return RPI_P2P_SEQUENCE | (upward ? RPI_P2P_UPWARD : 0) |
           (uint64_t)tag << RPI_P2P_TAG_SHIFT | number;
}

static int tag_of(uint64_t sequence) {
    return (int)(sequence >> RPI_P2P_TAG_SHIFT & (RPI_P2P_NUMBERS - 1));
}

/* Does this rank send what the sequence number counts? */
static bool is_ours(const rp_comm *comm, int rank, uint64_t sequence) {
    return ((sequence & RPI_P2P_UPWARD) != 0) == (comm->rank < rank);
}

rp_status rpi_p2p_number(rp_request *request) {
    rp_comm *comm = request->comm;
    if (request->peer == ANYBODY) {
        request->sequence = sequence_of(false, request->tag, 0);
        return RP_OK;
    }
    rpi_tag *tag = NULL;
    RP_TRY(rpi_tags_get(&comm->peers[request->peer].tags, request->tag, &tag));
    uint32_t *count = is_send(request) ? &tag->sent : &tag->received;
    *count = rpi_tag_next(*count);
    bool upward = is_send(request) == (comm->rank < request->peer);
    request->sequence = sequence_of(upward, request->tag, *count);
    return RP_OK;
}

bool rpi_p2p_is_future(const rp_comm *comm, int rank, const rpi_frame_header *header) {
    return is_ours(comm, rank, header->sequence) && header->bytes == 0;
}

/* ---- announcements ---- */

/* The receiver's token is here: it waits for this very send. */
static bool has_token(const rp_request *request) {
    const rp_comm *comm = request->comm;
    const rpi_port *port = comm->peers[request->peer].port;
    bool waits = port->head && !port->holder && port->comm == comm;
    if (waits && port->header.sequence == request->sequence) return true;
    const rpi_chunk *first = request->chunks;
    return (first && first->aside[RECEIVER].first) || !rpi_p2p_is_alone(request) ||
           rpi_aside_find(comm, request->peer, request->sequence);
}

/* True: done, or of no use any more. */
static bool announce(const rp_request *request) {
    if (has_token(request)) return true;
    rpi_frame_header header = request->header;
    header.kind = RPI_FRAME_ANNOUNCE;
    return rpi_flow_tell(request->comm, request->peer, &header) == RP_OK;
}

bool rpi_p2p_is_announced(const rp_request *request) {
    rp_comm *comm = request->comm;
    pthread_mutex_lock(&comm->fabric->lock);
    const rpi_tag *tag = rpi_tags_find(&comm->peers[request->peer].tags, request->tag);
    uint32_t number = (uint32_t)(request->sequence % RPI_P2P_NUMBERS);
    bool is_announced = tag && !rpi_tag_is_news(tag, number);
    pthread_mutex_unlock(&comm->fabric->lock);
    return is_announced;
}

void rpi_p2p_hear(rp_comm *comm, int rank, const rpi_frame_header *header) {
    uint64_t sequence = header->sequence;
    if (!(sequence & RPI_P2P_SEQUENCE) || is_ours(comm, rank, sequence) || header->bytes) {
        rpi_comm_fail_text(comm, RP_CORRUPT, rank,
                           "rank %d announced operation %llu, which it cannot send", rank,
                           (unsigned long long)sequence);
        return;
    }
    uint32_t number = (uint32_t)(sequence % RPI_P2P_NUMBERS);
    rpi_tag *tag = NULL;
    pthread_mutex_lock(&comm->fabric->lock);
    rp_status status = rpi_tags_get(&comm->peers[rank].tags, tag_of(sequence), &tag);
    comm->announcements++;
    if (status == RP_OK && rpi_tag_is_news(tag, number)) {
        if (!rpi_tag_waits(tag)) tag->since = comm->announcements;
        tag->announced = number;
    }
    pthread_mutex_unlock(&comm->fabric->lock);
    if (status != RP_OK)
        rpi_comm_fail_text(comm, status, comm->rank, "%s", rp_last_error()->message);
}

/* ---- receives from any rank ---- */

bool rpi_p2p_is_unbound(const rp_request *request) {
    return request->collective == RPI_SENDRECV && request->peer == ANYBODY;
}

/* Under the lock: whose announcement for the tag has waited longest. */
static int first_sender(const rp_comm *comm, int tag) {
    int first = ANYBODY;
    uint64_t since = UINT64_MAX;
    for (int rank = 0; rank < comm->world; rank++) {
        const rpi_tag *counts = rpi_tags_find(&comm->peers[rank].tags, tag);
        if (!counts || !rpi_tag_waits(counts) || counts->since >= since) continue;
        first = rank;
        since = counts->since;
    }
    return first;
}

bool rpi_p2p_is_alone(const rp_request *request) {
    if (request->collective != RPI_SENDRECV) return false;
    /* What comes from the other side first: the token, or the data. */
    const rpi_chunk *first = request->chunks;
    int other = 1 - request->routine->schedule.rank;
    return !request->chunks_done && (!first || !first->received[other]);
}

/* From here on it is a receive like any other. */
static bool bind_to_sender(rp_request *request) {
    rp_comm *comm = request->comm;
    pthread_mutex_lock(&comm->fabric->lock);
    int rank = first_sender(comm, request->tag);
    if (rank != ANYBODY) {
        request->peer = rank;
        (void)rpi_p2p_number(request); /* the tag is in the table: nothing to allocate */
        request->header.sequence = request->sequence;
        /* What else it has announced stands behind what others have by now. */
        rpi_tags_find(&comm->peers[rank].tags, request->tag)->since = ++comm->announcements;
    }
    pthread_mutex_unlock(&comm->fabric->lock);
    return rank != ANYBODY;
}

bool rpi_p2p_prepare(rp_request *request) {
    if (rpi_p2p_is_unbound(request))
        return bind_to_sender(request) && rpi_request_enter(request);
    if (is_send(request) && !request->announced) request->announced = announce(request);
    return true;
}

/* ---- the public operations ---- */

static rp_status check_peer(const rp_comm *comm, int peer) {
    if (peer < 0 || peer >= comm->world || peer == comm->rank)
        return RP_FAIL(INVALID,
                       "rank %d cannot send to or receive from rank %d in a world of %d",
                       comm->rank, peer, comm->world);
    return RP_OK;
}

static rp_status check_call(const rp_comm *comm, rp_request *const *request, const char *what) {
    if (!comm) return RP_FAIL(INVALID, "%s: comm is NULL", what);
    if (!request) return RP_FAIL(INVALID, "%s: there is nowhere to put the request", what);
    return RP_OK;
}

static rp_status check_run(const rpi_run *run, int tag) {
    if (tag < 0) return RP_FAIL(INVALID, "tag is %d; 0 to 2147483647 are allowed", tag);
    if (!rp_dtype_bytes(run->dtype)) return RP_FAIL(INVALID, "%d is no dtype", (int)run->dtype);
    if (run->count > RPI_ELEMENTS_MAX)
        return RP_FAIL(INVALID, "%zu elements are more than can be; is that negative?",
                       run->count);
    if (run->count && !run->in && !run->out)
        return RP_FAIL(INVALID, "%zu elements and no data", run->count);
    return RP_OK;
}

static rp_status prepare(rp_request *request, const rpi_run *run, int side,
                         const rp_collective_options *options) {
    rp_comm *comm = request->comm;
    RP_TRY(rpi_cut_reserve(&request->cut, 1));
    request->cut.runs[0] = *run;
    request->collective = RPI_SENDRECV;
    rpi_plan_request plan = {.world = 2, .rank = side};
    RP_TRY(rpi_find_memory(request, options));
    const rpi_load load = {.device = request->device != NULL,
                           .bytes = run->count * rp_dtype_bytes(run->dtype)};
    RP_TRY(rpi_comm_routine(comm, RPI_SENDRECV, NULL, &plan, &load, &request->routine));
    int parts = request->routine->schedule.parts;
    size_t chunk_bytes = rpi_comm_chunk_bytes(comm, RPI_SPLIT_VECTOR, parts, false);
    RP_TRY(
        rpi_cut_make(&request->cut, RPI_SPLIT_VECTOR, parts, chunk_bytes, RPI_FRAME_PAYLOAD));
    return rpi_request_post(request);
}

static rp_status start(rp_comm *comm, const rpi_run *run, int peer, int tag, int side,
                       const rp_collective_options *options, rp_request **out_request) {
    RPI_FPENV_SCOPE;
    RP_TRY(check_run(run, tag));
    rp_request *request = NULL;
    RP_TRY(rpi_request_new(comm, &request));
    request->peer = peer;
    request->tag = tag;
    rp_status status = prepare(request, run, side, rpi_options_or_default(options));
    if (status != RP_OK) {
        rpi_request_free(request);
        return status;
    }
    *out_request = request;
    rpi_drive_once(comm);
    return RP_OK;
}

rp_status rp_send_with_start(rp_comm *comm, const void *data, size_t count, rp_dtype dtype,
                             int peer, int tag, const rp_collective_options *options,
                             rp_request **out_request) {
    RP_TRY(check_call(comm, out_request, "send"));
    RP_TRY(check_peer(comm, peer));
    return start(comm, &(rpi_run){.in = data, .count = count, .dtype = dtype}, peer, tag,
                 SENDER, options, out_request);
}

rp_status rp_recv_with_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype, int peer,
                             int tag, const rp_collective_options *options,
                             rp_request **out_request) {
    RP_TRY(check_call(comm, out_request, "receive"));
    RP_TRY(check_peer(comm, peer));
    return start(comm, &(rpi_run){.out = data, .count = count, .dtype = dtype}, peer, tag,
                 RECEIVER, options, out_request);
}

rp_status rp_recv_any_with_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype,
                                 int tag, const rp_collective_options *options,
                                 rp_request **out_request) {
    RP_TRY(check_call(comm, out_request, "receive"));
    if (comm->world == 1) return RP_FAIL(INVALID, "in a world of one nobody sends");
    return start(comm, &(rpi_run){.out = data, .count = count, .dtype = dtype}, ANYBODY, tag,
                 RECEIVER, options, out_request);
}

rp_status rp_send_start(rp_comm *comm, const void *data, size_t count, rp_dtype dtype, int peer,
                        int tag, rp_request **out_request) {
    return rp_send_with_start(comm, data, count, dtype, peer, tag, NULL, out_request);
}

rp_status rp_recv_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype, int peer,
                        int tag, rp_request **out_request) {
    return rp_recv_with_start(comm, data, count, dtype, peer, tag, NULL, out_request);
}

rp_status rp_recv_any_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype, int tag,
                            rp_request **out_request) {
    return rp_recv_any_with_start(comm, data, count, dtype, tag, NULL, out_request);
}
