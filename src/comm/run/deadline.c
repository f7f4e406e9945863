/* Lack of progress: named after warn_after_s, failed after timeout_s.
 *
 * What the other ranks' heartbeats say decides. A rank without heartbeats is stopped. One that
 * beats outside of any operation computes or saves, and is left in peace as long as it beats.
 * When all beat and wait, nothing will ever move. Most of them then wait for a consequence: the
 * one that waits in the earliest step has lost a frame, and all name it and who owes that.
 *
 * Where a rank serves others it expects their messages all the time, and waits for none in
 * particular: whose turn it is only the owner of the communicator knows (is_watched). Of such
 * receives nothing is said here, unless the other side is stopped. */
#include "base/c_locale.h"
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/request.h"
#include "comm/device/device.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/pair_protocol.h"
#include "comm/protocol/round_protocol.h"
#include "comm/run/executor.h"

#include "base/clock.h"
#include "base/log.h"

/* Ranks behind us know better what is missing: they get a moment to say it first. */
#define COURTESY_NS (RPI_SECOND_NS / 2)

typedef enum rank_state { RANK_WAITS, RANK_ELSEWHERE, RANK_COMPUTES, RANK_SILENT } rank_state;

static int64_t span_ns(double seconds) {
    return seconds > 0 && seconds < 1e9 ? (int64_t)(seconds * 1e9) : RPI_NEVER_NS / 4;
}

/* Idle for so long, a rank says for which frame: early enough for heartbeats to reach
 * everybody, by way of rank 0, before the first of them speaks. */
static int64_t gap_after_ns(const rp_comm *comm) {
    int64_t warn = span_ns(comm->warn_after_s), end = span_ns(comm->timeout_s);
    return (warn < end ? warn : end) / 4;
}

/* An operation whose GPU has not come to what it was given; NULL: there is none. */
static const rp_request *with_late_device(const rp_comm *comm) {
    for (const rp_request *request = comm->queue; request; request = request->next)
        if (request->device && rpi_transfer_is_busy(request->device)) return request;
    return NULL;
}

/* Nobody else knows of a GPU that does not move: its rank speaks before those that wait for
 * it. */
static int64_t device_end_ns(const rp_comm *comm) {
    int64_t end = span_ns(comm->timeout_s);
    return comm->progress_ns + end - (end / 4 < COURTESY_NS ? end / 4 : COURTESY_NS);
}

int64_t rpi_deadline_next_ns(const rp_comm *comm) {
    if (!comm->queue) return RPI_NEVER_NS;
    int64_t gap = comm->progress_ns + gap_after_ns(comm);
    int64_t warn = comm->progress_ns + span_ns(comm->warn_after_s);
    int64_t end = comm->progress_ns + span_ns(comm->timeout_s);
    int64_t expect = rpi_rounds_next_ns(comm), call = rpi_links_next_ns(comm);
    if (call < expect) expect = call;
    int64_t now = rpi_now_ns();
    int64_t next = comm->warned_ns >= comm->progress_ns || warn > end ? end : warn;
    if (gap > now && gap < next) next = gap;
    if (with_late_device(comm) && device_end_ns(comm) < next) next = device_end_ns(comm);
    if (expect < next) next = expect > now ? expect : now + 1;
    /* Past the end a rank that computes is looked at again and again. */
    return next > now ? next : now + RPI_SECOND_NS / 4;
}

/* How long no beat has come although we wait. */
static int64_t silence_of(const rp_comm *comm, const rpi_control_beat *beat) {
    int64_t since = beat->heard_ns > comm->progress_ns ? beat->heard_ns : comm->progress_ns;
    return rpi_now_ns() - since;
}

static rank_state state_of(rp_comm *comm, int rank, rpi_control_beat *beat) {
    rpi_control_beat_of(comm->group, rank, beat);
    if (silence_of(comm, beat) > comm->silence_ns) return RANK_SILENT;
    if (beat->sequence == 0) return RANK_COMPUTES;
    return beat->sequence == comm->queue->sequence ? RANK_WAITS : RANK_ELSEWHERE;
}

