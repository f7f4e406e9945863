/* Frames to RECV steps.
 *
 * A frame belongs to the communicator that its header names (context.h). It is taken where it
 * lies: it becomes the encoded slot of its RECV, is decoded or forwarded
 * from there, and released when its last reader has run. A frame that cannot be taken yet, or
 * whose readers wait for something else, blocks its link, and with it the frames of other
 * communicators; before the progress owner sleeps, and while it moves other operations after
 * HEAD_WAITS_NS, such frames are copied out of it:
 *
 *      the head of a link (rpi_connection.head), checked once
 *        |
 *        +-- flow control, RTS frames,
 *        |   windows -------------------------> used up at once (flow.c, pair_protocol.c,
 *        |                                      window_receive.c)
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
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/frame_buffers.h"
#include "comm/core/request.h"
#include "comm/protocol/clear_to_send.h"
#include "comm/protocol/exchange_protocol.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/open_close.h"
#include "comm/protocol/pair_protocol.h"
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
 * and RTRs of a send that is here. */
static rp_status check_unopened(rp_comm *comm, int rank, const rpi_frame_header *header,
                                const rp_request *request) {
    if (header->kind == RPI_FRAME_EAGER || (request && !request->kind->needs_cts))
        return RP_PENDING;
    rpi_comm_fail_text(comm, RP_CORRUPT, rank,
                       "rank %d sent chunk %u of operation %llu, which rank %d has not begun "
                       "with",
                       rank, header->chunk, rpi_number_in_words(comm, header->sequence),
                       comm->rank);
    return RP_CORRUPT;
}

