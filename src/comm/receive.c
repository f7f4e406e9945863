/* Frames to RECV steps.
 *
 * A frame is taken where it lies: it becomes the wire slot of its RECV, is decoded or forwarded
 * from there, and released when its last reader has run. A frame that cannot be taken yet (its
 * operation is not posted here, its chunk not started, its RECV not due) or whose readers wait
 * for something else blocks its link; before the driver sleeps, such frames are copied aside.
 *
 * Bound: a rank sends ahead at most RPI_ACTIVE_OPERATIONS operations of `window` chunks, of
 * each at most twice a frame a part. More than that from one rank stays in its link; frames
 * without payload always find a place, so that receives may be posted long before sends. */
#include "comm/communicator.h"

#include <string.h>

void rpi_peer_release(rpi_peer *peer) {
    peer->head = NULL;
    peer->holder = NULL;
    peer->link->endpoint->transport->release(peer->link);
}

static rp_request *find_request(rp_comm *comm, int rank, const rpi_frame_header *header) {
    for (rp_request *request = comm->queue; request; request = request->next)
        if (request->sequence == header->sequence &&
            (request->collective != RPI_SENDRECV || request->peer == rank))
            return request;
    return NULL;
}

static rpi_chunk *find_chunk(const rp_request *request, uint32_t index) {
    for (rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next)
        if (chunk->index == index) return chunk;
    return NULL;
}

/* The operation was not posted here yet. */
static bool is_future(const rp_comm *comm, int rank, const rpi_frame_header *header) {
    if (header->sequence & RPI_P2P_SEQUENCE) return rpi_p2p_is_future(comm, rank, header);
    return header->sequence > comm->seen_sequence;
}

static void fail_mismatch(rp_comm *comm, const rp_request *request, int rank,
                          const rpi_frame_header *header) {
    char words[320];
    rpi_disagreement_text(request, header, rank, words, sizeof words);
    if (request->collective == RPI_SENDRECV)
        rpi_comm_fail_text(comm, RP_MISMATCH, rank, "%s", words);
    else if (header->signature == request->header.signature) /* but for a block's length */
        rpi_comm_fail_text(comm, RP_MISMATCH, rank, "%s %llu: %s",
                           rpi_collective_name(request->collective),
                           (unsigned long long)request->sequence, words);
    else
        rpi_comm_fail_text(comm, RP_MISMATCH, rank, "operation %llu: %s",
                           (unsigned long long)request->sequence, words);
}

/* A frame that nothing here waits for: its operation is over, since it has sent all that it had
 * to and wanted nothing from this rank. */
static rp_status fail_finished(rp_comm *comm, int rank, const rpi_frame_header *header,
                               const rp_request *request) {
    char words[160];
    if (request || header->sequence & RPI_P2P_SEQUENCE) {
        rpi_comm_fail_text(
            comm, RP_CORRUPT, rank,
            "rank %d sent a frame of operation %llu, chunk %u, which is finished", rank,
            (unsigned long long)header->sequence, header->chunk);
        return RP_CORRUPT;
    }
    rpi_comm_fail_text(comm, RP_MISMATCH, rank,
                       "operation %llu: rank %d posted %s; that of rank %d is finished and "
                       "wanted nothing more from it",
                       (unsigned long long)header->sequence, rank,
                       rpi_posted_text(header, words, sizeof words), comm->rank);
    return RP_MISMATCH;
}

/* Where a frame goes. RP_PENDING: nowhere yet. A failure has been made known. */
static rp_status find_place(rp_comm *comm, int rank, const rpi_frame_header *header,
                            rpi_chunk **out_chunk) {
    rp_request *request = find_request(comm, rank, header);
    if (!request && is_future(comm, rank, header)) return RP_PENDING;
    if (request && !rpi_request_agrees(request, header)) {
        fail_mismatch(comm, request, rank, header);
        return RP_MISMATCH;
    }
    rpi_chunk *chunk = request ? find_chunk(request, header->chunk) : NULL;
    if (request && header->chunk >= request->next_chunk &&
        header->chunk < (uint32_t)request->cut.split.chunks)
        return RP_PENDING;
    if (!chunk) return fail_finished(comm, rank, header, request);
    *out_chunk = chunk;
    return RP_OK;
}

