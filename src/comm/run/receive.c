/* Frames to RECV steps.
 *
 * A frame belongs to the communicator that its header names (context.h). It is taken where it
 * lies: it becomes the encoded slot of its RECV (frame_place.c), is decoded or forwarded from
 * there, and released when its last reader has run. A frame that cannot be taken yet, or whose
 * readers wait for something else, blocks its link, and with it the frames of other
 * communicators; before the progress owner sleeps, and while it moves other operations after
 * HEAD_WAITS_NS, such frames are copied out of it (link_heads.c), and are found again when what
 * they came for is here (unexpected_claim.c):
 *
 *      the head of a link (rpi_connection.head), checked once
 *        |
 *        +-- a control frame, or one of a
 *        |   window --------------------------> used up at once (control_frames.c says by whom)
 *        |
 *        +-- its RECV is due -----------------> holds the link (its holder) until read
 *        |                                        | the progress owner is about to sleep
 *        |                                        v
 *        |                                      a buffer in the encoded slot
 *        |
 *        +-- its chunk has started,  - - - - -> queued, in its chunk (rpi_chunk.unexpected)
 *        |   the RECV is not due       sleep      | the RECV is due: rpi_receive_unexpected()
 *        |                             ahead      v
 *        |                                      a buffer in the encoded slot
 *        |                                        ^
 *        |                                        | the chunk starts: rpi_receive_claim()
 *        +-- its chunk has not started  - - - > queued, by operation and rank
 *
 * So whatever has arrived can always leave its link. How much can come early is flow.c's. */
#include "comm/run/receive.h"
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/protocol/control_frames.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/open_close.h"
#include "comm/run/frame_place.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdio.h>

static const void *payload_of(rpi_link *link, const void *frame) {
    const rpi_zero_copy *zero_copy = link->endpoint->transport->zero_copy;
    if (zero_copy && zero_copy->is_written(link)) return NULL;
    const void *in_buffer = zero_copy ? zero_copy->payload(link) : NULL;
    return in_buffer ? in_buffer : (const unsigned char *)frame + RPI_FRAME_HEADER_BYTES;
}

/* Whose frame it is; RP_PENDING: nobody's, and it is released. */
static rp_status find_comm(rpi_context *context, int rank, const rpi_frame_header *header,
                           size_t bytes, rp_comm **out_comm) {
    if (bytes > RPI_FRAME_HEADER_BYTES + RPI_FRAME_PAYLOAD)
        return RP_FAIL(CORRUPT, "rank %d sent a frame of %zu bytes", rank, bytes);
    rp_comm *comm = rpi_context_find(context, header->communicator, header->epoch);
    if (!comm) {
        RP_TRY(rpi_context_take_unopened(context, rank, header,
                                         context->connections[rank].payload));
        return RP_PENDING;
    }
    if (comm->place_of[rank] < 0)
        return RP_FAIL(MISMATCH, "rank %d sent to communicator '%s', which it is no member of",
                       rank, comm->name);
    if (rpi_comm_has_failed(comm)) return RP_PENDING;
    *out_comm = comm;
    return RP_OK;
}

static rp_status fail_rank(rpi_context *context, int rank, rp_status status,
                           const char *prefix) {
    char message[sizeof((rpi_failure *)0)->text];
    snprintf(message, sizeof message, "%s%.300s", prefix, rp_last_error()->message);
    rpi_context_fail_rank(context, rank, status, message);
    return status;
}

/* A control frame, which is no part of an operation's data. */
static bool is_control(const rpi_frame_header *header) {
    return !rpi_frame_rules[header->kind].has_elements;
}

static void put_head(rpi_connection *connection, int rank, const void *frame) {
    connection->head = frame;
    rpi_rank_set_put(&connection->context->heads, rank);
}

