/* The executor: one iteration takes frames that have come, runs instructions that may run and
 * sends frames for which there is room. Urgent operations go first (urgency.h), of these the
 * older ones, and earlier chunks first. operation_run.c handles one operation in its turn. */
#include "comm/run/executor.h"
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/frame_buffers.h"
#include "comm/core/request.h"
#include "comm/device/device.h"
#include "comm/parts/parts.h"
#include "comm/protocol/exchange_protocol.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/number_waiting.h"
#include "comm/protocol/numbering.h"
#include "comm/protocol/window_table.h"
#include "comm/run/in_place.h"
#include "comm/run/receive.h"

#include "base/clock.h"

/* How many instructions of a communicator an iteration runs before it examines the links again;
 * the second number is for communicators with nothing urgent while another has something
 * urgent. */
enum { ITERATION_INSTRUCTIONS = 8, BESIDE_URGENT_INSTRUCTIONS = 2 };

/* While several communicators have moved this recently, they count as moving together. */
#define COMPANY_NS (RPI_SECOND_NS / 10)

static void count_queued(rp_comm *comm, const rp_request *request, int change) {
    comm->queued[request->urgency] += change;
    comm->context->queued[request->urgency] += change;
}

static void remove_from_queue(rp_comm *comm, rp_request **at) {
    rp_request *request = *at;
    *at = request->next;
    if (!*at) comm->queue_end = at;
    count_queued(comm, request, -1);
}

/* Frames of urgent operations must not wait for long. */
static int iteration_instructions(const rpi_context *context, rpi_urgency urgency) {
    bool beside = urgency != RPI_URGENT && context->queued[RPI_URGENT] > 0;
    return beside ? BESIDE_URGENT_INSTRUCTIONS : ITERATION_INSTRUCTIONS;
}

static bool run_queue(rp_comm *comm, rpi_urgency urgency) {
    bool moved = false;
    int budget = iteration_instructions(comm->context, urgency), turns = 0;
    for (rp_request **at = &comm->queue; *at;) {
        rp_request *request = *at;
        if (request->urgency != urgency) {
            at = &request->next;
            continue;
        }
        if (!request->kind->takes_turns || turns++ < RPI_ACTIVE_OPERATIONS)
            moved |= rpi_request_run(request, &budget);
        if (rpi_comm_has_failed(comm)) return true;
        if (request->stage == RPI_REQUEST_PARKED || !rpi_request_is_over(request)) {
            at = &request->next;
            continue;
        }
        remove_from_queue(comm, at);
        rpi_request_leave(request);
        /* The first of a communicator that is made is a barrier. */
        if (comm->making != RPI_COMM_MET) rpi_comm_go_to(comm, RPI_COMM_MET);
        rpi_request_complete(request, RP_OK, "");
        moved = true;
    }
    return moved;
}

/* Under the lock: the requests that one communicator's callers have posted. */
static rp_request *empty_inbox(rp_comm *comm) {
    rp_request *first = comm->inbox;
    *comm->queue_end = first;
    if (first) comm->queue_end = comm->inbox_end;
    comm->inbox = NULL;
    comm->inbox_end = &comm->inbox;
    comm->has_inbox = false;
    return first;
}

static rp_comm *take_inbox(rpi_context *context, rp_request **out_first) {
    pthread_mutex_lock(&context->lock);
    rp_comm *comm = context->inboxes;
    if (comm) {
        context->inboxes = comm->next_inbox;
        *out_first = empty_inbox(comm);
    }
    if (!context->inboxes) atomic_store(&context->posted, false);
    pthread_mutex_unlock(&context->lock);
    return comm;
}

static bool take_posted(rpi_context *context) {
    bool moved = false;
    while (atomic_load(&context->posted)) {
        rp_request *first = NULL;
        rp_comm *comm = take_inbox(context, &first);
        if (!comm) break;
        for (rp_request *request = first; request; request = request->next) {
            count_queued(comm, request, 1);
            bool is_unbound = rpi_request_is_unbound(request);
            rpi_request_go_to(request, is_unbound ? RPI_REQUEST_UNBOUND : RPI_REQUEST_QUEUED);
            if (!rpi_comm_has_failed(comm) && !is_unbound) (void)rpi_request_enter(request);
        }
        if (first) rpi_comm_progressed(comm, rpi_now_ns());
        rpi_context_activate(comm);
        moved = true;
    }
    return moved;
}

static void progress_endpoints(rpi_context *context) {
    if (!context->mesh) return;
    for (int i = 0; context->mesh->endpoints[i]; i++) {
        rpi_endpoint *endpoint = context->mesh->endpoints[i];
        /* Failures of single links come back from peek() and reserve(). */
        (void)endpoint->transport->progress(endpoint);
    }
    for (int rank = 0; context->any_full && rank < context->world; rank++)
        context->connections[rank].full = context->connections[rank].bulk_full = false;
    context->any_full = false;
}

static bool receive_from(rpi_context *context, const rpi_rank_set *ranks) {
    bool moved = false;
    for (int rank = rpi_rank_set_next(ranks, 0); rank >= 0;
         rank = rpi_rank_set_next(ranks, rank + 1))
        moved |= rpi_receive(context, rank);
    return moved;
}