/* Has a frame to wait for this rank to come? */
static bool is_held_for(const rpi_chunk *chunk, int peer) {
    const rpi_routine *routine = chunk->request->routine;
    for (int i = 0; i < routine->schedule.count; i++)
        if (routine->action[i].peer == peer && chunk->ready[i / 64] >> (i % 64) & 1 &&
            rpi_flow_is_held(chunk, &routine->action[i]))
            return true;
    return false;
}

/* Does the oldest operation still wait for a frame from this rank? */
static bool is_late(const rp_request *request, int rank) {
    const rpi_routine *routine = request->routine;
    if (rpi_p2p_is_unbound(request)) return true;
    if (request->collective == RPI_SENDRECV && request->peer != rank) return false;
    int peer = rpi_request_peer(request, rank), into = peer;
    if (request->collective == RPI_NEIGHBOUR_ALL_REDUCE)
        into = rpi_neighborhood_destination(&request->hood, rank);
    for (const rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next) {
        if (into >= 0 && is_held_for(chunk, into)) return true;
        if (peer >= 0 &&
            chunk->received[peer] < routine->first_recv[peer + 1] - routine->first_recv[peer])
            return true;
    }
    return false;
}

/* The earliest frame that could be taken now and has not come: of data, or the word that lets
 * ours leave. */
static rpi_control_gap find_gap(const rp_request *request) {
    rpi_control_gap first = {.from = -1};
    if (rpi_p2p_is_unbound(request)) return first;
    const rpi_routine *routine = request->routine;
    for (const rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next)
        for (int i = 0; i < routine->schedule.count; i++) {
            const rpi_action *action = &routine->action[i];
            bool may_run = chunk->ready[i / 64] >> (i % 64) & 1;
            if (!may_run) continue;
            if (action->kind != RPI_STEP_RECV && !rpi_flow_is_held(chunk, action)) continue;
            if (rpi_action_is_void(request, chunk->index, action)) continue;
            uint64_t step = (uint64_t)chunk->index << 16 | action->round;
            if (first.from >= 0 && first.step <= step) continue;
            first.from = rpi_request_rank(request, action->peer);
            first.step = step;
        }
    return first;
}

static void note_gap(rp_comm *comm, int64_t idle_ns) {
    rpi_control_gap none = {.from = -1};
    rpi_control_note_gap(comm->group,
                         idle_ns < gap_after_ns(comm) ? none : find_gap(comm->queue));
}

/* Who waits in the earliest step of all, and for whom. */
typedef struct observation {
    int waiter; /* -1: nobody is known to */
    uint64_t sequence;
    rpi_control_gap gap;
} observation;

typedef struct survey {
    int silent, quiet, elsewhere, computing, late; /* first such rank; -1: none */
    bool elsewhere_is_late;
    bool behind;   /* a rank waits in an earlier operation than ours */
    bool is_mixed; /* somebody waits in what cannot be before or after our operation */
    uint64_t elsewhere_sequence;
    double silent_s, quiet_s;
    observation first;
} survey;

static void note_rank(int *slot, int rank) {
    if (*slot < 0) *slot = rank;
}

/* Collectives come one after the other, and so do rounds; nothing else is before or after. */
static bool is_comparable(uint64_t a, uint64_t b) {
    return a == b || (!((a | b) & RPI_P2P_SEQUENCE) && rpi_is_round(a) == rpi_is_round(b));
}

/* Of ranks that wait elsewhere, one that owes us a frame says most. */
static void note_elsewhere(survey *s, const rp_request *oldest, int rank, uint64_t sequence) {
    bool late = is_late(oldest, rank);
    s->behind |= is_comparable(sequence, oldest->sequence) && sequence < oldest->sequence;
    if (s->elsewhere >= 0 && (s->elsewhere_is_late || !late)) return;
    s->elsewhere = rank;
    s->elsewhere_is_late = late;
    s->elsewhere_sequence = sequence;
}

/* Heartbeats are missing, more than two: what the last one said may hold no more. */
static void note_quiet(survey *s, const rp_comm *comm, int rank, const rpi_control_beat *beat) {
    int64_t silence_ns = silence_of(comm, beat);
    if (s->quiet >= 0 || silence_ns <= comm->silence_ns / 2) return;
    s->quiet = rank;
    s->quiet_s = rpi_seconds(silence_ns);
}

