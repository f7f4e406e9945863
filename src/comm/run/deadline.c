/* Lack of progress: named after warn_after_s, failed after timeout_s.
 *
 * The decision is by the other ranks' heartbeats. A rank without heartbeats is stopped. One
 * that beats outside of any operation computes or saves, and may do so as long as it beats. One
 * that waits in another communicator, and does nothing else, is left to rank 0
 * (net/control/control_waits.c), which follows such waits and ends those that return to their
 * beginning. If all beat and wait here, nothing will ever move. Most of them then wait for a
 * consequence: the one that waits in the earliest step has lost a frame, and all name it and
 * the rank that has to send it.
 *
 * A rank that serves others expects their messages all the time, and waits for none in
 * particular; only the owner of the communicator knows whose turn it is (is_watched). Such
 * receives are not reported here, unless the other side is stopped. The same holds for sends
 * and receives for which no caller waits. */
#include "base/c_locale.h"
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/device/device.h"
#include "comm/protocol/exchange_protocol.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/pair_protocol.h"
#include "comm/run/diagnosis.h"
#include "comm/run/executor.h"

#include "base/clock.h"
#include "base/log.h"

/* Ranks that are behind us know better what is missing: they get a moment to report it first.
 */
#define GRACE_NS (RPI_SECOND_NS / 2)

static int64_t span_ns(double seconds) {
    return seconds > 0 && seconds < 1e9 ? (int64_t)(seconds * 1e9) : RPI_NEVER_NS / 4;
}

/* A rank that has been idle for this long reports the frame for which it waits: early enough
 * for heartbeats to reach all, through rank 0, before the first of them fails. */
static int64_t gap_after_ns(const rp_comm *comm) {
    int64_t warn = span_ns(comm->warn_after_s), end = span_ns(comm->timeout_s);
    int64_t own = (warn < end ? warn : end) / 4;
    return own < comm->context->gap_after_ns ? own : comm->context->gap_after_ns;
}

void rpi_deadline_note_open(rp_comm *comm) {
    comm->context->gap_after_ns = gap_after_ns(comm);
}

/* An operation of which the GPU has not done the work it was given; NULL: there is none. */
static const rp_request *with_late_device(const rp_comm *comm) {
    for (const rp_request *request = comm->queue; request; request = request->next)
        if (request->device && rpi_transfer_is_busy(request->device)) return request;
    return NULL;
}

/* No other rank knows of a GPU that does not move, so its rank reports before those that wait
 * for it. */
static int64_t device_end_ns(const rp_comm *comm) {
    int64_t end = span_ns(comm->timeout_s);
    return comm->progress_ns + end - (end / 4 < GRACE_NS ? end / 4 : GRACE_NS);
}

int64_t rpi_deadline_next_ns(const rp_comm *comm) {
    if (!comm->queue) return RPI_NEVER_NS;
    int64_t gap = comm->progress_ns + gap_after_ns(comm);
    int64_t warn = comm->progress_ns + span_ns(comm->warn_after_s);
    int64_t end = comm->progress_ns + span_ns(comm->timeout_s);
    int64_t expect = rpi_exchanges_next_ns(comm), call = rpi_links_next_ns(comm);
    if (call < expect) expect = call;
    int64_t now = rpi_now_ns();
    int64_t next = comm->warned_ns >= comm->progress_ns || warn > end ? end : warn;
    if (gap > now && gap < next) next = gap;
    if (comm->scan_ns > now && comm->scan_ns < next) next = comm->scan_ns;
    if (with_late_device(comm) && device_end_ns(comm) < next) next = device_end_ns(comm);
    if (expect < next) next = expect > now ? expect : now + 1;
    /* Past the end a rank that computes is examined again and again. */
    return next > now ? next : now + RPI_SECOND_NS / 4;
}

/* A process that was stopped gets as much time as it was stopped for, except for a part of the
 * timeout, since a caller that looks from time to time, and never finds anything, has waited,
 * too. */
void rpi_deadline_forgive(rp_comm *comm, int64_t since_ns, int64_t until_ns) {
    int64_t progress_ns = comm->progress_ns, part_ns = span_ns(comm->timeout_s) / 4;
    if (since_ns < progress_ns) since_ns = progress_ns;
    int64_t away_ns = until_ns - since_ns;
    if (part_ns < RPI_SECOND_NS) part_ns = RPI_SECOND_NS;
    if (away_ns <= part_ns) return;
    rpi_comm_progressed(comm, progress_ns + away_ns - part_ns);
    for (rp_request *request = comm->queue; request; request = request->next)
        request->moved_ns += away_ns - part_ns;
}

