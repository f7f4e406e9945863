/* Flow control: which frame may leave, so that every legal program ends.
 *
 * The rule: a frame leaves when its chunk is known to have started at its receiver, and so has
 * a place there, or as one of the few bytes that the receiver has promised to set aside for
 * this link. What stands at the head of a link can therefore always be moved out of it, and
 * nothing that is needed waits behind what nobody has asked for. docs/comm.md has the proof.
 * (A head whose sender has withdrawn it stays until the failure is heard, by other ways.)
 *
 *      a SEND whose turn has come
 *        | the chunk has started there          | not known to have
 *        |                                      +-- promised bytes left ----> leaves, EAGER
 *        v                                      +-- none: ASK once, wait
 *      leaves, DATA <--- a GRANT, or any frame of that chunk or a later one, from there
 *                                               +-- CREDIT: bytes again ----> leaves, EAGER
 *
 *      at the receiver, an EAGER frame
 *        | its chunk has started           | it has not
 *        v                                 v
 *      has its place: the bytes      lies in the link, then aside, in comm->aside
 *      are promised anew (CREDIT)          | the chunk starts: rpi_receive_adopt()
 *            ^-----------------------------+
 *
 * An operation in which all ranks take part at once never comes to ASK: the frames of the
 * others are its grants, and the promise covers what is under way. Tokens of receives need no
 * GRANT either: a send that has no token announces itself, which says as much.
 *
 * What is promised beyond a small base comes out of one account for the whole process, so that
 * many communicators together hold no more than one could. */
#include "comm/protocol/flow.h"
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/protocol/control_frame.h"
#include "comm/protocol/pair_protocol.h"
#include "comm/protocol/round_protocol.h"
#include "comm/protocol/unexpected.h"

#include "base/status.h"

/* The only state of the process: bytes promised beyond RPI_EAGER_BASE, by all communicators. */
static atomic_size_t promised;

/* A link takes no more than this share of what is left: later ones find something too. */
enum { SHARE = 8 };

void rpi_flow_init(rp_comm *comm) {
    comm->words = 1;
    comm->seen_round = RPI_ROUND_SEQUENCE;
    for (int rank = 0; rank < comm->world; rank++) {
        rpi_peer *peer = &comm->peers[rank];
        peer->eager_room = peer->eager_limit = peer->eager_bound = RPI_EAGER_BASE;
    }
}

void rpi_flow_close(rp_comm *comm) {
    for (int rank = 0; rank < comm->world; rank++)
        atomic_fetch_sub(&promised, comm->peers[rank].eager_room - RPI_EAGER_BASE);
}

size_t rpi_flow_promised(void) {
    return atomic_load(&promised);
}

static uint64_t cost_of(size_t bytes) {
    return RPI_FRAME_COST + bytes;
}

/* ---- sending ---- */

static bool is_granted(const rpi_chunk *chunk, const rpi_action *action) {
    const rp_request *request = chunk->request;
    if (request->collective == RPI_SENDRECV)
        return action->from != RPI_SLOT_TOKEN; /* data answers a token */
    return chunk->index < request->edges[rpi_request_rank(request, action->peer)].granted;
}

static bool has_credit(const rpi_peer *peer, size_t bytes) {
    return peer->eager_sent + cost_of(bytes) <= peer->eager_limit;
}

static void ask(rp_request *request, int rank, uint32_t chunk) {
    rpi_flow_edge *edge = &request->edges[rank];
    if (edge->asked) return;
    rpi_frame_header header = request->header;
    header.kind = RPI_FRAME_ASK;
    header.chunk = chunk;
    edge->asked = rpi_flow_tell(request->comm, rank, &header) == RP_OK;
}

/* A token, which may wait for the announcement; a collective's frame asks. */
static rp_status admit_late(rp_request *request, int rank, uint32_t chunk) {
    if (request->collective != RPI_SENDRECV)
        ask(request, rank, chunk);
    else if (rpi_p2p_is_announced(request))
        return RP_OK;
    else
        request->awaits_word = request->comm->words;
    return RP_PENDING;
}