/* One that is behind all others and does not say what it waits for leaves nothing to be said.
 */
static void note_observation(survey *s, const rp_request *oldest, int rank, uint64_t sequence,
                             rpi_control_gap gap) {
    observation *first = &s->first;
    if (sequence == 0 || (gap.from < 0 && sequence >= oldest->sequence)) return;
    if (!is_comparable(sequence, oldest->sequence)) {
        s->is_mixed = true;
        return;
    }
    bool earlier = first->waiter < 0 || sequence < first->sequence ||
                   (sequence == first->sequence && gap.step < first->gap.step);
    if (earlier) *first = (observation){.waiter = rank, .sequence = sequence, .gap = gap};
}

static void survey_rank(survey *s, rp_comm *comm, int rank) {
    const rp_request *oldest = comm->queue;
    rpi_control_beat beat;
    switch (state_of(comm, rank, &beat)) {
    case RANK_SILENT:
        if (s->silent < 0) s->silent_s = rpi_seconds(silence_of(comm, &beat));
        note_rank(&s->silent, rank);
        break;
    case RANK_COMPUTES: note_rank(&s->computing, rank); break;
    case RANK_ELSEWHERE: note_elsewhere(s, oldest, rank, beat.sequence); break;
    case RANK_WAITS: break;
    }
    note_quiet(s, comm, rank, &beat);
    note_observation(s, oldest, rank, beat.sequence, beat.gap);
    if (is_late(oldest, rank)) note_rank(&s->late, rank);
}

static bool may_delay(const rp_comm *comm, int rank) {
    const rp_request *oldest = comm->queue;
    if (rank == comm->rank || (oldest->peer >= 0 && rank != oldest->peer)) return false;
    return !comm->peers[rank].broken; /* else it has left, and nothing is missing from it */
}

/* Of a round, neighbours that owe us something are named before those whom they may wait for.
 */
static survey survey_ranks(rp_comm *comm) {
    survey s = {.silent = -1,
                .quiet = -1,
                .elsewhere = -1,
                .computing = -1,
                .late = -1,
                .first = {.waiter = -1}};
    const rp_request *oldest = comm->queue;
    bool is_round = rpi_is_round(oldest->sequence);
    note_observation(&s, oldest, comm->rank, oldest->sequence, find_gap(oldest));
    for (int rank = 0; is_round && rank < comm->world; rank++)
        if (may_delay(comm, rank) && is_late(oldest, rank)) survey_rank(&s, comm, rank);
    for (int rank = 0; rank < comm->world; rank++)
        if (may_delay(comm, rank) && !(is_round && is_late(oldest, rank)))
            survey_rank(&s, comm, rank);
    return s;
}

static void sequence_text(uint64_t sequence, char *text, size_t bytes) {
    if (sequence & RPI_P2P_SEQUENCE)
        snprintf(text, bytes, "a send or receive");
    else
        snprintf(text, bytes, "%s %llu", rpi_is_round(sequence) ? "round" : "operation",
                 rpi_sequence_number(sequence));
}

/* Where ranks name different roots each may wait for the other, and no frame tells. */
static const char *root_text(const rp_request *request, char *text, size_t bytes) {
    text[0] = '\0';
    if (rpi_collective_has_root(request->collective))
        snprintf(text, bytes, " (do all ranks name root %d, as this one does?)",
                 request->routine->schedule.root);
    return text;
}

static bool has_pair(const survey *s) {
    return s->first.waiter >= 0 && s->first.gap.from >= 0 && !s->is_mixed;
}

/* "rank 1 has heard nothing from rank 2, though both are alive": where to look. */
static void pair_text(const rp_comm *comm, const survey *s, char *text, size_t bytes) {
    int waiter = s->first.waiter, from = s->first.gap.from;
    char root[64];
    bool one_host = comm->hosts[waiter] == comm->hosts[from];
    snprintf(text, bytes,
             "rank %d has heard nothing from rank %d, though both are alive and wait%s%s",
             waiter, from,
             one_host ? ""
                      : ": is the network between their hosts cut, or closed by a firewall?",
             root_text(comm->queue, root, sizeof root));
}

