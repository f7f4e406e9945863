/* Why nothing moves, by the other ranks' heartbeats, and the messages for it. */
#include "comm/run/diagnosis.h"
#include "comm/core/chunk.h"
#include "comm/core/request.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/operation_kinds.h"

#include "base/c_locale.h"
#include "base/clock.h"

#include <stdio.h>

typedef enum rank_state {
    RANK_WAITS,
    RANK_IN_OTHER, /* in another operation */
    RANK_CROSSED,  /* in another communicator, and does nothing else */
    RANK_COMPUTES,
    RANK_SILENT
} rank_state;

/* How long no beat has come although we wait. */
static int64_t silence_of(const rpi_diagnosis *s, const rpi_control_beat *beat) {
    int64_t idle_ns = rpi_now_ns() - s->since_ns;
    return beat->silent_ns < idle_ns ? beat->silent_ns : idle_ns;
}

static rank_state state_of(const rpi_diagnosis *s, const rp_comm *comm,
                           const rpi_control_beat *beat) {
    if (silence_of(s, beat) > comm->silence_ns) return RANK_SILENT;
    if (beat->sequence == 0) return beat->blocked ? RANK_CROSSED : RANK_COMPUTES;
    return beat->sequence == s->of->sequence ? RANK_WAITS : RANK_IN_OTHER;
}

/* Whether a frame waits for this rank to come. */
static bool is_deferred_for(const rpi_chunk *chunk, int peer) {
    const rpi_compiled_schedule *compiled = chunk->request->compiled;
    for (int i = 0; i < compiled->schedule.count; i++)
        if (compiled->instruction[i].peer == peer && chunk->ready[i / 64] >> (i % 64) & 1 &&
            rpi_flow_is_deferred(chunk, &compiled->instruction[i]))
            return true;
    return false;
}

/* Whether the oldest operation still waits for a frame from this rank. */
static bool is_late(const rp_request *request, int rank) {
    const rpi_compiled_schedule *compiled = request->compiled;
    if (request->stage == RPI_REQUEST_UNBOUND) return true;
    if (!rpi_request_concerns(request, rank)) return false;
    int peer = rpi_request_peer(request, rank);
    int into = request->kind->destination(request, rank);
    for (const rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next) {
        if (into >= 0 && is_deferred_for(chunk, into)) return true;
        if (peer >= 0 &&
            chunk->received[peer] < compiled->first_recv[peer + 1] - compiled->first_recv[peer])
            return true;
    }
    return false;
}

/* The earliest frame that could be taken now and has not come: of data, or the control frame
 * after which ours may leave. */
rpi_control_gap rpi_request_gap(const rp_request *request) {
    rpi_control_gap first = {.from = -1};
    if (request->stage == RPI_REQUEST_UNBOUND) return first;
    if (!rpi_comm_is_numbered(request->comm))
        return (rpi_control_gap){.from = 0}; /* who numbers it */
    const rpi_compiled_schedule *compiled = request->compiled;
    for (const rpi_chunk *chunk = request->chunks; chunk; chunk = chunk->next)
        for (int i = 0; i < compiled->schedule.count; i++) {
            const rpi_instruction *instruction = &compiled->instruction[i];
            bool may_run = chunk->ready[i / 64] >> (i % 64) & 1;
            if (!may_run) continue;
            if (instruction->kind != RPI_STEP_RECV && !rpi_flow_is_deferred(chunk, instruction))
                continue;
            if (rpi_instruction_is_void(request, chunk->index, instruction)) continue;
            uint64_t step = (uint64_t)chunk->index << 16 | instruction->round;
            if (first.from >= 0 && first.step <= step) continue;
            first.from = rpi_request_rank(request, instruction->peer);
            first.step = step;
        }
    return first;
}

static void note_rank(int *slot, int rank) {
    if (*slot < 0) *slot = rank;
}

/* Collectives are ordered, and so are rounds; nothing else is before or after. */
static bool is_comparable(const rp_comm *comm, uint64_t a, uint64_t b) {
    const rpi_operation_kind *kind = rpi_operation_kind_of(comm, a);
    return a == b || (!kind->by_pair && kind == rpi_operation_kind_of(comm, b));
}

