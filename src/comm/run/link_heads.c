/* Frames at the heads of links that block them are copied out: those that cannot be taken yet,
 * and those whose readers wait for something else. */
#include "comm/core/communicator.h"
#include "comm/core/frame_buffers.h"
#include "comm/protocol/clear_to_send.h"
#include "comm/protocol/unexpected.h"
#include "comm/run/frame_place.h"
#include "comm/run/in_place.h"
#include "comm/run/receive.h"

#include "base/clock.h"
#include "base/status.h"

#include <string.h>

static bool head_is_valid(const rpi_connection *connection) {
    const rpi_zero_copy *zero_copy = connection->link->endpoint->transport->zero_copy;
    return !zero_copy || zero_copy->is_valid(connection->link);
}

static rp_status copy_head(const rpi_connection *connection, rpi_frame_buffer **out_buffer) {
    size_t bytes = connection->head_bytes - RPI_FRAME_HEADER_BYTES;
    RP_TRY(rpi_frame_buffer_take(connection->comm->context, connection->payload ? bytes : 0,
                                 out_buffer));
    rpi_frame_buffer *buffer = *out_buffer;
    buffer->header = connection->header;
    buffer->bytes = bytes;
    buffer->written = !connection->payload;
    if (connection->payload) memcpy(buffer->payload, connection->payload, bytes);
    return RP_OK;
}

/* Copies the frame out of the link to where its RECV or its chunk will find it. RP_PENDING: its
 * sender has revoked it, and it stays until its operation fails here, too. */
static rp_status move_head(rpi_connection *connection, int rank) {
    rp_comm *comm = connection->comm;
    rpi_frame_buffer *buffer = NULL;
    rpi_chunk *chunk = NULL;
    rpi_unexpected *unexpected = NULL;
    RP_TRY(copy_head(connection, &buffer));
    if (!head_is_valid(connection)) {
        rpi_frame_buffer_give(comm->context, buffer);
        return RP_PENDING;
    }
    if (connection->holder) {
        rpi_frame_fill_slot(connection->holder->request,
                            &connection->holder->encoded_slots[connection->held_slot], buffer);
    } else if (rpi_frame_find_chunk(comm, rank, &connection->header, &chunk) == RP_OK) {
        rpi_frame_place_unexpected(chunk, rank, buffer);
    } else {
        rp_status status =
            rpi_unexpected_get(comm, rank, connection->header.sequence, &unexpected);
        if (status != RP_OK) {
            rpi_frame_buffer_give(comm->context, buffer);
            return status;
        }
        rpi_frames_append(&unexpected->frames, buffer);
        rp_request *request = rpi_request_find(comm, rank, connection->header.sequence);
        if (request) rpi_cts_note_started(request, rank, &connection->header);
    }
    rpi_connection_release(connection);
    return RP_OK;
}

static bool queue_unexpected(rpi_connection *connection, int rank) {
    rp_comm *comm = connection->comm;
    rp_status status = move_head(connection, comm->place_of[rank]);
    if (status == RP_PENDING) return false;
    if (status != RP_OK)
        rpi_comm_fail_text(comm, status, comm->rank, "%s", rp_last_error()->message);
    rpi_context_activate(comm);
    return true;
}

bool rpi_unexpected_queue(rpi_context *context) {
    bool moved = false;
    for (int rank = rpi_rank_set_next(&context->heads, 0); rank >= 0;
         rank = rpi_rank_set_next(&context->heads, rank + 1)) {
        rpi_connection *connection = &context->connections[rank];
        if (rpi_comm_has_failed(connection->comm)) continue;
        moved |= queue_unexpected(connection, rank);
    }
    return moved;
}

/* If there is only one communicator, all frames behind it wait for the same; and a frame that
 * is read soon is not worth a copy. A frame whose reader only waits for its turn is left for
 * some iterations. */
#define HEAD_WAITS_NS INT64_C(100000)
enum { HELD_ITERATIONS = 4 };

static bool is_overdue(const rpi_connection *connection, int64_t now) {
    uint64_t iterations = connection->context->iterations - connection->head_iteration;
    return now - connection->head_ns >= HEAD_WAITS_NS &&
           iterations >= (connection->holder ? HELD_ITERATIONS : 1);
}

void rpi_unexpected_queue_overdue(rpi_context *context) {
    bool others = context->comms && context->comms->next;
    int rank = others ? rpi_rank_set_next(&context->heads, 0) : -1;
    int64_t now = rank >= 0 ? rpi_now_ns() : 0;
    for (; rank >= 0; rank = rpi_rank_set_next(&context->heads, rank + 1)) {
        rpi_connection *connection = &context->connections[rank];
        if (rpi_comm_has_failed(connection->comm) || !is_overdue(connection, now)) continue;
        (void)queue_unexpected(connection, rank);
    }
}

void rpi_receive_unblock(rpi_chunk *chunk) {
    rpi_context *context = chunk->request->comm->context;
    if (!rpi_in_place_any_in_use(chunk)) return;
    for (int rank = rpi_rank_set_next(&context->heads, 0); rank >= 0;
         rank = rpi_rank_set_next(&context->heads, rank + 1)) {
        rpi_connection *connection = &context->connections[rank];
        if (connection->holder != chunk) continue;
        bool in_buffer =
            connection->payload != (const char *)connection->head + RPI_FRAME_HEADER_BYTES;
        if (in_buffer) (void)queue_unexpected(connection, rank);
    }
}