rp_status rpi_flow_admit(rpi_chunk *chunk, const rpi_action *action, size_t bytes,
                         uint8_t *out_kind) {
    rp_request *request = chunk->request;
    int rank = rpi_request_rank(request, action->peer);
    *out_kind = RPI_FRAME_DATA;
    if (is_granted(chunk, action)) return RP_OK;
    if (!has_credit(&request->comm->peers[rank], bytes))
        return admit_late(request, rank, chunk->index);
    *out_kind = RPI_FRAME_EAGER;
    return RP_OK;
}

void rpi_flow_sent(const rpi_chunk *chunk, const rpi_action *action, size_t bytes,
                   uint8_t kind) {
    const rp_request *request = chunk->request;
    int rank = rpi_request_rank(request, action->peer);
    if (kind == RPI_FRAME_EAGER) request->comm->peers[rank].eager_sent += cost_of(bytes);
    if (request->collective == RPI_SENDRECV) return;
    rpi_flow_edge *edge = &request->edges[rank];
    if (edge->told <= chunk->index) edge->told = chunk->index + 1;
}

bool rpi_flow_is_held(const rpi_chunk *chunk, const rpi_action *action) {
    const rp_request *request = chunk->request;
    if (rpi_in_place_is_lent(chunk, (int)(action - request->routine->action))) return true;
    if (action->kind != RPI_STEP_SEND || request->collective == RPI_SENDRECV) return false;
    size_t bytes = rpi_action_bytes(request, chunk->index, action);
    return !is_granted(chunk, action) &&
           !has_credit(&request->comm->peers[rpi_request_rank(request, action->peer)], bytes);
}

/* ---- receiving ---- */

/* Once somebody sends unasked, promise him more. */
static void grow_room(rp_comm *comm, rpi_peer *peer) {
    size_t before = atomic_load(&promised);
    while (peer->eager_room < RPI_EAGER_LINK && before < RPI_EAGER_PROCESS) {
        size_t more = (RPI_EAGER_PROCESS - before) / SHARE;
        size_t wanted = RPI_EAGER_LINK - peer->eager_room;
        if (more > wanted) more = wanted;
        if (more < RPI_EAGER_BASE) return;
        if (!atomic_compare_exchange_weak(&promised, &before, before + more)) continue;
        peer->eager_room += more;
        comm->credit_due = true;
        return;
    }
}

static uint64_t owed(const rpi_peer *peer) {
    return peer->eager_taken + peer->eager_room - peer->eager_bound;
}

static bool is_worth_telling(const rpi_peer *peer) {
    return owed(peer) >= peer->eager_room / 4;
}

rp_status rpi_flow_come(rp_comm *comm, int rank, const rpi_frame_header *header, size_t bytes) {
    rpi_peer *peer = &comm->peers[rank];
    if (header->kind != RPI_FRAME_EAGER) return RP_OK;
    peer->eager_come += cost_of(bytes);
    if (peer->eager_come > peer->eager_bound) {
        rpi_comm_fail_text(comm, RP_CORRUPT, rank,
                           "rank %d sent more than was promised to be set aside for it", rank);
        return RP_CORRUPT;
    }
    if (peer->eager_room < RPI_EAGER_LINK) grow_room(comm, peer);
    return RP_OK;
}

void rpi_flow_placed(rp_request *request, int rank, const rpi_frame_header *header,
                     size_t bytes) {
    rp_comm *comm = request->comm;
    rpi_peer *peer = &comm->peers[rank];
    if (header->kind == RPI_FRAME_EAGER) {
        peer->eager_taken += cost_of(bytes);
        if (is_worth_telling(peer)) comm->credit_due = true;
    }
    rpi_flow_heard_from(request, rank, header);
}

void rpi_flow_heard_from(rp_request *request, int rank, const rpi_frame_header *header) {
    if (request->collective == RPI_SENDRECV) return;
    rpi_flow_edge *edge = &request->edges[rank];
    if (edge->granted <= header->chunk) edge->granted = header->chunk + 1;
}

/* ---- what is said about it ---- */

void rpi_flow_credit(rp_comm *comm) {
    rpi_frame_header header = {
        .kind = RPI_FRAME_CREDIT, .communicator = comm->id, .epoch = comm->epoch};
    comm->credit_due = false;
    for (int rank = 0; rank < comm->world; rank++) {
        rpi_peer *peer = &comm->peers[rank];
        if (!rpi_peer_link(peer) || peer->broken || !is_worth_telling(peer)) continue;
        header.sequence = peer->eager_taken + peer->eager_room;
        rp_status status = rpi_flow_tell(comm, rank, &header);
        if (status == RP_OK) peer->eager_bound = header.sequence;
        comm->credit_due |= status == RP_PENDING;
    }
}