/* Of ranks that wait in another operation, one that has to send us a frame says most. */
static void note_in_other(rpi_diagnosis *s, const rp_request *oldest, int rank,
                          uint64_t sequence) {
    bool late = is_late(oldest, rank);
    s->behind |=
        is_comparable(oldest->comm, sequence, oldest->sequence) && sequence < oldest->sequence;
    if (s->in_other >= 0 && (s->other_is_late || !late)) return;
    s->in_other = rank;
    s->other_is_late = late;
    s->other_sequence = sequence;
}

/* More than two heartbeats are missing: the last one may not be true any more. */
static void note_quiet(rpi_diagnosis *s, const rp_comm *comm, int rank,
                       const rpi_control_beat *beat) {
    int64_t silence_ns = silence_of(s, beat);
    if (s->quiet >= 0 || silence_ns <= comm->silence_ns / 2) return;
    s->quiet = rank;
    s->quiet_s = rpi_seconds(silence_ns);
}

/* If a rank is behind all others and does not report for what it waits, there is no more to
 * say. */
static void note_wait(rpi_diagnosis *s, const rp_request *oldest, int rank, uint64_t sequence,
                      rpi_control_gap gap) {
    rpi_earliest_wait *first = &s->first;
    if (sequence == 0 || (gap.from < 0 && sequence >= oldest->sequence)) return;
    if (!is_comparable(oldest->comm, sequence, oldest->sequence)) {
        s->is_mixed = true;
        return;
    }
    bool earlier = first->waiter < 0 || sequence < first->sequence ||
                   (sequence == first->sequence && gap.step < first->gap.step);
    if (earlier) *first = (rpi_earliest_wait){.waiter = rank, .sequence = sequence, .gap = gap};
}

static void diagnose_rank(rpi_diagnosis *s, rp_comm *comm, int rank) {
    const rp_request *oldest = s->of;
    rpi_control_beat beat;
    rpi_control_beat_of(comm->group, rank, &beat);
    switch (state_of(s, comm, &beat)) {
    case RANK_SILENT:
        if (s->silent < 0) {
            s->silent_s = rpi_seconds(silence_of(s, &beat));
            s->silent_by = beat.by;
        }
        note_rank(&s->silent, rank);
        break;
    case RANK_COMPUTES: note_rank(&s->computing, rank); break;
    case RANK_CROSSED: note_rank(&s->crossed, rank); break;
    case RANK_IN_OTHER: note_in_other(s, oldest, rank, beat.sequence); break;
    case RANK_WAITS: break;
    }
    note_quiet(s, comm, rank, &beat);
    note_wait(s, oldest, rank, beat.sequence, beat.gap);
    if (is_late(oldest, rank)) note_rank(&s->late, rank);
}

static bool may_delay(const rp_comm *comm, const rp_request *oldest, int rank) {
    if (rank == comm->rank || (oldest->peer >= 0 && rank != oldest->peer)) return false;
    return !comm->peers[rank].broken; /* else it has left, and nothing is missing from it */
}

/* In a round, neighbours that have to send us something are named before those for which they
 * may wait. */
rpi_diagnosis rpi_diagnosis_make(rp_comm *comm, const rp_request *oldest, int64_t since_ns) {
    rpi_diagnosis s = {.of = oldest,
                       .since_ns = since_ns,
                       .silent = -1,
                       .quiet = -1,
                       .in_other = -1,
                       .crossed = -1,
                       .computing = -1,
                       .late = -1,
                       .first = {.waiter = -1}};
    bool late_first = oldest->kind->among_neighbors;
    note_wait(&s, oldest, comm->rank, oldest->sequence, rpi_request_gap(oldest));
    for (int rank = 0; late_first && rank < comm->world; rank++)
        if (may_delay(comm, oldest, rank) && is_late(oldest, rank))
            diagnose_rank(&s, comm, rank);
    for (int rank = 0; rank < comm->world; rank++)
        if (may_delay(comm, oldest, rank) && !(late_first && is_late(oldest, rank)))
            diagnose_rank(&s, comm, rank);
    return s;
}

