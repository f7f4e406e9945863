/* Windows, in one iteration of the progress owner: frames to be sent, and messages that can be
 * applied. */
#include "comm/core/traffic.h"
#include "comm/protocol/control_frame.h"
#include "comm/protocol/window_table.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#include <string.h>

/* How many slices an iteration sends to one destination, so that other frames get their turn in
 * between. */
enum { ITERATION_SLICES = 4 };

/* ---- frames ---- */

rpi_frame_header rpi_window_header(const rp_window *window, rpi_window_frame frame,
                                   uint64_t number) {
    return (rpi_frame_header){.kind = RPI_FRAME_WINDOW,
                              .communicator = window->comm->id,
                              .epoch = window->comm->epoch,
                              .sequence = number,
                              .part = (int32_t)window->number,
                              .count = window->count,
                              .signature = window->signature,
                              .operation = (uint8_t)frame,
                              .dtype = (uint8_t)window->dtype,
                              .codec = rpi_codec_kind_of(&window->codec)->wire_id,
                              .bits = window->codec.bits,
                              .bucket = window->codec.bucket};
}

rp_encode_context rpi_window_context(const rp_window *window, uint64_t message, size_t first) {
    return (rp_encode_context){.step = message, .tensor = window->number, .first = first};
}

size_t rpi_window_slice(const rp_window *window, uint32_t slice, size_t *out_first) {
    size_t first = slice * window->slice, left = window->count - first;
    *out_first = first;
    return left < window->slice ? left : window->slice;
}

/* Only a header. False: there is no room now; the next iteration tries again. */
static bool send_header(rp_window *window, int rank, rpi_window_frame frame, uint64_t number,
                        bool mutex) {
    rpi_frame_header header = rpi_window_header(window, frame, number);
    header.round = mutex ? RPI_WINDOW_MUTEX : 0;
    if (window->comm->peers[rank].broken) return true; /* nobody hears it */
    if (rpi_control_frame_send(window->comm, rank, &header) == RP_OK) return true;
    window->comm->windows_due = true;
    return false;
}

static void fail(rp_window *window, rp_status status) {
    rpi_comm_fail_text(window->comm, status, window->comm->rank, "window '%s': %s",
                       window->name, rp_last_error()->message);
}

/* ---- the window's lock, which is only tried ---- */

/* The thread that holds it reads `missed` when it releases it, and calls. */
static bool try_values(rp_window *window) {
    if (pthread_mutex_trylock(&window->lock) == 0) return true;
    atomic_store(&window->missed, true);
    return pthread_mutex_trylock(&window->lock) == 0;
}

bool rpi_window_is_free_of(rp_window *window, int rank) {
    pthread_mutex_lock(&window->comm->context->lock);
    bool is_free = window->cells[rank].holder != RPI_CELL_OWNER;
    pthread_mutex_unlock(&window->comm->context->lock);
    return is_free;
}

/* ---- to destinations ---- */

static rp_status encode(const rp_window *window, const rpi_window_out *out, size_t first,
                        size_t count, unsigned char *into, size_t *out_bytes) {
    rp_encode_context context = rpi_window_context(window, out->messages, first);
    bool adds = !out->answers && !(out->sending.lead.flags & RPI_PUSH_REPLACES);
    context.role = 2 * (uint32_t)window->comm->rank;
    context.residual = out->residual && adds ? out->residual + first : NULL;
    *out_bytes = 0;
    if (!count) return RP_OK;
    const unsigned char *values = out->sending.values;
    return rp_codec_encode(&window->codec, window->dtype,
                           values + first * window->element_bytes, count, &context, into,
                           out_bytes);
}