/* The RECV that the next frame of this chunk from this rank belongs to; -1: it is not due. */
static rp_status find_recv(rpi_chunk *chunk, int rank, const rpi_frame_header *header,
                           size_t bytes, int *out_action) {
    const rp_request *request = chunk->request;
    const rpi_routine *routine = request->routine;
    int peer = rpi_request_peer(request, rank);
    int first = routine->first_recv[peer], count = routine->first_recv[peer + 1] - first;
    if (chunk->received[peer] < count) {
        int index = routine->recvs[first + chunk->received[peer]];
        const rpi_action *action = &routine->action[index];
        size_t expected = rpi_action_bytes(request, chunk->index, action);
        if (rpi_request_recv_part(request, header) == action->part && bytes == expected) {
            if (!(chunk->ready[index / 64] >> (index % 64) & 1)) return RP_PENDING;
            *out_action = index;
            return RP_OK;
        }
    }
    char text[160];
    rpi_comm_fail_text(request->comm, RP_CORRUPT, rank,
                       "rank %d sent part %d in %zu bytes, which is not what comes next in %s",
                       rank, (int)header->part, bytes,
                       rpi_request_text(request, text, sizeof text));
    return RP_CORRUPT;
}

/* Make the bytes the RECV's wire slot; the wire is the caller's to point at them. */
static rpi_wire *finish_recv(rpi_chunk *chunk, int rank, int index) {
    const rpi_action *action = &chunk->request->routine->action[index];
    chunk->received[rpi_request_peer(chunk->request, rank)]++;
    rpi_chunk_finish(chunk, index);
    if (action->into < RPI_SLOT_WIRE) return NULL;
    rpi_wire *wire = &chunk->wires[action->into - RPI_SLOT_WIRE];
    return wire->readers ? wire : NULL;
}

/* ---- from what was set aside ---- */

static bool is_same_chunk(const rpi_frame_header *a, const rpi_frame_header *b) {
    return a->sequence == b->sequence && a->chunk == b->chunk;
}

/* An earlier frame of the same chunk lies aside: later ones must follow it. */
static bool follows_aside(const rpi_peer *peer, const rpi_frame_header *header,
                          const rpi_block *end) {
    for (const rpi_block *block = peer->aside; block != end; block = block->next)
        if (is_same_chunk(&block->header, header)) return true;
    return false;
}

static void use_block(rp_comm *comm, int rank, rpi_chunk *chunk, int index, rpi_block *block) {
    rpi_wire *wire = finish_recv(chunk, rank, index);
    if (!wire) {
        rpi_block_give(comm, block);
        return;
    }
    *wire = (rpi_wire){.state = RPI_WIRE_BLOCK,
                       .readers = wire->readers,
                       .block = block,
                       .data = block->payload,
                       .bytes = block->bytes};
}

static bool take_aside(rp_comm *comm, int rank) {
    rpi_peer *peer = &comm->peers[rank];
    bool moved = false;
    for (rpi_block **at = &peer->aside; *at && !atomic_load(&comm->failed);) {
        rpi_block *block = *at;
        rpi_chunk *chunk = NULL;
        int index = -1;
        if (follows_aside(peer, &block->header, block) ||
            find_place(comm, rank, &block->header, &chunk) != RP_OK ||
            find_recv(chunk, rank, &block->header, block->bytes, &index) != RP_OK) {
            at = &block->next;
            continue;
        }
        *at = block->next;
        if (!*at) peer->aside_end = at;
        peer->aside_count -= block->bytes > 0;
        use_block(comm, rank, chunk, index, block);
        moved = true;
    }
    return moved;
}

static int most_aside(const rp_comm *comm) {
    return RPI_ACTIVE_OPERATIONS * (int)comm->window * 2 * comm->world;
}

static rp_status copy_head(rp_comm *comm, rpi_peer *peer, rpi_block **out_block) {
    size_t bytes = peer->head_bytes - RPI_FRAME_HEADER_BYTES;
    RP_TRY(rpi_block_take(comm, bytes, out_block));
    (*out_block)->header = peer->header;
    memcpy((*out_block)->payload, (const char *)peer->head + RPI_FRAME_HEADER_BYTES, bytes);
    return RP_OK;
}

static bool set_head_aside(rp_comm *comm, rpi_peer *peer) {
    bool token = peer->head_bytes == RPI_FRAME_HEADER_BYTES;
    if (!peer->holder && !token && peer->aside_count >= most_aside(comm)) return false;
    rpi_block *block = NULL;
    rp_status status = copy_head(comm, peer, &block);
    if (status != RP_OK) {
        rpi_comm_fail_text(comm, status, comm->rank, "%s", rp_last_error()->message);
        return true;
    }
    if (peer->holder) {
        rpi_wire *wire = &peer->holder->wires[peer->held_wire];
        *wire = (rpi_wire){.state = RPI_WIRE_BLOCK,
                           .readers = wire->readers,
                           .block = block,
                           .data = block->payload,
                           .bytes = block->bytes};
    } else {
        *peer->aside_end = block;
        peer->aside_end = &block->next;
        peer->aside_count += !token;
    }
    rpi_peer_release(peer);
    return true;
}

