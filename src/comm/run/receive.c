/* Frames to RECV steps.
 *
 * A frame belongs to the communicator that its header names (fabric.h). It is taken where it
 * lies: it becomes the wire slot of its RECV, is decoded or forwarded
 * from there, and released when its last reader has run. A frame that cannot be taken yet, or
 * whose readers wait for something else, blocks its link, and with it the frames of other
 * communicators; before the driver sleeps, and while it moves other operations after
 * HEAD_WAITS_NS, such frames are copied out of it:
 *
 *      the head of a link (rpi_port.head), checked once
 *        |
 *        +-- flow control, announcements,
 *        |   windows -------------------------> used up at once (flow.c, pair_protocol.c,
 *        |                                      window_hear.c)
 *        |
 *        +-- its RECV is due -----------------> holds the link (rpi_port.holder) until read
 *        |                                        | the driver is about to sleep
 *        |                                        v
 *        |                                      a block in the wire slot
 *        |
 *        +-- its chunk has started,  - - - - -> aside, in its chunk (rpi_chunk.aside)
 *        |   the RECV is not due       sleep      | the RECV is due: rpi_receive_aside()
 *        |                             ahead      v
 *        |                                      a block in the wire slot
 *        |                                        ^
 *        |                                        | the chunk starts: rpi_receive_adopt()
 *        +-- its chunk has not started  - - - > aside, by operation and rank (rp_comm.aside)
 *
 * So whatever has arrived can always leave its link. How much can come early is flow.c's. */
#include "comm/run/receive.h"
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/frame_blocks.h"
#include "comm/core/request.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/open_close.h"
#include "comm/protocol/pair_protocol.h"
#include "comm/protocol/round_protocol.h"
#include "comm/protocol/unexpected.h"
#include "comm/protocol/window_table.h"
#include "comm/run/chunk_steps.h"
#include "comm/run/in_place.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

static rpi_chunk *find_chunk(const rp_request *request, uint32_t index) {
    for (rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next)
        if (chunk->index == index) return chunk;
    return NULL;
}

/* Only what nobody has asked for may come before its chunk has started, as far as credit goes;
 * and tokens of a send that is here. */
static rp_status check_early(rp_comm *comm, int rank, const rpi_frame_header *header,
                             const rp_request *request) {
    if (header->kind == RPI_FRAME_EAGER || (request && header->sequence & RPI_P2P_SEQUENCE))
        return RP_PENDING;
    rpi_comm_fail_text(comm, RP_CORRUPT, rank,
                       "rank %d sent chunk %u of operation %llu, which rank %d has not begun "
                       "with",
                       rank, header->chunk, rpi_sequence_number(header->sequence), comm->rank);
    return RP_CORRUPT;
}

/* Where a frame goes. RP_PENDING: nowhere yet. A failure has been made known. */
static rp_status find_place(rp_comm *comm, int rank, const rpi_frame_header *header,
                            rpi_chunk **out_chunk) {
    rp_request *request = rpi_request_find(comm, rank, header->sequence);
    if (!request && rpi_receive_is_future(comm, rank, header))
        return check_early(comm, rank, header, NULL);
    if (request && !rpi_request_agrees(request, header)) {
        rpi_receive_fail_mismatch(request, rank, header);
        return RP_MISMATCH;
    }
    if (request && !rpi_round_expects(request, rank)) return RP_MISMATCH;
    rpi_chunk *chunk = request ? find_chunk(request, header->chunk) : NULL;
    if (request && header->chunk >= request->next_chunk &&
        header->chunk < (uint32_t)request->cut.split.chunks)
        return check_early(comm, rank, header, request);
    if (!chunk) return rpi_receive_fail_finished(comm, rank, header, request);
    *out_chunk = chunk;
    return RP_OK;
}