/* RP_PENDING: no room in the link. */
static rp_status send_slice(rp_window *window, rpi_window_out *out) {
    rp_comm *comm = window->comm;
    rpi_peer *peer = &comm->peers[out->rank];
    rpi_link *link = rpi_connection_link(peer->connection);
    if (!link) return RP_PENDING;
    const rpi_transport *transport = link->endpoint->transport;
    size_t first, count = rpi_window_slice(window, out->next_slice, &first), bytes;
    size_t ahead = out->next_slice ? 0 : sizeof out->sending.lead;
    size_t most = ahead + rp_codec_encoded_bytes(&window->codec, window->dtype, count);
    void *region = NULL;
    rpi_traffic_prepare(comm, out->rank, rpi_urgency_of_windows(comm));
    if (rpi_connection_was_full(peer->connection)) return RP_PENDING;
    if (transport->reserve(link, RPI_FRAME_HEADER_BYTES + most, &region) != RP_OK) {
        rpi_connection_note_full(peer->connection); /* peek() tells if a link has failed */
        return RP_PENDING;
    }
    unsigned char *payload = (unsigned char *)region + RPI_FRAME_HEADER_BYTES;
    if (ahead) memcpy(payload, &out->sending.lead, ahead);
    RP_TRY(encode(window, out, first, count, payload + ahead, &bytes));
    rpi_frame_header header = rpi_window_header(
        window, out->answers ? RPI_WINDOW_ANSWER : RPI_WINDOW_PUSH, out->messages);
    header.chunk = out->next_slice++;
    header.round = out->sending.mutex ? RPI_WINDOW_MUTEX : 0;
    rpi_frame_seal(region, &header, ahead + bytes, transport->checksum);
    (void)transport->commit(link, RPI_FRAME_HEADER_BYTES + ahead + bytes);
    rpi_traffic_posted(comm, out->rank);
    rpi_comm_count_sent(comm, RPI_FRAME_HEADER_BYTES + ahead + bytes);
    atomic_fetch_add_explicit(&comm->values_sent, count * window->element_bytes,
                              memory_order_relaxed);
    return RP_OK;
}

static bool send_slices(rp_window *window, rpi_window_out *out) {
    int sent = 0;
    int64_t start = rpi_now_ns();
    rp_status status = RP_OK;
    while (out->next_slice < window->slices && sent < ITERATION_SLICES && status == RP_OK) {
        status = send_slice(window, out);
        sent += status == RP_OK;
    }
    if (status < 0) fail(window, status);
    if (out->next_slice < window->slices) window->comm->windows_due = true;
    window->comm->encode_ns += rpi_now_ns() - start;
    return sent > 0;
}

/* A put drops the residual of earlier accumulates. */
static void begin_push(rp_window *window, rpi_window_out *out) {
    rpi_window_push push = out->pending;
    out->pending = (rpi_window_push){.values = out->sending.values};
    out->sending = push;
    out->answers = false;
    out->answers_next = out->asked != 0;
    if (out->residual && push.lead.flags & RPI_PUSH_REPLACES)
        memset(out->residual, 0, window->count * sizeof *out->residual);
}

static rp_status begin_answer(rp_window *window, rpi_window_out *out) {
    size_t bytes = window->count * window->element_bytes;
    if (!out->sending.values)
        RP_TRY(rpi_alloc(bytes, "an answer to a get", &out->sending.values));
    if (bytes) memcpy(out->sending.values, window->data, bytes);
    out->sending.mutex = false;
    out->sending.lead = (rpi_window_lead){.flags = RPI_PUSH_REPLACES, .asked = out->asked};
    out->answers = true;
    out->answers_next = false;
    out->asked = 0;
    return RP_OK;
}

static bool may_answer(rp_window *window, const rpi_window_out *out) {
    return out->asked && (!out->asked_mutex || rpi_window_is_free_of(window, out->rank));
}

