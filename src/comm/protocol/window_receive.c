/* Windows: received frames. All are processed at once, because there is room for every message.
 */
#include "comm/protocol/window_table.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

static rp_window *find(const rp_comm *comm, int32_t number) {
    rp_window *window = comm->windows;
    while (window && (int32_t)window->number != number) window = window->next;
    return window;
}

/* ---- messages ---- */

static rp_status begin_arrival(rp_window *window, rpi_window_in *in,
                               const rpi_frame_header *header, const void *payload) {
    rpi_window_arrival *arrival = &in->arrival;
    if (arrival->is_there || header->sequence != in->taken + 1 || header->chunk)
        return RP_FAIL(CORRUPT, "message %llu, piece %u is not what comes next",
                       (unsigned long long)header->sequence, header->chunk);
    if (header->bytes < sizeof arrival->lead)
        return RP_FAIL(CORRUPT, "a message of %u bytes says not what it is", header->bytes);
    rpi_window_lead lead;
    memcpy(&lead, payload, sizeof lead);
    bool answers = header->operation == RPI_WINDOW_ANSWER;
    if (!isfinite(lead.p) || lead.flags & ~(uint32_t)RPI_PUSH_FLAGS)
        return RP_FAIL(CORRUPT, "a message with flags %x and p %g", lead.flags, lead.p);
    if (answers && (lead.asked != in->asked || lead.flags != RPI_PUSH_REPLACES))
        return RP_FAIL(CORRUPT, "an answer to get %llu, where %llu was asked",
                       (unsigned long long)lead.asked, (unsigned long long)in->asked);
    if (!in->staging)
        RP_TRY(rpi_alloc(window->count * window->element_bytes, "what comes for a slot",
                         &in->staging));
    *arrival = (rpi_window_arrival){.is_there = true,
                                    .answers = answers,
                                    .mutex = header->round & RPI_WINDOW_MUTEX,
                                    .lead = lead};
    return RP_OK;
}

static rp_status decode(rp_window *window, rpi_window_in *in, const rpi_frame_header *header,
                        const unsigned char *encoding, size_t bytes) {
    size_t first, count = rpi_window_slice(window, header->chunk, &first);
    rp_encode_context context = rpi_window_context(window, header->sequence, first);
    unsigned char *into = in->staging;
    if (!count && !bytes) return RP_OK;
    return rp_codec_decode(&window->codec, window->dtype, encoding, bytes, count, &context,
                           into + first * window->element_bytes);
}

static rp_status receive_slice(rp_window *window, int rank, const rpi_frame_header *header,
                               const unsigned char *payload) {
    int at = rpi_window_find_in(window, rank);
    if (at < 0) return RP_FAIL(MISMATCH, "it is no source");
    rpi_window_in *in = &window->ins[at];
    rpi_window_arrival *arrival = &in->arrival;
    size_t ahead = 0;
    if (!arrival->is_there || !header->chunk) {
        RP_TRY(begin_arrival(window, in, header, payload));
        ahead = sizeof arrival->lead;
    }
    if (header->sequence != in->taken + 1 || header->chunk != arrival->next_slice ||
        arrival->is_whole || arrival->answers != (header->operation == RPI_WINDOW_ANSWER))
        return RP_FAIL(CORRUPT, "message %llu, piece %u is not what comes next",
                       (unsigned long long)header->sequence, header->chunk);
    int64_t start = rpi_now_ns();
    RP_TRY(decode(window, in, header, payload + ahead, header->bytes - ahead));
    window->comm->decode_ns += rpi_now_ns() - start;
    arrival->is_whole = ++arrival->next_slice == window->slices;
    (void)rpi_window_apply(window, in);
    return RP_OK;
}

/* ---- control frames ---- */

static rp_status receive_taken(rp_window *window, int rank, const rpi_frame_header *header) {
    int at = rpi_window_find_out(window, rank);
    rpi_window_out *out = at < 0 ? NULL : &window->outs[at];
    if (!out || !out->is_busy || out->next_slice < window->slices ||
        header->sequence != out->messages)
        return RP_FAIL(CORRUPT, "message %llu was not sent, and is said to be taken",
                       (unsigned long long)header->sequence);
    out->is_busy = false;
    if (out->answers) return RP_OK;
    rpi_context *context = window->comm->context;
    pthread_mutex_lock(&context->lock);
    out->done = out->sending.last;
    pthread_cond_broadcast(&context->changed);
    pthread_mutex_unlock(&context->lock);
    return RP_OK;
}