/* Check the head of the link, once. RP_PENDING: there is none. */
static rp_status open_head(rpi_context *context, int rank) {
    rpi_connection *connection = &context->connections[rank];
    const rpi_transport *transport = connection->link->endpoint->transport;
    while (!connection->head) {
        const void *frame = NULL;
        size_t bytes = 0;
        rp_status status = transport->peek(connection->link, &frame, &bytes);
        if (status == RP_PENDING) return status;
        if (status != RP_OK) {
            rpi_context_break(context, rank, status);
            return status;
        }
        status = rpi_frame_open(frame, bytes, transport->checksum, &connection->header);
        if (status != RP_OK) {
            char prefix[64];
            snprintf(prefix, sizeof prefix, "a damaged frame from rank %d: ", rank);
            return fail_rank(context, rank, RP_CORRUPT, prefix);
        }
        connection->payload = payload_of(connection->link, frame);
        if (!connection->payload && is_control(&connection->header)) {
            (void)RP_FAIL(CORRUPT, "rank %d wrote what is no data", rank);
            return fail_rank(context, rank, RP_CORRUPT, "");
        }
        status = find_comm(context, rank, &connection->header, bytes, &connection->comm);
        if (status == RP_PENDING)
            rpi_connection_release(connection);
        else if (status != RP_OK)
            return fail_rank(context, rank, status, "");
        else
            put_head(connection, rank, frame);
        connection->head_bytes = bytes;
    }
    return RP_OK;
}

/* A frame has come to the head of its link, for the first time. */
static rp_status welcome_head(rpi_connection *connection, int rank) {
    rp_comm *comm = connection->comm;
    connection->head_ns = rpi_now_ns();
    connection->head_iteration = connection->context->iterations;
    atomic_fetch_add_explicit(&comm->received, connection->head_bytes, memory_order_relaxed);
    if (connection->header.kind != RPI_FRAME_WINDOW)
        rpi_comm_progressed(comm, connection->head_ns);
    rpi_context_activate(comm);
    return rpi_flow_come(comm, rank, &connection->header,
                         connection->head_bytes - RPI_FRAME_HEADER_BYTES);
}

static void receive_head(rpi_connection *connection, int rank) {
    rp_comm *comm = connection->comm;
    comm->control_frames++;
    rpi_control_frame_receive(comm, rank, &connection->header, connection->payload);
    rpi_connection_release(connection);
}

/* To the RECV that is due for it; false: there is none yet. */
static bool place_head(rpi_connection *connection, int rank) {
    rp_comm *comm = connection->comm;
    size_t bytes = connection->head_bytes - RPI_FRAME_HEADER_BYTES;
    rpi_chunk *chunk = NULL;
    int index = -1;
    if (rpi_frame_find_chunk(comm, rank, &connection->header, &chunk) != RP_OK) return false;
    /* Earlier frames of the chunk in the unexpected queue come first. */
    if (chunk->unexpected[rpi_request_peer(chunk->request, rank)].first) return false;
    const void *payload = connection->payload;
    if (rpi_frame_find_recv(chunk, rank, &connection->header, payload, bytes, &index) != RP_OK)
        return false;
    rpi_flow_placed(chunk->request, rank, &connection->header, bytes);
    rpi_encoded_slot *encoded_slot = rpi_frame_finish_recv(chunk, rank, index);
    if (encoded_slot && !payload) encoded_slot->state = RPI_ENCODED_WRITTEN;
    if (!encoded_slot || !payload) {
        rpi_connection_release(connection);
        return true;
    }
    size_t ahead = chunk->request->kind->ahead_bytes;
    connection->holder = chunk;
    connection->held_slot = (int)(encoded_slot - chunk->encoded_slots);
    *encoded_slot =
        (rpi_encoded_slot){.state = RPI_ENCODED_FRAME,
                           .readers = encoded_slot->readers,
                           .peer = rank,
                           .data = (const unsigned char *)payload + ahead,
                           .bytes = bytes - ahead,
                           .edge_weight = rpi_frame_edge_weight(chunk->request, payload)};
    return true;
}

static bool take_head(rpi_context *context, int rank) {
    rpi_connection *connection = &context->connections[rank];
    if (connection->holder || connection->broken) return false;
    bool is_new = !connection->head;
    if (open_head(context, rank) != RP_OK) return false;
    rp_comm *comm = connection->comm;
    int place = comm->place_of[rank];
    if (is_new && welcome_head(connection, place) != RP_OK) {
        rpi_connection_release(connection);
    } else if (is_control(&connection->header)) {
        receive_head(connection, place);
    } else if (place_head(connection, place)) {
        return true;
    } else if (rpi_comm_has_failed(comm)) {
        rpi_connection_release(connection); /* others' frames stand behind it */
    } else {
        return false;
    }
    return true;
}

bool rpi_receive(rpi_context *context, int rank) {
    bool moved = false;
    while (take_head(context, rank)) moved = true;
    return moved;
}