static uint64_t instructions_done(const rp_request *request) {
    uint64_t instructions = (uint64_t)request->compiled->instructions;
    uint64_t done = request->chunks_done * instructions + request->next_chunk;
    for (const rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next)
        done += instructions - (uint64_t)chunk->left;
    return done;
}

/* Since when it has not moved. */
static int64_t look_at(rp_request *request, int64_t now_ns) {
    uint64_t done = instructions_done(request);
    if (done != request->moved) request->moved_ns = now_ns;
    request->moved = done;
    return request->moved_ns;
}

/* What other ranks are told: what a caller waits for, or the operation whose turn it is. */
static rp_request *foremost(rp_comm *comm) {
    pthread_mutex_lock(&comm->context->lock);
    rp_request *waited = comm->waited;
    if (waited && atomic_load(&waited->done)) waited = NULL; /* its caller may free it */
    pthread_mutex_unlock(&comm->context->lock);
    if (waited && !waited->kind->takes_turns) return waited;
    rp_request *request = comm->queue;
    while (request && !request->kind->takes_turns) request = request->next;
    return request ? request : comm->queue;
}

static void note_gap(rp_comm *comm, int64_t idle_ns) {
    rpi_control_gap gap = {.from = -1};
    rp_request *request = foremost(comm);
    int64_t now_ns = rpi_now_ns(), stuck_ns = now_ns - look_at(request, now_ns);
    if (stuck_ns > idle_ns) idle_ns = stuck_ns;
    if (idle_ns >= gap_after_ns(comm)) gap = rpi_request_gap(request);
    gap.overdue = idle_ns >= span_ns(comm->timeout_s);
    rpi_control_note_gap(comm->group, gap);
}

static bool fail_late_device(rp_comm *comm, int64_t idle) {
    const rp_request *request = with_late_device(comm);
    char text[160];
    if (!request || rpi_now_ns() < device_end_ns(comm)) return false;
    rpi_comm_fail_text(
        comm, RP_TIMEOUT, comm->rank,
        "timed out: no progress for %.1f s in %s: the GPU of %s has not come to what "
        "it was given; what stands before it in the stream of the call?",
        rpi_seconds(idle), rpi_request_text(request, text, sizeof text),
        rpi_rank_name(comm, comm->rank).text);
    return true;
}

static bool has_waiters(rp_comm *comm) {
    pthread_mutex_lock(&comm->context->lock);
    bool waits = comm->waiters > 0;
    pthread_mutex_unlock(&comm->context->lock);
    return waits;
}

/* A receive for which a call waits is decided here, whoever owns the communicator. */
static bool is_decided_by_method(rp_comm *comm) {
    return atomic_load(&comm->is_watched) && !has_waiters(comm);
}

/* A message that was posted ahead, and whose other side computes or waits for others. That rank
 * may well wait for this one first, as a stage of a pipeline does for the stage before it. */
static bool is_ahead(rp_comm *comm, const rp_request *request) {
    return request->kind->by_pair && !comm->strict_timeout && !has_waiters(comm);
}

/* Until rank 0 knows that we have waited for too long, and has told others: two beats. */
static int64_t decision_ns(const rp_comm *comm) {
    return comm->silence_ns / 2 + GRACE_NS / 2;
}

/* How a wait of `idle_ns` ends, if it must; is_warning: it is also reported. */
static void decide(rp_comm *comm, const rp_request *of, int64_t idle_ns, bool is_warning) {
    char why[240], text[160];
    rpi_diagnosis s = rpi_diagnosis_make(comm, of, rpi_now_ns() - idle_ns);
    int rank = rpi_diagnosis_text(comm, &s, why, sizeof why);
    rpi_request_text(of, text, sizeof text);
    if (s.silent < 0 && (is_decided_by_method(comm) || is_ahead(comm, of))) return;
    if (is_warning)
        rpi_log(RP_LOG_WARNING, "%s%s%s: no progress for %.1f s in %s: %s",
                comm->is_made ? comm->name : "", comm->is_made ? ": " : "",
                rpi_rank_name(comm, comm->rank).text, rpi_seconds(idle_ns), text, why);
    bool comes = s.computing >= 0 || s.crossed >= 0; /* as far as is known here */
    bool in_peace = s.silent < 0 && comes && !comm->strict_timeout;
    int64_t grace_ns = s.behind ? GRACE_NS : 0;
    if (s.computing < 0 && s.crossed >= 0) grace_ns = decision_ns(comm);
    if (s.silent >= 0) grace_ns = 0;
    if (idle_ns < span_ns(comm->timeout_s) + grace_ns || in_peace) return;
    rpi_comm_fail_text(comm, RP_TIMEOUT, rank, "timed out: no progress for %.1f s in %s: %s",
                       rpi_seconds(idle_ns), text, why);
}