/* "rank 2 has not come (no heartbeat for 1.1 s)": whom to look at first, and why. */
static int culprit_text(rp_comm *comm, const survey *s, char *text, size_t bytes) {
    char theirs[64], ours[64], root[64];
    sequence_text(s->elsewhere_sequence, theirs, sizeof theirs);
    sequence_text(comm->queue->sequence, ours, sizeof ours);
    if (s->silent >= 0) /* heartbeats come by way of rank 0 */
        rpi_print(text, bytes,
                  "rank %d is stopped, or cut off from rank %d (no heartbeat for %.1f s)",
                  s->silent, s->silent == 0 ? comm->rank : 0, s->silent_s);
    else if (s->quiet >= 0)
        rpi_print(text, bytes, "rank %d has not come (no heartbeat for %.1f s)", s->quiet,
                  s->quiet_s);
    else if (s->computing >= 0)
        snprintf(text, bytes, "rank %d has not come (it is alive and computes)", s->computing);
    else if (has_pair(s))
        pair_text(comm, s, text, bytes);
    else if (s->elsewhere >= 0)
        snprintf(text, bytes, "rank %d waits in %s and rank %d in %s", s->elsewhere, theirs,
                 comm->rank, ours);
    else
        snprintf(text, bytes, "nothing moves between rank %d and the others, which are alive%s",
                 comm->rank, root_text(comm->queue, root, sizeof root));
    return s->silent >= 0      ? s->silent
           : s->quiet >= 0     ? s->quiet
           : s->computing >= 0 ? s->computing
           : has_pair(s)       ? s->first.gap.from
           : s->elsewhere >= 0 ? s->elsewhere
                               : s->late;
}

static bool fail_late_device(rp_comm *comm, int64_t idle) {
    const rp_request *request = with_late_device(comm);
    char text[160];
    if (!request || rpi_now_ns() < device_end_ns(comm)) return false;
    rpi_comm_fail_text(
        comm, RP_TIMEOUT, comm->rank,
        "timed out: no progress for %.1f s in %s: the GPU of rank %d has not come to what "
        "it was given; what stands before it in the stream of the call?",
        rpi_seconds(idle), rpi_request_text(request, text, sizeof text), comm->rank);
    return true;
}

/* A receive that is waited for in a call is judged here, whoever owns the communicator. */
static bool is_judged_elsewhere(rp_comm *comm) {
    if (!atomic_load(&comm->is_watched)) return false;
    pthread_mutex_lock(&comm->fabric->lock);
    bool waits = comm->waiters > 0;
    pthread_mutex_unlock(&comm->fabric->lock);
    return !waits;
}

void rpi_deadline_check(rp_comm *comm) {
    if (!comm->queue || atomic_load(&comm->failed)) return;
    int64_t idle = rpi_now_ns() - comm->progress_ns;
    if (fail_late_device(comm, idle) || !comm->group) return;
    note_gap(comm, idle);
    rpi_rounds_expect(comm, idle);
    rpi_links_call_late(comm, idle);
    bool over = idle >= span_ns(comm->timeout_s);
    bool warn = idle >= span_ns(comm->warn_after_s) && comm->warned_ns < comm->progress_ns;
    if (!over && !warn) return;
    char culprit[240], text[160];
    survey s = survey_ranks(comm);
    int rank = culprit_text(comm, &s, culprit, sizeof culprit);
    rpi_request_text(comm->queue, text, sizeof text);
    if (warn) comm->warned_ns = rpi_now_ns();
    if (s.silent < 0 && is_judged_elsewhere(comm)) return;
    if (warn) {
        rpi_log(RP_LOG_WARNING, "rank %d: no progress for %.1f s in %s: %s", comm->rank,
                rpi_seconds(idle), text, culprit);
    }
    bool in_peace = s.silent < 0 && s.computing >= 0 && !comm->strict_timeout;
    bool waits_for_others =
        s.silent < 0 && s.behind && idle < span_ns(comm->timeout_s) + COURTESY_NS;
    if (over && !in_peace && !waits_for_others)
        rpi_comm_fail_text(comm, RP_TIMEOUT, rank,
                           "timed out: no progress for %.1f s in %s: %s", rpi_seconds(idle),
                           text, culprit);
}