/* Earlier pushes are sent before the answer to a get, later ones after it. */
static bool begin(rp_window *window, rpi_window_out *out) {
    if (!atomic_load(&out->is_dirty) && !may_answer(window, out)) return false;
    if (!try_values(window)) return false;
    /* Read under the lock: a thread that takes the own mutex waits for messages under way in
     * it. */
    bool answers = may_answer(window, out) && (out->answers_next || !out->pending.is_there);
    bool pushes = out->pending.is_there && !answers;
    rp_status status = RP_OK;
    if (answers)
        status = begin_answer(window, out);
    else if (pushes)
        begin_push(window, out);
    atomic_store(&out->is_dirty, out->pending.is_there);
    pthread_mutex_unlock(&window->lock);
    if (status != RP_OK) {
        fail(window, status);
        return false;
    }
    if (!answers && !pushes) return false;
    out->is_busy = true;
    out->next_slice = 0;
    out->messages++;
    return true;
}

static bool serve_out(rp_window *window, rpi_window_out *out) {
    bool moved = !out->is_busy && begin(window, out);
    if (out->is_busy && out->next_slice < window->slices) moved |= send_slices(window, out);
    return moved;
}

/* ---- from sources ---- */

/* The slot changes as a whole, so that p, versions and all elements belong together. */
static void apply(rp_window *window, rpi_window_in *in) {
    const rpi_window_lead *lead = &in->arrival.lead;
    if (in->arrival.answers)
        rpi_window_scale(in->staging, window->dtype, in->asked_weight, window->count,
                         in->staging);
    if (lead->flags & RPI_PUSH_REPLACES) {
        void *slot = in->slot;
        in->slot = in->staging;
        in->staging = slot;
    } else {
        rpi_window_add_scaled(in->staging, window->dtype, 1, window->count, in->slot);
    }
    if (lead->flags & RPI_PUSH_HAS_P)
        in->p = lead->p + (lead->flags & RPI_PUSH_REPLACES_P ? 0 : in->p);
    in->version += lead->puts;
}

/* The context's lock. */
static void note_answer(rp_window *window, rpi_window_in *in) {
    rpi_context *context = window->comm->context;
    pthread_mutex_lock(&context->lock);
    in->got = in->arrival.lead.asked;
    if (in->wanted > in->got) atomic_store(&window->gets_due, true);
    pthread_cond_broadcast(&context->changed);
    pthread_mutex_unlock(&context->lock);
}

bool rpi_window_apply(rp_window *window, rpi_window_in *in) {
    if (!in->arrival.is_whole) return false;
    if (in->arrival.mutex && !rpi_window_is_free_of(window, in->rank)) return false;
    if (!try_values(window)) return false;
    if (in->arrival.mutex && !rpi_window_is_free_of(window, in->rank)) {
        pthread_mutex_unlock(&window->lock);
        return false;
    }
    int64_t start = rpi_now_ns();
    if (in->arrival.answers) /* the value of got when it was requested */
        in->arrival.lead.puts = (uint32_t)(in->arrival.lead.asked - in->got);
    apply(window, in);
    pthread_mutex_unlock(&window->lock);
    window->comm->decode_ns += rpi_now_ns() - start;
    if (in->arrival.answers) note_answer(window, in);
    in->arrival = (rpi_window_arrival){0};
    in->taken++;
    in->taken_due = true;
    return true;
}

static void ask(rp_window *window, rpi_window_in *in) {
    pthread_mutex_t *lock = &window->comm->context->lock;
    pthread_mutex_lock(lock);
    bool wants = in->wanted > in->asked && in->asked == in->got;
    uint64_t wanted = in->wanted;
    double weight = in->weight;
    bool mutex = in->wants_mutex;
    if (wants) in->wants_mutex = false;
    pthread_mutex_unlock(lock);
    if (!wants) return;
    if (send_header(window, in->rank, RPI_WINDOW_GET, wanted, mutex)) {
        in->asked = wanted;
        in->asked_weight = weight;
        return;
    }
    pthread_mutex_lock(lock);
    in->wants_mutex |= mutex;
    pthread_mutex_unlock(lock);
    atomic_store(&window->gets_due, true);
}