/* ---- operations that do not move though their communicator does ---- */

/* Links to ranks of other communicators carry no frames of this one. */
static void look_at_links(rp_comm *comm, int64_t now_ns) {
    uint64_t exchanged = 0;
    for (int rank = 0; rank < comm->world; rank++) {
        const rpi_connection *connection = comm->peers[rank].connection;
        const rpi_link *link = connection ? connection->link : NULL;
        if (link) exchanged += link->bytes_sent + link->bytes_received;
    }
    if (exchanged != comm->exchanged) comm->exchanged_ns = now_ns;
    comm->exchanged = exchanged;
}

/* A frame under way may take longer than the timeout, and belong to this one. */
static bool may_trickle(const rp_comm *comm, const rp_request *request, int64_t now_ns) {
    int64_t since_ns = now_ns - span_ns(comm->timeout_s);
    if (comm->context->trickled_ns <= since_ns || comm->exchanged_ns <= since_ns) return false;
    if (!request->kind->by_pair || (comm->queue == request && !request->next)) return true;
    for (const rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next)
        if (chunk->received[0] > 0 || chunk->received[1] > 0) return true;
    return false;
}

/* Later collectives wait for the first one, as they should: only the first is reported. */
static rp_request *find_stuck(rp_comm *comm, int64_t now_ns, int64_t *next_ns) {
    int64_t end = span_ns(comm->timeout_s);
    bool is_first = true;
    rp_request *stuck = NULL;
    for (rp_request *request = comm->queue; request; request = request->next) {
        if (request->kind->takes_turns && !is_first) continue;
        is_first &= !request->kind->takes_turns;
        int64_t due_ns = look_at(request, now_ns) + end;
        if (due_ns <= now_ns && !stuck && !may_trickle(comm, request, now_ns)) stuck = request;
        if (due_ns > now_ns && due_ns < *next_ns) *next_ns = due_ns;
    }
    return stuck;
}

/* Other operations move. A rank that beats is then alive and does something, so this operation
 * must move only with strict_timeout. */
void rpi_deadline_check_operations(rp_comm *comm, int64_t now_ns) {
    int64_t part = span_ns(comm->timeout_s) / 8;
    bool is_soon = now_ns < comm->scan_ns && comm->scan_ns - now_ns <= part;
    if (is_soon || !comm->queue || !comm->group || rpi_comm_has_failed(comm)) return;
    comm->scan_ns = now_ns + part;
    look_at_links(comm, now_ns);
    const rp_request *stuck = find_stuck(comm, now_ns, &comm->scan_ns);
    if (!stuck || atomic_load(&comm->is_watched)) return;
    rpi_diagnosis s = rpi_diagnosis_make(comm, stuck, stuck->moved_ns);
    if (comm->strict_timeout || s.silent >= 0)
        decide(comm, stuck, now_ns - stuck->moved_ns, false);
}

void rpi_deadline_check(rp_comm *comm) {
    if (!comm->queue || rpi_comm_has_failed(comm)) return;
    int64_t idle = rpi_now_ns() - comm->progress_ns;
    if (fail_late_device(comm, idle) || !comm->group) return;
    note_gap(comm, idle);
    rpi_exchanges_probe(comm, idle);
    rpi_links_call_late(comm, idle);
    bool over = idle >= span_ns(comm->timeout_s);
    bool warn = idle >= span_ns(comm->warn_after_s) && comm->warned_ns < comm->progress_ns;
    if (warn) comm->warned_ns = rpi_now_ns();
    if (over || warn)
        decide(comm, comm->queue, idle, warn);
    else
        rpi_deadline_check_operations(comm, comm->progress_ns + idle);
}