/* Where a frame goes. RP_PENDING: nowhere yet. A failure has been made known. */
static rp_status find_place(rp_comm *comm, int rank, const rpi_frame_header *header,
                            rpi_chunk **out_chunk) {
    rp_request *request = rpi_request_find(comm, rank, header->sequence);
    if (!request && rpi_receive_is_future(comm, rank, header))
        return check_unopened(comm, rank, header, NULL);
    if (request && !rpi_request_agrees(request, header)) {
        rpi_receive_fail_mismatch(request, rank, header);
        return RP_MISMATCH;
    }
    if (request && !rpi_request_expects(request, rank)) return RP_MISMATCH;
    rpi_chunk *chunk = request ? find_chunk(request, header->chunk) : NULL;
    if (request && header->chunk >= request->next_chunk &&
        header->chunk < (uint32_t)request->partition.split.chunks)
        return check_unopened(comm, rank, header, request);
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

static double read_edge_weight(const rp_request *request, const void *payload) {
    double edge_weight = 1;
    if (request->kind->ahead_bytes && payload)
        memcpy(&edge_weight, payload, sizeof edge_weight);
    return edge_weight;
}

/* Encodings of any length are read when they are due; of all others the length says it. */
static rp_status check_part(const rpi_chunk *chunk, const rpi_instruction *instruction,
                            const void *payload, size_t bytes) {
    const rp_request *request = chunk->request;
    const rpi_partition *partition = &request->partition;
    size_t ahead = request->kind->ahead_bytes;
    if (bytes < ahead) return RP_FAIL(CORRUPT, "it has no weight");
    double edge_weight = read_edge_weight(request, payload);
    if (!isfinite(edge_weight)) return RP_FAIL(CORRUPT, "its weight is %g", edge_weight);
    if (!partition->varies || instruction->into == RPI_SLOT_RTR) return RP_OK;
    return rpi_partition_check_part(partition, chunk->index, instruction->part,
                                    instruction->level, (const unsigned char *)payload + ahead,
                                    bytes - ahead);
}

/* The RECV that the next frame of this chunk from this rank belongs to; RP_PENDING: it is not
 * due. payload NULL: it was written into what was sent from here. */
static rp_status find_recv(rpi_chunk *chunk, int rank, const rpi_frame_header *header,
                           const void *payload, size_t bytes, int *out_instruction) {
    const rp_request *request = chunk->request;
    const rpi_compiled_schedule *compiled = request->compiled;
    int peer = rpi_request_peer(request, rank);
    int first = compiled->first_recv[peer], count = compiled->first_recv[peer + 1] - first;
    if (chunk->received[peer] >= count) return fail_part(request, rank, header, bytes, NULL);
    int index = compiled->recvs[first + chunk->received[peer]];
    const rpi_instruction *instruction = &compiled->instruction[index];
    size_t most = rpi_instruction_bytes(request, chunk->index, instruction);
    bool fits = request->partition.varies ? bytes <= most : bytes == most;
    if (!fits || rpi_request_recv_part(request, header) != instruction->part)
        return fail_part(request, rank, header, bytes, NULL);
    if (!(chunk->ready[index / 64] >> (index % 64) & 1)) return RP_PENDING;
    if (!payload && !rpi_in_place_may_be_written(chunk, instruction))
        return fail_part(request, rank, header, bytes, "it was not to be written here");
    if (payload && check_part(chunk, instruction, payload, bytes) != RP_OK)
        return fail_part(request, rank, header, bytes, rp_last_error()->message);
    *out_instruction = index;
    return RP_OK;
}

/* Make the bytes the RECV's encoded slot; the slot is the caller's to point at them. */
static rpi_encoded_slot *finish_recv(rpi_chunk *chunk, int rank, int index) {
    const rpi_instruction *instruction = &chunk->request->compiled->instruction[index];
    chunk->received[rpi_request_peer(chunk->request, rank)]++;
    if (chunk->request->stage == RPI_REQUEST_PARKED)
        rpi_request_go_to(chunk->request, RPI_REQUEST_QUEUED);
    chunk->request->awaits_control = 0;
    rpi_chunk_finish(chunk, index);
    if (instruction->into < RPI_SLOT_ENCODED) return NULL;
    rpi_encoded_slot *encoded_slot =
        &chunk->encoded_slots[instruction->into - RPI_SLOT_ENCODED];
    return encoded_slot->readers ? encoded_slot : NULL;
}

/* ---- from what was queued as unexpected ---- */

static void fill_slot(const rp_request *request, rpi_encoded_slot *encoded_slot,
                      rpi_frame_buffer *buffer) {
    size_t ahead = request->kind->ahead_bytes;
    if (buffer->written) {
        encoded_slot->state = RPI_ENCODED_THERE;
        rpi_frame_buffer_give(request->comm->context, buffer);
        return;
    }
    *encoded_slot =
        (rpi_encoded_slot){.state = RPI_ENCODED_BUFFER,
                           .readers = encoded_slot->readers,
                           .buffer = buffer,
                           .data = buffer->payload + ahead,
                           .bytes = buffer->bytes - ahead,
                           .edge_weight = read_edge_weight(request, buffer->payload)};
}

bool rpi_receive_unexpected(rpi_chunk *chunk, int index) {
    rp_comm *comm = chunk->request->comm;
    int peer = chunk->request->compiled->instruction[index].peer, next = -1;
    int rank = rpi_request_rank(chunk->request, peer);
    rpi_frame_list *frames = &chunk->unexpected[peer];
    const rpi_frame_buffer *first = frames->first;
    if (!first) return false;
    const void *payload = first->written ? NULL : first->payload;
    if (find_recv(chunk, rank, &first->header, payload, first->bytes, &next) != RP_OK)
        return false;
    rpi_frame_buffer *buffer = rpi_frames_pop(frames);
    rpi_encoded_slot *encoded_slot = finish_recv(chunk, rank, next);
    if (encoded_slot)
        fill_slot(chunk->request, encoded_slot, buffer);
    else
        rpi_frame_buffer_give(comm->context, buffer);
    return true;
}

void rpi_receive_check_empty(rpi_chunk *chunk) {
    const rp_request *request = chunk->request;
    for (int peer = 0; peer < request->compiled->schedule.world; peer++) {
        const rpi_frame_buffer *buffer = chunk->unexpected[peer].first;
        if (!buffer) continue;
        (void)rpi_receive_fail_finished(request->comm, rpi_request_rank(request, peer),
                                        &buffer->header, request);
        return;
    }
}

static void place_unexpected(rpi_chunk *chunk, int rank, rpi_frame_buffer *buffer) {
    int peer = rpi_request_peer(chunk->request, rank);
    rpi_frames_append(&chunk->unexpected[peer], buffer);
    rpi_flow_placed(chunk->request, rank, &buffer->header, buffer->bytes);
}

static void forget_empty(rp_comm *comm, int rank, uint64_t sequence,
                         rpi_unexpected *unexpected) {
    if (!unexpected->frames.first) rpi_unexpected_drop(comm, rank, sequence, unexpected);
}

/* Frames of one chunk stand together as a rule, those of earlier chunks first. */
static void adopt_from(rpi_chunk *chunk, int rank) {
    rp_comm *comm = chunk->request->comm;
    uint64_t sequence = chunk->request->sequence;
    rpi_unexpected *unexpected = rpi_unexpected_find(comm, rank, sequence);
    if (!unexpected) return;
    rpi_frame_buffer *buffer = unexpected->frames.first;
    unexpected->frames = (rpi_frame_list){0};
    for (rpi_frame_buffer *next; buffer; buffer = next) {
        next = buffer->next;
        if (buffer->header.chunk == chunk->index)
            place_unexpected(chunk, rank, buffer);
        else
            rpi_frames_append(&unexpected->frames, buffer);
    }
    forget_empty(comm, rank, sequence, unexpected);
}

void rpi_receive_claim(rpi_chunk *chunk) {
    const rpi_index *unexpected = &chunk->request->comm->unexpected;
    for (int rank = 0; unexpected->count && rank < chunk->request->comm->world; rank++)
        if (rpi_request_concerns(chunk->request, rank)) adopt_from(chunk, rank);
}

static bool compare_with(rp_request *request, int rank) {
    rp_comm *comm = request->comm;
    rpi_unexpected *unexpected = rpi_unexpected_find(comm, rank, request->sequence);
    if (!unexpected) return true;
    for (const rpi_frame_buffer *buffer = unexpected->frames.first; buffer;
         buffer = buffer->next) {
        const rpi_frame_header *header = &buffer->header;
        bool agrees = rpi_request_agrees(request, header);
        if (agrees && !rpi_request_expects(request, rank)) return false;
        if (agrees && header->chunk < (uint32_t)request->partition.split.chunks)
            rpi_cts_note_started(request, rank, header);
        else if (agrees)
            (void)rpi_receive_fail_finished(comm, rank, header, request);
        else
            rpi_receive_fail_mismatch(request, rank, header);
        if (rpi_comm_has_failed(comm)) return false;
    }
    if (unexpected->expects && !rpi_exchange_sends(request, rank)) return false;
    if (unexpected->asks && !rpi_request_expects(request, rank)) return false;
    if (unexpected->asks) rpi_cts_note_request(request, rank);
    forget_empty(comm, rank, request->sequence, unexpected);
    return true;
}

bool rpi_receive_compare(rp_request *request) {
    const rp_comm *comm = request->comm;
    for (int rank = 0; comm->unexpected.count && rank < comm->world; rank++)
        if (rpi_request_concerns(request, rank) && !compare_with(request, rank)) return false;
    return true;
}

static const void *payload_of(rpi_link *link, const void *frame) {
    const rpi_zero_copy *sharing = link->endpoint->transport->zero_copy;
    if (sharing && sharing->is_written(link)) return NULL;
    const void *elsewhere = sharing ? sharing->payload(link) : NULL;
    return elsewhere ? elsewhere : (const unsigned char *)frame + RPI_FRAME_HEADER_BYTES;
}

static bool head_stands(const rpi_connection *connection) {
    const rpi_zero_copy *sharing = connection->link->endpoint->transport->zero_copy;
    return !sharing || sharing->is_valid(connection->link);
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

/* Out of the link, to where its RECV or its chunk will look for it. RP_PENDING: it was
 * withdrawn, and stays where it is until its operation fails here, too. */
static rp_status move_head(rpi_connection *connection, int rank) {
    rp_comm *comm = connection->comm;
    rpi_frame_buffer *buffer = NULL;
    rpi_chunk *chunk = NULL;
    rpi_unexpected *unexpected = NULL;
    RP_TRY(copy_head(connection, &buffer));
    if (!head_stands(connection)) {
        rpi_frame_buffer_give(comm->context, buffer);
        return RP_PENDING;
    }
    if (connection->holder) {
        fill_slot(connection->holder->request,
                  &connection->holder->encoded_slots[connection->held_slot], buffer);
    } else if (find_place(comm, rank, &connection->header, &chunk) == RP_OK) {
        place_unexpected(chunk, rank, buffer);
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

/* Of one communicator alone there is nobody behind who does not wait for the same; and what is
 * read soon is not worth a copy. What has its reader, which only waits for its turn,
 * has some iterations for that. */
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
        bool elsewhere =
            connection->payload != (const char *)connection->head + RPI_FRAME_HEADER_BYTES;
        if (elsewhere) (void)queue_unexpected(connection, rank);
    }
}

/* ---- from the link ---- */

/* Whose frame it is; RP_PENDING: nobody's, and it is done with. */
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

/* Says something, and is no part of an operation's data. */
static bool is_control(const rpi_frame_header *header) {
    return !rpi_frame_rules[header->kind].has_elements;
}

static void put_head(rpi_connection *connection, int rank, const void *frame) {
    connection->head = frame;
    rpi_rank_set_put(&connection->context->heads, rank);
}

/* Look at the head of the link, once. RP_PENDING: there is none. */
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
    if (connection->header.kind == RPI_FRAME_WINDOW)
        rpi_windows_receive(comm, rank, &connection->header, connection->payload);
    else if (connection->header.kind == RPI_FRAME_RTS)
        rpi_p2p_receive_rts(comm, rank, &connection->header);
    else
        rpi_flow_receive(comm, rank, &connection->header);
    rpi_connection_release(connection);
}

/* To the RECV that is due for it; false: there is none yet. */
static bool place_head(rpi_connection *connection, int rank) {
    rp_comm *comm = connection->comm;
    size_t bytes = connection->head_bytes - RPI_FRAME_HEADER_BYTES;
    rpi_chunk *chunk = NULL;
    int index = -1;
    if (find_place(comm, rank, &connection->header, &chunk) != RP_OK) return false;
    /* Earlier frames of the chunk that lie in the unexpected queue come first. */
    if (chunk->unexpected[rpi_request_peer(chunk->request, rank)].first) return false;
    const void *payload = connection->payload;
    if (find_recv(chunk, rank, &connection->header, payload, bytes, &index) != RP_OK)
        return false;
    rpi_flow_placed(chunk->request, rank, &connection->header, bytes);
    rpi_encoded_slot *encoded_slot = finish_recv(chunk, rank, index);
    if (encoded_slot && !payload) encoded_slot->state = RPI_ENCODED_THERE;
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
                           .edge_weight = read_edge_weight(chunk->request, payload)};
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