void rpi_flow_note_ask(rp_request *request, int rank) {
    rpi_flow_edge *edge = &request->edges[rank];
    if (!edge->asks) request->asking++;
    edge->asks = true;
}

/* The first word at once, later ones some chunks at a time while more is to come. */
static bool may_wait(const rp_request *request, const rpi_flow_edge *edge, bool moved) {
    uint32_t news = request->next_chunk - edge->told;
    bool last = request->next_chunk == (uint32_t)request->cut.split.chunks;
    return moved && edge->told && !last && 2 * news < request->comm->window;
}

void rpi_flow_grant(rp_request *request, bool moved) {
    rpi_frame_header header = request->header;
    header.kind = RPI_FRAME_GRANT;
    header.chunk = request->next_chunk;
    for (int rank = 0; rank < request->comm->world; rank++) {
        rpi_flow_edge *edge = &request->edges[rank];
        if (!edge->asks || edge->told >= request->next_chunk) continue;
        if (may_wait(request, edge, moved)) continue;
        if (rpi_flow_tell(request->comm, rank, &header) == RP_OK)
            edge->told = request->next_chunk;
    }
}

static void fail_strange(rp_comm *comm, int rank, const char *what,
                         const rpi_frame_header *header) {
    rpi_comm_fail_text(comm, RP_CORRUPT, rank, "rank %d %s of operation %llu, which cannot be",
                       rank, what, (unsigned long long)header->sequence);
}

static void hear_ask(rp_comm *comm, int rank, const rpi_frame_header *header) {
    rp_request *request = rpi_request_find(comm, rank, header->sequence);
    if (header->sequence & RPI_P2P_SEQUENCE) {
        fail_strange(comm, rank, "asked for a start", header);
    } else if (request && !rpi_request_is_same(request, header)) {
        rpi_receive_fail_mismatch(request, rank, header);
    } else if (request) {
        if (rpi_round_expects(request, rank)) rpi_flow_note_ask(request, rank);
    } else if (rpi_receive_is_future(comm, rank, header)) {
        rpi_aside *aside = NULL;
        if (rpi_aside_get_for_word(comm, rank, header->sequence, &aside) == RP_OK)
            aside->asks = true;
    } else {
        (void)rpi_receive_fail_finished(comm, rank, header, NULL);
    }
    grow_room(comm, &comm->peers[rank]);
}

static void hear_grant(rp_comm *comm, int rank, const rpi_frame_header *header) {
    rp_request *request = rpi_request_find(comm, rank, header->sequence);
    if (header->sequence & RPI_P2P_SEQUENCE || rpi_receive_is_future(comm, rank, header))
        fail_strange(comm, rank, "told of the start", header);
    else if (request && !rpi_request_is_same(request, header))
        rpi_receive_fail_mismatch(request, rank, header);
    else if (request && request->edges[rank].granted < header->chunk)
        request->edges[rank].granted = header->chunk;
    /* Without a request: other frames have said it sooner, and it is over. */
}

void rpi_flow_hear(rp_comm *comm, int rank, const rpi_frame_header *header) {
    rpi_peer *peer = &comm->peers[rank];
    if (header->bytes)
        fail_strange(comm, rank, "sent a payload with what is a header alone,", header);
    else if (header->kind == RPI_FRAME_ASK)
        hear_ask(comm, rank, header);
    else if (header->kind == RPI_FRAME_GRANT)
        hear_grant(comm, rank, header);
    else if (header->kind == RPI_FRAME_LEFT)
        rpi_peer_hear_left(comm, rank, header);
    else if (header->kind == RPI_FRAME_EXPECT || header->kind == RPI_FRAME_PASSED)
        rpi_round_hear(comm, rank, header);
    else if (header->kind == RPI_FRAME_THERE)
        return; /* it is, and will say so when it leaves */
    else if (header->kind != RPI_FRAME_CREDIT)
        fail_strange(comm, rank, "sent what joins links, or shapes them, in place", header);
    else if (header->sequence > peer->eager_limit)
        peer->eager_limit = header->sequence;
}