static rp_status fail_part(const rp_request *request, int rank, const rpi_frame_header *header,
                           size_t bytes, const char *why) {
    char text[160];
    rpi_comm_fail_text(
        request->comm, RP_CORRUPT, rank,
        "rank %d sent part %d in %zu bytes, which is not what comes next in %s%s%s", rank,
        (int)header->part, bytes, rpi_request_text(request, text, sizeof text), why ? ": " : "",
        why ? why : "");
    return RP_CORRUPT;
}

/* Of a frame's payload, before the encodings. */
static size_t share_bytes(const rp_request *request) {
    return request->collective == RPI_NEIGHBOUR_ALL_REDUCE ? RPI_SHARE_BYTES : 0;
}

static double read_share(const rp_request *request, const void *payload) {
    double share = 1;
    if (share_bytes(request) && payload) memcpy(&share, payload, sizeof share);
    return share;
}

/* Encodings of any length are read when they are due; of all others the length says it. */
static rp_status check_part(const rpi_chunk *chunk, const rpi_action *action,
                            const void *payload, size_t bytes) {
    const rp_request *request = chunk->request;
    const rpi_cut *cut = &request->cut;
    size_t ahead = share_bytes(request);
    if (bytes < ahead) return RP_FAIL(CORRUPT, "it has no weight");
    double share = read_share(request, payload);
    if (!isfinite(share)) return RP_FAIL(CORRUPT, "its weight is %g", share);
    if (!cut->varies || action->into == RPI_SLOT_TOKEN) return RP_OK;
    return rpi_cut_check_part(cut, chunk->index, action->part, action->level,
                              (const unsigned char *)payload + ahead, bytes - ahead);
}

/* The RECV that the next frame of this chunk from this rank belongs to; RP_PENDING: it is not
 * due. payload NULL: it was written into what was sent from here. */
static rp_status find_recv(rpi_chunk *chunk, int rank, const rpi_frame_header *header,
                           const void *payload, size_t bytes, int *out_action) {
    const rp_request *request = chunk->request;
    const rpi_routine *routine = request->routine;
    int peer = rpi_request_peer(request, rank);
    int first = routine->first_recv[peer], count = routine->first_recv[peer + 1] - first;
    if (chunk->received[peer] >= count) return fail_part(request, rank, header, bytes, NULL);
    int index = routine->recvs[first + chunk->received[peer]];
    const rpi_action *action = &routine->action[index];
    size_t most = rpi_action_bytes(request, chunk->index, action);
    bool fits = request->cut.varies ? bytes <= most : bytes == most;
    if (!fits || rpi_request_recv_part(request, header) != action->part)
        return fail_part(request, rank, header, bytes, NULL);
    if (!(chunk->ready[index / 64] >> (index % 64) & 1)) return RP_PENDING;
    if (!payload && !rpi_in_place_may_be_written(chunk, action))
        return fail_part(request, rank, header, bytes, "it was not to be written here");
    if (payload && check_part(chunk, action, payload, bytes) != RP_OK)
        return fail_part(request, rank, header, bytes, rp_last_error()->message);
    *out_action = index;
    return RP_OK;
}

/* Make the bytes the RECV's wire slot; the wire is the caller's to point at them. */
static rpi_wire *finish_recv(rpi_chunk *chunk, int rank, int index) {
    const rpi_action *action = &chunk->request->routine->action[index];
    chunk->received[rpi_request_peer(chunk->request, rank)]++;
    chunk->request->awaits_frame = false;
    chunk->request->awaits_word = 0;
    rpi_chunk_finish(chunk, index);
    if (action->into < RPI_SLOT_WIRE) return NULL;
    rpi_wire *wire = &chunk->wires[action->into - RPI_SLOT_WIRE];
    return wire->readers ? wire : NULL;
}

/* ---- from what was set aside ---- */

static void fill_wire(const rp_request *request, rpi_wire *wire, rpi_block *block) {
    size_t ahead = share_bytes(request);
    if (block->written) {
        wire->state = RPI_WIRE_THERE;
        rpi_block_give(request->comm->fabric, block);
        return;
    }
    *wire = (rpi_wire){.state = RPI_WIRE_BLOCK,
                       .readers = wire->readers,
                       .block = block,
                       .data = block->payload + ahead,
                       .bytes = block->bytes - ahead,
                       .share = read_share(request, block->payload)};
}