/* One get of a source is under way at a time: its answer starts the next. */
static void ask_all(rp_window *window) {
    if (!atomic_exchange(&window->gets_due, false)) return;
    for (int i = 0; i < window->in_count; i++) ask(window, &window->ins[i]);
}

static bool serve_in(rp_window *window, rpi_window_in *in) {
    bool moved = rpi_window_apply(window, in);
    if (in->taken_due)
        in->taken_due = !send_header(window, in->rank, RPI_WINDOW_TAKEN, in->taken, false);
    return moved;
}

/* ---- mutexes ---- */

/* The next control frame for this rank; 0: none. Under the context's lock. */
static rpi_window_frame next_frame(const rp_window *window, int rank) {
    if (window->claims[rank].unlock_due) return RPI_WINDOW_UNLOCK;
    if (window->claims[rank].state == RPI_CLAIM_WANTED) return RPI_WINDOW_LOCK;
    return window->cells[rank].told_due ? RPI_WINDOW_LOCKED : 0;
}

/* Under the context's lock. */
static void note_told(rp_window *window, int rank, rpi_window_frame frame) {
    if (frame == RPI_WINDOW_UNLOCK) window->claims[rank].unlock_due = false;
    if (frame == RPI_WINDOW_LOCK) window->claims[rank].state = RPI_CLAIM_ASKED;
    if (frame == RPI_WINDOW_LOCKED) window->cells[rank].told_due = false;
}

static void send_control(rp_window *window) {
    pthread_mutex_t *lock = &window->comm->context->lock;
    if (!atomic_exchange(&window->control_due, false)) return;
    for (int rank = 0; rank < window->comm->world; rank++) {
        for (;;) {
            pthread_mutex_lock(lock);
            rpi_window_frame frame = next_frame(window, rank);
            pthread_mutex_unlock(lock);
            if (!frame) break;
            if (!send_header(window, rank, frame, 0, false)) {
                atomic_store(&window->control_due, true);
                break;
            }
            pthread_mutex_lock(lock);
            note_told(window, rank, frame);
            pthread_mutex_unlock(lock);
        }
    }
}

/* ---- all windows ---- */

/* A caller that waits for a rank that is gone is told. */
static void note_gone(rp_window *window) {
    rpi_context *context = window->comm->context;
    for (int rank = 0; rank < window->comm->world; rank++) {
        rp_status broken = window->comm->peers[rank].broken;
        if (!broken || window->gone[rank]) continue;
        pthread_mutex_lock(&context->lock);
        pthread_cond_broadcast(&context->changed);
        window->gone[rank] = broken;
        pthread_mutex_unlock(&context->lock);
    }
}

static bool is_gone(const rp_window *window, int rank) {
    return window->comm->peers[rank].broken != RP_OK;
}

static bool serve(rp_window *window) {
    bool moved = false;
    note_gone(window);
    for (int i = 0; i < window->in_count; i++)
        if (!is_gone(window, window->ins[i].rank)) moved |= serve_in(window, &window->ins[i]);
    for (int i = 0; i < window->out_count; i++)
        if (!is_gone(window, window->outs[i].rank))
            moved |= serve_out(window, &window->outs[i]);
    ask_all(window);
    send_control(window);
    return moved;
}

bool rpi_windows_serve(rp_comm *comm) {
    bool moved = false;
    comm->windows_due = false;
    for (rp_window *window = comm->windows; window; window = window->next)
        if (!rpi_comm_has_failed(comm)) moved |= serve(window);
    if (rpi_comm_has_failed(comm)) comm->windows_due = false;
    return moved;
}

/* The communicator is destroyed: nobody serves its windows any more. */
void rpi_windows_close(rp_comm *comm) {
    for (rp_window *window = comm->windows, *next; window; window = next) {
        next = window->next;
        window->comm = NULL;
        window->next = NULL;
        atomic_fetch_sub(&comm->context->windows, 1);
    }
    comm->windows = NULL;
}