bool rpi_set_aside(rp_comm *comm) {
    bool moved = false;
    for (int rank = 0; rank < comm->world && !atomic_load(&comm->failed); rank++)
        if (comm->peers[rank].head) moved |= set_head_aside(comm, &comm->peers[rank]);
    return moved;
}

void rpi_peer_clear(rp_comm *comm, rpi_peer *peer) {
    for (rpi_block *block = peer->aside, *next; block; block = next) {
        next = block->next;
        rpi_block_give(comm, block);
    }
    peer->aside = NULL;
    peer->aside_end = &peer->aside;
    peer->aside_count = 0;
}

/* ---- from the link ---- */

static rp_status check_header(rp_comm *comm, int rank, const rpi_frame_header *header,
                              size_t bytes) {
    if (header->communicator != comm->id || header->epoch != comm->epoch) {
        rpi_comm_fail_text(
            comm, RP_MISMATCH, rank,
            "rank %d sent a frame of communicator %08x, epoch %u; this is %s (%08x), "
            "epoch %u",
            rank, header->communicator, header->epoch, comm->name, comm->id, comm->epoch);
        return RP_MISMATCH;
    }
    if (bytes > RPI_FRAME_HEADER_BYTES + RPI_FRAME_PAYLOAD) {
        rpi_comm_fail_text(comm, RP_CORRUPT, rank, "rank %d sent a frame of %zu bytes", rank,
                           bytes);
        return RP_CORRUPT;
    }
    return RP_OK;
}

/* Look at the head of the link, once. */
static rp_status open_head(rp_comm *comm, int rank) {
    rpi_peer *peer = &comm->peers[rank];
    if (peer->head) return RP_OK;
    const rpi_transport *transport = peer->link->endpoint->transport;
    const void *frame = NULL;
    size_t bytes = 0;
    rp_status status = transport->peek(peer->link, &frame, &bytes);
    if (status == RP_PENDING) return status;
    if (status != RP_OK) {
        rpi_peer_break(comm, rank, status);
        return status;
    }
    status = rpi_frame_open(frame, bytes, transport->checksum, &peer->header);
    if (status != RP_OK) {
        rpi_comm_fail_text(comm, RP_CORRUPT, rank, "a damaged frame from rank %d: %s", rank,
                           rp_last_error()->message);
        return status;
    }
    RP_TRY(check_header(comm, rank, &peer->header, bytes));
    peer->head = frame;
    peer->head_bytes = bytes;
    return RP_OK;
}

static bool take_head(rp_comm *comm, int rank) {
    rpi_peer *peer = &comm->peers[rank];
    if (peer->holder || peer->broken || open_head(comm, rank) != RP_OK) return false;
    if (peer->header.kind == RPI_FRAME_ANNOUNCE) {
        rpi_p2p_hear(comm, rank, &peer->header);
        rpi_peer_release(peer);
        return true;
    }
    size_t bytes = peer->head_bytes - RPI_FRAME_HEADER_BYTES;
    rpi_chunk *chunk = NULL;
    int index = -1;
    if (follows_aside(peer, &peer->header, NULL) ||
        find_place(comm, rank, &peer->header, &chunk) != RP_OK ||
        find_recv(chunk, rank, &peer->header, bytes, &index) != RP_OK)
        return false;
    rpi_wire *wire = finish_recv(chunk, rank, index);
    if (!wire) {
        rpi_peer_release(peer);
        return true;
    }
    peer->holder = chunk;
    peer->held_wire = (int)(wire - chunk->wires);
    *wire = (rpi_wire){.state = RPI_WIRE_FRAME,
                       .readers = wire->readers,
                       .peer = rank,
                       .data = (const unsigned char *)peer->head + RPI_FRAME_HEADER_BYTES,
                       .bytes = bytes};
    return true;
}

bool rpi_receive(rp_comm *comm, int rank) {
    bool moved = comm->peers[rank].aside && take_aside(comm, rank);
    while (take_head(comm, rank)) moved = true;
    return moved;
}