bool rpi_receive_aside(rpi_chunk *chunk, int index) {
    rp_comm *comm = chunk->request->comm;
    int peer = chunk->request->routine->action[index].peer, next = -1;
    int rank = rpi_request_rank(chunk->request, peer);
    rpi_frames *frames = &chunk->aside[peer];
    const rpi_block *first = frames->first;
    if (!first) return false;
    const void *payload = first->written ? NULL : first->payload;
    if (find_recv(chunk, rank, &first->header, payload, first->bytes, &next) != RP_OK)
        return false;
    rpi_block *block = rpi_frames_pop(frames);
    rpi_wire *wire = finish_recv(chunk, rank, next);
    if (wire)
        fill_wire(chunk->request, wire, block);
    else
        rpi_block_give(comm->fabric, block);
    return true;
}

void rpi_receive_check_empty(rpi_chunk *chunk) {
    const rp_request *request = chunk->request;
    for (int peer = 0; peer < request->routine->schedule.world; peer++) {
        const rpi_block *block = chunk->aside[peer].first;
        if (!block) continue;
        (void)rpi_receive_fail_finished(request->comm, rpi_request_rank(request, peer),
                                        &block->header, request);
        return;
    }
}

static void place_aside(rpi_chunk *chunk, int rank, rpi_block *block) {
    int peer = rpi_request_peer(chunk->request, rank);
    rpi_frames_append(&chunk->aside[peer], block);
    rpi_flow_placed(chunk->request, rank, &block->header, block->bytes);
}

static void forget_empty(rp_comm *comm, int rank, uint64_t sequence, rpi_aside *aside) {
    if (!aside->frames.first) rpi_aside_drop(comm, rank, sequence, aside);
}

/* Frames of one chunk stand together as a rule, those of earlier chunks first. */
static void adopt_from(rpi_chunk *chunk, int rank) {
    rp_comm *comm = chunk->request->comm;
    uint64_t sequence = chunk->request->sequence;
    rpi_aside *aside = rpi_aside_find(comm, rank, sequence);
    if (!aside) return;
    rpi_block *block = aside->frames.first;
    aside->frames = (rpi_frames){0};
    for (rpi_block *next; block; block = next) {
        next = block->next;
        if (block->header.chunk == chunk->index)
            place_aside(chunk, rank, block);
        else
            rpi_frames_append(&aside->frames, block);
    }
    forget_empty(comm, rank, sequence, aside);
}

/* Whose frames may belong to the request: of a send or receive the other side's alone, since
 * numbers count by pair. */
static bool concerns(const rp_request *request, int rank) {
    return request->collective != RPI_SENDRECV || request->peer == rank;
}

void rpi_receive_adopt(rpi_chunk *chunk) {
    const rpi_index *aside = &chunk->request->comm->aside;
    for (int rank = 0; aside->count && rank < chunk->request->comm->world; rank++)
        if (concerns(chunk->request, rank)) adopt_from(chunk, rank);
}

static bool compare_with(rp_request *request, int rank) {
    rp_comm *comm = request->comm;
    rpi_aside *aside = rpi_aside_find(comm, rank, request->sequence);
    if (!aside) return true;
    for (const rpi_block *block = aside->frames.first; block; block = block->next) {
        const rpi_frame_header *header = &block->header;
        bool agrees = rpi_request_agrees(request, header);
        if (agrees && !rpi_round_expects(request, rank)) return false;
        if (agrees && header->chunk < (uint32_t)request->cut.split.chunks)
            rpi_flow_heard_from(request, rank, header);
        else if (agrees)
            (void)rpi_receive_fail_finished(comm, rank, header, request);
        else
            rpi_receive_fail_mismatch(request, rank, header);
        if (atomic_load(&comm->failed)) return false;
    }
    if (aside->expects && !rpi_round_sends(request, rank)) return false;
    if (aside->asks && !rpi_round_expects(request, rank)) return false;
    if (aside->asks) rpi_flow_note_ask(request, rank);
    forget_empty(comm, rank, request->sequence, aside);
    return true;
}