/* If ranks name different roots each may wait for the other, and no frame shows it. */
static const char *root_text(const rp_request *request, char *text, size_t bytes) {
    text[0] = '\0';
    if (rpi_collective_has_root(request->collective))
        snprintf(text, bytes, " (do all ranks name root %d, as this one does?)",
                 request->compiled->schedule.root);
    return text;
}

static bool has_pair(const rpi_diagnosis *s) {
    return s->first.waiter >= 0 && s->first.gap.from >= 0 && !s->is_mixed;
}

/* "rank 1 has heard nothing from rank 2, though both are alive": where to look. */
static void pair_text(const rp_comm *comm, const rpi_diagnosis *s, char *text, size_t bytes) {
    int waiter = s->first.waiter, from = s->first.gap.from;
    char root[64];
    bool one_host = comm->hosts[waiter] == comm->hosts[from];
    snprintf(text, bytes, "%s has heard nothing from %s, though both are alive and wait%s%s",
             rpi_rank_name(comm, waiter).text, rpi_rank_name(comm, from).text,
             one_host ? ""
                      : ": is the network between their hosts cut, or closed by a firewall?",
             root_text(s->of, root, sizeof root));
}

/* Heartbeats come through one rank, which may not be a member. */
static void silent_text(const rp_comm *comm, const rpi_diagnosis *s, char *text, size_t bytes) {
    char by[48];
    int member = comm->place_of[s->silent_by];
    snprintf(by, sizeof by, "world rank %d", s->silent_by);
    rpi_print(text, bytes, "%s is stopped, or cut off from %s (no heartbeat for %.1f s)",
              rpi_rank_name(comm, s->silent).text,
              member >= 0 ? rpi_rank_name(comm, member).text : by, s->silent_s);
}

/* "rank 1 has not come (it waits in 'tp0')" */
static void crossed_text(const rp_comm *comm, int rank, char *text, size_t bytes) {
    char name[96];
    bool is_known = rpi_control_waits_in(comm->group, rank, name, sizeof name);
    snprintf(text, bytes, "%s has not come (it waits in %s%s%s)",
             rpi_rank_name(comm, rank).text, is_known ? "'" : "another communicator",
             is_known ? name : "", is_known ? "'" : "");
}

/* "rank 2 has not come (no heartbeat for 1.1 s)": which rank to look at first, and why. */
int rpi_diagnosis_text(rp_comm *comm, const rpi_diagnosis *s, char *text, size_t bytes) {
    char theirs[64], ours[64], root[64];
    rpi_sequence_text(s->other_sequence, theirs, sizeof theirs);
    rpi_sequence_text(s->of->sequence, ours, sizeof ours);
    if (s->silent >= 0)
        silent_text(comm, s, text, bytes);
    else if (s->quiet >= 0)
        rpi_print(text, bytes, "%s has not come (no heartbeat for %.1f s)",
                  rpi_rank_name(comm, s->quiet).text, s->quiet_s);
    else if (s->computing >= 0)
        snprintf(text, bytes, "%s has not come (it is alive and computes)",
                 rpi_rank_name(comm, s->computing).text);
    else if (s->crossed >= 0)
        crossed_text(comm, s->crossed, text, bytes);
    else if (has_pair(s))
        pair_text(comm, s, text, bytes);
    else if (s->in_other >= 0)
        snprintf(text, bytes, "%s waits in %s and %s in %s",
                 rpi_rank_name(comm, s->in_other).text, theirs,
                 rpi_rank_name(comm, comm->rank).text, ours);
    else
        snprintf(text, bytes, "nothing moves between %s and the others, which are alive%s",
                 rpi_rank_name(comm, comm->rank).text, root_text(s->of, root, sizeof root));
    return s->silent >= 0      ? s->silent
           : s->quiet >= 0     ? s->quiet
           : s->computing >= 0 ? s->computing
           : s->crossed >= 0   ? s->crossed
           : has_pair(s)       ? s->first.gap.from
           : s->in_other >= 0  ? s->in_other
                               : s->late;
}