static rp_status receive_get(rp_window *window, int rank, const rpi_frame_header *header) {
    int at = rpi_window_find_out(window, rank);
    if (at < 0) return RP_FAIL(MISMATCH, "it is no destination");
    rpi_window_out *out = &window->outs[at];
    if (out->asked || !header->sequence)
        return RP_FAIL(CORRUPT, "get %llu came before the answer to %llu",
                       (unsigned long long)header->sequence, (unsigned long long)out->asked);
    out->asked = header->sequence;
    out->asked_mutex = header->round & RPI_WINDOW_MUTEX;
    return RP_OK;
}

/* Under the context's lock: to the peer. */
static void hand_over(rp_window *window, rpi_window_cell *cell) {
    cell->holder = RPI_CELL_PEER;
    cell->peer_waits = false;
    cell->told_due = true;
    atomic_store(&window->control_due, true);
}

/* Under the context's lock. */
static rp_status receive_lock(rp_window *window, rpi_window_cell *cell) {
    if (cell->holder == RPI_CELL_PEER || cell->peer_waits)
        return RP_FAIL(CORRUPT, "a mutex was asked for twice");
    if (cell->holder == RPI_CELL_FREE)
        hand_over(window, cell);
    else
        cell->peer_waits = true;
    return RP_OK;
}

/* Under the context's lock. An owner that waits for the mutex gets it before the peer that
 * releases it can ask again. */
static rp_status receive_unlock(rp_window *window, rpi_window_cell *cell) {
    if (cell->holder != RPI_CELL_PEER)
        return RP_FAIL(CORRUPT, "a mutex was released that was not held");
    cell->holder = cell->owner_waits ? RPI_CELL_OWNER : RPI_CELL_FREE;
    cell->owner_waits = false;
    pthread_cond_broadcast(&window->comm->context->changed);
    return RP_OK;
}

/* Under the context's lock. */
static rp_status receive_locked(rp_window *window, rpi_window_claim *claim) {
    if (claim->state != RPI_CLAIM_ASKED)
        return RP_FAIL(CORRUPT, "a mutex was given that was not asked for");
    claim->state = claim->abandoned ? RPI_CLAIM_NONE : RPI_CLAIM_HELD;
    claim->unlock_due = claim->abandoned;
    claim->abandoned = false;
    if (claim->unlock_due) atomic_store(&window->control_due, true);
    pthread_cond_broadcast(&window->comm->context->changed);
    return RP_OK;
}

static rp_status receive_mutex(rp_window *window, int rank, rpi_window_frame frame) {
    rpi_context *context = window->comm->context;
    pthread_mutex_lock(&context->lock);
    rp_status status = frame == RPI_WINDOW_LOCK ? receive_lock(window, &window->cells[rank])
                       : frame == RPI_WINDOW_UNLOCK
                           ? receive_unlock(window, &window->cells[rank])
                           : receive_locked(window, &window->claims[rank]);
    pthread_mutex_unlock(&context->lock);
    return status;
}

/* ---- all ---- */

rp_status rpi_window_receive(rp_window *window, int rank, const rpi_frame_header *header,
                             const void *payload) {
    if (header->signature != window->signature || header->count != window->count)
        return RP_FAIL(MISMATCH, "it has another window of that number");
    if (header->operation == RPI_WINDOW_PUSH || header->operation == RPI_WINDOW_ANSWER)
        return receive_slice(window, rank, header, payload);
    if (header->bytes) return RP_FAIL(CORRUPT, "a control frame of a window with a payload");
    switch (header->operation) {
    case RPI_WINDOW_TAKEN: return receive_taken(window, rank, header);
    case RPI_WINDOW_GET: return receive_get(window, rank, header);
    case RPI_WINDOW_LOCK:
    case RPI_WINDOW_LOCKED:
    case RPI_WINDOW_UNLOCK: return receive_mutex(window, rank, header->operation);
    default:
        return RP_FAIL(CORRUPT, "a frame of a window with operation %d, which there is not",
                       header->operation);
    }
}

void rpi_windows_receive(rp_comm *comm, int rank, const rpi_frame_header *header,
                         const void *payload) {
    rp_window *window = find(comm, header->part);
    if (!window && header->part > 0 && (uint32_t)header->part <= comm->last_window)
        return; /* it was freed here, after all frames that matter had come */
    if (!window) {
        rpi_comm_fail_text(comm, RP_MISMATCH, rank,
                           "rank %d sent to window %d, which rank %d has not created", rank,
                           header->part, comm->rank);
        return;
    }
    rp_status status = rpi_window_receive(window, rank, header, payload);
    if (status == RP_OK) return;
    char why[300];
    snprintf(why, sizeof why, "%s", rp_last_error()->message);
    rpi_comm_fail_text(comm, status, rank, "window '%s': rank %d sent what cannot be: %s",
                       window->name, rank, why);
}