/* Of the links that may be ready. */
static bool receive_ready(rpi_context *context) {
    bool moved = receive_from(context, &context->polled);
    for (int i = 0; context->mesh && context->mesh->endpoints[i]; i++) {
        rpi_endpoint *endpoint = context->mesh->endpoints[i];
        const rpi_transport *transport = endpoint->transport;
        const rpi_rank_set *ready = transport->ready ? transport->ready(endpoint) : NULL;
        if (ready) moved |= receive_from(context, ready);
    }
    return moved;
}

/* The GPU reads none of these: later work is that of others. */
static void let_frames_go(rp_request *request) {
    for (rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next) {
        rpi_in_place_revoke(chunk); /* some may be read in place from there */
        for (int w = 0; w < request->compiled->schedule.encoded_slots; w++)
            if (chunk->encoded_slots[w].state == RPI_ENCODED_FRAME ||
                chunk->encoded_slots[w].state == RPI_ENCODED_BUFFER)
                rpi_encoded_slot_empty(chunk, w);
    }
}

/* Requests whose memory a GPU still works on stay in the queue. */
static void fail_queue(rp_comm *comm) {
    comm->ending = false;
    for (rp_request **at = &comm->queue, *request; (request = *at) != NULL;) {
        char text[sizeof comm->failure.text];
        if (rpi_device_ends(request)) {
            comm->ending = true;
            let_frames_go(request);
            at = &request->next;
            continue;
        }
        rpi_failure_text(&comm->failure, request, text, sizeof text);
        for (rpi_chunk *chunk = request->chunks, *after; chunk; chunk = after) {
            after = chunk->next;
            rpi_chunk_release(chunk);
        }
        request->chunks = NULL;
        remove_from_queue(comm, at);
        rpi_request_leave(request);
        rpi_request_complete(request, comm->failure.status, text);
    }
    comm->credit_due = comm->rejects_due = false;
}

static bool run_urgency(rpi_context *context, rpi_urgency urgency) {
    bool moved = false;
    for (rp_comm *comm = context->active; comm; comm = comm->next_active) {
        if (!comm->queued[urgency] || !rpi_comm_is_numbered(comm) || rpi_comm_has_failed(comm))
            continue;
        if (!run_queue(comm, urgency)) continue;
        rpi_comm_progressed(comm, rpi_now_ns());
        moved = true;
    }
    return moved;
}

static bool run_operations(rpi_context *context) {
    bool moved = false;
    for (rpi_urgency urgency = RPI_URGENT; urgency < RPI_URGENCIES; urgency++)
        if (context->queued[urgency]) moved |= run_urgency(context, urgency);
    return moved;
}

/* The other work for one communicator. Bytes of windows are no progress of the operations that
 * wait. */
static bool iterate_over(rp_comm *comm) {
    bool served = false;
    if (comm->untold_count && !rpi_comm_has_failed(comm)) rpi_number_send(comm);
    if (comm->credit_due && !rpi_comm_has_failed(comm)) rpi_flow_send_credit(comm);
    if (comm->rejects_due && !rpi_comm_has_failed(comm)) rpi_exchanges_send_rejects(comm);
    if (comm->windows) served = rpi_windows_serve(comm);
    if (!rpi_comm_has_failed(comm)) rpi_comm_check_links(comm);
    if (rpi_comm_has_failed(comm) && rpi_comm_is_decided(comm)) fail_queue(comm);
    return served;
}

static bool is_idle(const rp_comm *comm) {
    return !comm->queue && !comm->credit_due && !comm->rejects_due && !comm->windows_due &&
           (!comm->untold_count || rpi_comm_has_failed(comm));
}

/* Is bulk to leave room for others? */
static void note_company(rpi_context *context) {
    const rp_comm *comm = context->active;
    while (comm && !comm->queue) comm = comm->next_active;
    const rp_comm *other = comm ? comm->next_active : NULL;
    while (other && !other->queue) other = other->next_active;
    if (!other && !context->company) return;
    int64_t now = rpi_now_ns();
    if (other) context->company_ns = now + COMPANY_NS;
    context->company = now < context->company_ns;
}

/* Whichever communicator is served first takes the room in a link. So one that has had some
 * goes behind those that have not. */
static void take_turns(rpi_context *context) {
    rp_comm *served = NULL, **served_end = &served, **at = &context->active;
    for (rp_comm *comm; (comm = *at) != NULL;) {
        if (!comm->was_served) {
            at = &comm->next_active;
            continue;
        }
        comm->was_served = false;
        *at = comm->next_active;
        *served_end = comm;
        served_end = &comm->next_active;
    }
    *served_end = NULL;
    *at = served;
    context->active_end = served ? served_end : at;
}

bool rpi_progress_iterate(rpi_context *context) {
    bool moved = take_posted(context);
    context->iterations++;
    progress_endpoints(context);
    moved |= rpi_context_connect_new_links(context);
    moved |= receive_ready(context);
    if (context->unnumbered) moved |= rpi_context_number_waiting(context);
    context->breaks_seen = context->breaks;
    note_company(context);
    moved |= run_operations(context);
    for (rp_comm **at = &context->active; *at;) {
        rp_comm *comm = *at;
        moved |= iterate_over(comm);
        if (!is_idle(comm)) {
            at = &comm->next_active;
            continue;
        }
        *at = comm->next_active;
        if (!*at) context->active_end = at;
        comm->is_active = false;
    }
    take_turns(context);
    if (moved) rpi_unexpected_queue_overdue(context);
    return moved;
}