bool rpi_receive_compare(rp_request *request) {
    const rp_comm *comm = request->comm;
    for (int rank = 0; comm->aside.count && rank < comm->world; rank++)
        if (concerns(request, rank) && !compare_with(request, rank)) return false;
    return true;
}

static const void *payload_of(rpi_link *link, const void *frame) {
    const rpi_sharing *sharing = link->endpoint->transport->sharing;
    if (sharing && sharing->is_written(link)) return NULL;
    const void *elsewhere = sharing ? sharing->payload(link) : NULL;
    return elsewhere ? elsewhere : (const unsigned char *)frame + RPI_FRAME_HEADER_BYTES;
}

static bool head_stands(const rpi_port *port) {
    const rpi_sharing *sharing = port->link->endpoint->transport->sharing;
    return !sharing || sharing->stands(port->link);
}

static rp_status copy_head(const rpi_port *port, rpi_block **out_block) {
    size_t bytes = port->head_bytes - RPI_FRAME_HEADER_BYTES;
    RP_TRY(rpi_block_take(port->comm->fabric, port->payload ? bytes : 0, out_block));
    rpi_block *block = *out_block;
    block->header = port->header;
    block->bytes = bytes;
    block->written = !port->payload;
    if (port->payload) memcpy(block->payload, port->payload, bytes);
    return RP_OK;
}

/* Out of the link, to where its RECV or its chunk will look for it. RP_PENDING: it was
 * withdrawn, and stays where it is until its operation fails here, too. */
static rp_status move_head(rpi_port *port, int rank) {
    rp_comm *comm = port->comm;
    rpi_block *block = NULL;
    rpi_chunk *chunk = NULL;
    rpi_aside *aside = NULL;
    RP_TRY(copy_head(port, &block));
    if (!head_stands(port)) {
        rpi_block_give(comm->fabric, block);
        return RP_PENDING;
    }
    if (port->holder) {
        fill_wire(port->holder->request, &port->holder->wires[port->held_wire], block);
    } else if (find_place(comm, rank, &port->header, &chunk) == RP_OK) {
        place_aside(chunk, rank, block);
    } else {
        rp_status status = rpi_aside_get(comm, rank, port->header.sequence, &aside);
        if (status != RP_OK) {
            rpi_block_give(comm->fabric, block);
            return status;
        }
        rpi_frames_append(&aside->frames, block);
        rp_request *request = rpi_request_find(comm, rank, port->header.sequence);
        if (request) rpi_flow_heard_from(request, rank, &port->header);
    }
    rpi_port_release(port);
    return RP_OK;
}

static bool set_aside(rpi_port *port, int rank) {
    rp_comm *comm = port->comm;
    rp_status status = move_head(port, comm->place_of[rank]);
    if (status == RP_PENDING) return false;
    if (status != RP_OK)
        rpi_comm_fail_text(comm, status, comm->rank, "%s", rp_last_error()->message);
    rpi_fabric_activate(comm);
    return true;
}

bool rpi_set_aside(rpi_fabric *fabric) {
    bool moved = false;
    for (int rank = rpi_rank_set_next(&fabric->heads, 0); rank >= 0;
         rank = rpi_rank_set_next(&fabric->heads, rank + 1)) {
        rpi_port *port = &fabric->ports[rank];
        if (atomic_load(&port->comm->failed)) continue;
        moved |= set_aside(port, rank);
    }
    return moved;
}

/* Of one communicator alone there is nobody behind who does not wait for the same; and what is
 * read soon is not worth a copy. What has its reader, which only waits for its turn,
 * has some passes for that. */
#define HEAD_WAITS_NS INT64_C(100000)
enum { HELD_PASSES = 4 };

