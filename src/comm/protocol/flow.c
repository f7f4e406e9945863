/* Flow control: which frame may leave, so that every legal program ends.
 *
 * The rule: a frame leaves when its chunk is known to have started at its receiver, and so has
 * a place there, or as one of the few bytes that the receiver has promised to queue for this
 * link. What stands at the head of a link can therefore always be moved out of it, and
 * nothing that is needed waits behind what nobody has asked for. docs/comm.md has the proof.
 * (A head whose sender has revoked it stays until the failure is heard, by other ways.)
 *
 *      a SEND whose turn has come
 *        | the chunk has started there          | not known to have
 *        |                                      +-- promised bytes left ----> leaves, EAGER
 *        v                                      +-- none: CTS request once, wait
 *      leaves, DATA <--- a CTS, or any frame of that chunk or a later one, from there
 *                                               +-- CREDIT: bytes again ----> leaves, EAGER
 *
 *      at the receiver, an EAGER frame
 *        | its chunk has started           | it has not
 *        v                                 v
 *      has its place: the bytes      lies in the link, then queued, in comm->unexpected
 *      are promised anew (CREDIT)          | the chunk starts: rpi_receive_claim()
 *            ^-----------------------------+
 *
 * An operation in which all ranks take part at once never comes to CTS request: the frames of
 * the others are its CTS, and the promise covers what is under way. RTRs of receives need no
 * CTS either: a send that has no RTR sends an RTS, which says as much.
 *
 * What is promised beyond a small base comes out of one account for the whole process, so that
 * many communicators together hold no more than one could. */
#include "comm/protocol/flow.h"
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/protocol/clear_to_send.h"
#include "comm/protocol/control_frame.h"

#include "base/status.h"

/* The only state of the process: bytes promised beyond RPI_EAGER_BASE, by all communicators. */
static atomic_size_t promised;

/* A link takes no more than this share of the rest, so that later ones find something, too. */
enum { SHARE = 8 };

void rpi_flow_init(rp_comm *comm) {
    comm->control_frames = 1;
    comm->seen_exchange = RPI_EXCHANGE_SEQUENCE;
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

static bool has_credit(const rpi_peer *peer, size_t bytes) {
    return peer->eager_sent + cost_of(bytes) <= peer->eager_limit;
}

rp_status rpi_flow_admit(rpi_chunk *chunk, const rpi_instruction *instruction, size_t bytes,
                         uint8_t *out_kind) {
    rp_request *request = chunk->request;
    int rank = rpi_request_rank(request, instruction->peer);
    *out_kind = RPI_FRAME_DATA;
    if (request->kind->has_cts(chunk, instruction)) return RP_OK;
    if (!has_credit(&request->comm->peers[rank], bytes))
        return request->kind->await_cts(request, rank, chunk->index);
    *out_kind = RPI_FRAME_EAGER;
    return RP_OK;
}

void rpi_flow_sent(const rpi_chunk *chunk, const rpi_instruction *instruction, size_t bytes,
                   uint8_t kind) {
    rp_request *request = chunk->request;
    int rank = rpi_request_rank(request, instruction->peer);
    if (kind == RPI_FRAME_EAGER) request->comm->peers[rank].eager_sent += cost_of(bytes);
    rpi_cts_note_sent(request, rank, chunk->index);
}

bool rpi_flow_is_deferred(const rpi_chunk *chunk, const rpi_instruction *instruction) {
    const rp_request *request = chunk->request;
    if (rpi_in_place_is_in_use(chunk, (int)(instruction - request->compiled->instruction)))
        return true;
    if (instruction->kind != RPI_STEP_SEND || !request->kind->needs_cts) return false;
    size_t bytes = rpi_instruction_bytes(request, chunk->index, instruction);
    return !request->kind->has_cts(chunk, instruction) &&
           !has_credit(&request->comm->peers[rpi_request_rank(request, instruction->peer)],
                       bytes);
}

/* ---- receiving ---- */

/* After a rank has sent eager frames it is promised more. */
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
                           "rank %d sent more than was promised to be queued for it", rank);
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
    rpi_cts_note_started(request, rank, header);
}

/* ---- credit and requests for CTS, both ways ---- */

void rpi_flow_send_credit(rp_comm *comm) {
    rpi_frame_header header = {
        .kind = RPI_FRAME_CREDIT, .communicator = comm->id, .epoch = comm->epoch};
    comm->credit_due = false;
    for (int rank = 0; rank < comm->world; rank++) {
        rpi_peer *peer = &comm->peers[rank];
        if (!rpi_peer_link(peer) || peer->broken || !is_worth_telling(peer)) continue;
        header.sequence = peer->eager_taken + peer->eager_room;
        rp_status status = rpi_control_frame_send(comm, rank, &header);
        if (status == RP_OK) peer->eager_bound = header.sequence;
        comm->credit_due |= status == RP_PENDING;
    }
}

/* Who asks has more to send. */
void rpi_flow_receive_cts_request(rp_comm *comm, int rank, const rpi_frame_header *header) {
    rpi_cts_receive_request(comm, rank, header);
    grow_room(comm, &comm->peers[rank]);
}

void rpi_flow_receive_credit(rp_comm *comm, int rank, const rpi_frame_header *header) {
    rpi_peer *peer = &comm->peers[rank];
    if (header->sequence > peer->eager_limit) peer->eager_limit = header->sequence;
}