static bool is_overdue(const rpi_port *port, int64_t now) {
    uint64_t passes = port->fabric->passes - port->head_pass;
    return now - port->head_ns >= HEAD_WAITS_NS && passes >= (port->holder ? HELD_PASSES : 1);
}

void rpi_set_aside_overdue(rpi_fabric *fabric) {
    bool others = fabric->comms && fabric->comms->next;
    int rank = others ? rpi_rank_set_next(&fabric->heads, 0) : -1;
    int64_t now = rank >= 0 ? rpi_now_ns() : 0;
    for (; rank >= 0; rank = rpi_rank_set_next(&fabric->heads, rank + 1)) {
        rpi_port *port = &fabric->ports[rank];
        if (atomic_load(&port->comm->failed) || !is_overdue(port, now)) continue;
        (void)set_aside(port, rank);
    }
}

void rpi_receive_unblock(rpi_chunk *chunk) {
    rpi_fabric *fabric = chunk->request->comm->fabric;
    if (!rpi_in_place_lends(chunk)) return;
    for (int rank = rpi_rank_set_next(&fabric->heads, 0); rank >= 0;
         rank = rpi_rank_set_next(&fabric->heads, rank + 1)) {
        rpi_port *port = &fabric->ports[rank];
        if (port->holder != chunk) continue;
        bool elsewhere = port->payload != (const char *)port->head + RPI_FRAME_HEADER_BYTES;
        if (elsewhere) (void)set_aside(port, rank);
    }
}

/* ---- from the link ---- */

/* Whose frame it is; RP_PENDING: nobody's, and it is done with. */
static rp_status find_comm(rpi_fabric *fabric, int rank, const rpi_frame_header *header,
                           size_t bytes, rp_comm **out_comm) {
    if (bytes > RPI_FRAME_HEADER_BYTES + RPI_FRAME_PAYLOAD)
        return RP_FAIL(CORRUPT, "rank %d sent a frame of %zu bytes", rank, bytes);
    rp_comm *comm = rpi_fabric_find(fabric, header->communicator, header->epoch);
    if (!comm) {
        RP_TRY(rpi_fabric_take_unopened(fabric, rank, header, fabric->ports[rank].payload));
        return RP_PENDING;
    }
    if (comm->place_of[rank] < 0)
        return RP_FAIL(MISMATCH, "rank %d sent to communicator '%s', which it is no member of",
                       rank, comm->name);
    if (atomic_load(&comm->failed)) return RP_PENDING;
    *out_comm = comm;
    return RP_OK;
}

static rp_status fail_rank(rpi_fabric *fabric, int rank, rp_status status, const char *prefix) {
    char message[sizeof((rpi_failure *)0)->text];
    snprintf(message, sizeof message, "%s%.300s", prefix, rp_last_error()->message);
    rpi_fabric_fail_rank(fabric, rank, status, message);
    return status;
}

/* Says something, and is no part of an operation's data. */
static bool is_word(const rpi_frame_header *header) {
    return !rpi_frame_rules[header->kind].has_elements;
}

static void put_head(rpi_port *port, int rank, const void *frame) {
    port->head = frame;
    rpi_rank_set_put(&port->fabric->heads, rank);
}

/* Look at the head of the link, once. RP_PENDING: there is none. */
static rp_status open_head(rpi_fabric *fabric, int rank) {
    rpi_port *port = &fabric->ports[rank];
    const rpi_transport *transport = port->link->endpoint->transport;
    while (!port->head) {
        const void *frame = NULL;
        size_t bytes = 0;
        rp_status status = transport->peek(port->link, &frame, &bytes);
        if (status == RP_PENDING) return status;
        if (status != RP_OK) {
            rpi_fabric_break(fabric, rank, status);
            return status;
        }
        status = rpi_frame_open(frame, bytes, transport->checksum, &port->header);
        if (status != RP_OK) {
            char prefix[64];
            snprintf(prefix, sizeof prefix, "a damaged frame from rank %d: ", rank);
            return fail_rank(fabric, rank, RP_CORRUPT, prefix);
        }
        port->payload = payload_of(port->link, frame);
        if (!port->payload && is_word(&port->header)) {
            (void)RP_FAIL(CORRUPT, "rank %d wrote what is no data", rank);
            return fail_rank(fabric, rank, RP_CORRUPT, "");
        }
        status = find_comm(fabric, rank, &port->header, bytes, &port->comm);
        if (status == RP_PENDING)
            rpi_port_release(port);
        else if (status != RP_OK)
            return fail_rank(fabric, rank, status, "");
        else
            put_head(port, rank, frame);
        port->head_bytes = bytes;
    }
    return RP_OK;
}

/* A frame has come to the head of its link, for the first time. */
static rp_status welcome_head(rpi_port *port, int rank) {
    rp_comm *comm = port->comm;
    port->head_ns = rpi_now_ns();
    port->head_pass = port->fabric->passes;
    atomic_fetch_add_explicit(&comm->received, port->head_bytes, memory_order_relaxed);
    if (port->header.kind != RPI_FRAME_WINDOW) rpi_comm_progressed(comm, port->head_ns);
    rpi_fabric_activate(comm);
    return rpi_flow_come(comm, rank, &port->header, port->head_bytes - RPI_FRAME_HEADER_BYTES);
}

static void hear_head(rpi_port *port, int rank) {
    rp_comm *comm = port->comm;
    comm->words++;
    if (port->header.kind == RPI_FRAME_WINDOW)
        rpi_windows_hear(comm, rank, &port->header, port->payload);
    else if (port->header.kind == RPI_FRAME_ANNOUNCE)
        rpi_p2p_hear(comm, rank, &port->header);
    else
        rpi_flow_hear(comm, rank, &port->header);
    rpi_port_release(port);
}

/* To the RECV that is due for it; false: there is none yet. */
static bool place_head(rpi_port *port, int rank) {
    rp_comm *comm = port->comm;
    size_t bytes = port->head_bytes - RPI_FRAME_HEADER_BYTES;
    rpi_chunk *chunk = NULL;
    int index = -1;
    if (find_place(comm, rank, &port->header, &chunk) != RP_OK) return false;
    /* Earlier frames of the chunk that lie aside come first. */
    if (chunk->aside[rpi_request_peer(chunk->request, rank)].first) return false;
    const void *payload = port->payload;
    if (find_recv(chunk, rank, &port->header, payload, bytes, &index) != RP_OK) return false;
    rpi_flow_placed(chunk->request, rank, &port->header, bytes);
    rpi_wire *wire = finish_recv(chunk, rank, index);
    if (wire && !payload) wire->state = RPI_WIRE_THERE;
    if (!wire || !payload) {
        rpi_port_release(port);
        return true;
    }
    size_t ahead = share_bytes(chunk->request);
    port->holder = chunk;
    port->held_wire = (int)(wire - chunk->wires);
    *wire = (rpi_wire){.state = RPI_WIRE_FRAME,
                       .readers = wire->readers,
                       .peer = rank,
                       .data = (const unsigned char *)payload + ahead,
                       .bytes = bytes - ahead,
                       .share = read_share(chunk->request, payload)};
    return true;
}

static bool take_head(rpi_fabric *fabric, int rank) {
    rpi_port *port = &fabric->ports[rank];
    if (port->holder || port->broken) return false;
    bool is_new = !port->head;
    if (open_head(fabric, rank) != RP_OK) return false;
    rp_comm *comm = port->comm;
    int place = comm->place_of[rank];
    if (is_new && welcome_head(port, place) != RP_OK) {
        rpi_port_release(port);
    } else if (is_word(&port->header)) {
        hear_head(port, place);
    } else if (place_head(port, place)) {
        return true;
    } else if (atomic_load(&comm->failed)) {
        rpi_port_release(port); /* others' frames stand behind it */
    } else {
        return false;
    }
    return true;
}

bool rpi_receive(rpi_fabric *fabric, int rank) {
    bool moved = false;
    while (take_head(fabric, rank)) moved = true;
    return moved;
}
