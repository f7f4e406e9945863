/* What this rank's beats will say of its groups, and what other ranks' beats have said of them:
 * for calls of any thread. */
#include "net/control/control_state.h"

#include "base/clock.h"

#include <stdio.h>

/* The number of the calling thread, from 1 on. */
static uint64_t thread_number(void) {
    static atomic_ullong last;
    static _Thread_local uint64_t own;
    if (!own) own = atomic_fetch_add(&last, 1) + 1;
    return own;
}

static void note(rpi_control_group *group, uint64_t sequence, uint64_t waiter) {
    atomic_store_explicit(&group->gap, 0, memory_order_relaxed); /* an earlier operation's */
    atomic_store_explicit(&group->waiter, waiter, memory_order_relaxed);
    atomic_store_explicit(&group->sequence, sequence, memory_order_relaxed);
}

void rpi_control_note(rpi_control_group *group, uint64_t sequence) {
    note(group, sequence, 0);
}

void rpi_control_note_wait(rpi_control_group *group, uint64_t sequence) {
    note(group, sequence, thread_number());
}

void rpi_control_note_posted(rpi_control_group *group, int in_flight, bool is_new) {
    if (is_new) atomic_store_explicit(&group->poster, thread_number(), memory_order_relaxed);
    atomic_store_explicit(&group->in_flight, in_flight, memory_order_relaxed);
}

void rpi_control_note_gap(rpi_control_group *group, rpi_control_gap gap) {
    int from = rpi_control_rank(group, gap.from);
    uint64_t packed = from < 0 ? 0 : gap.step << 24 | (uint64_t)(from + 1);
    atomic_store_explicit(&group->overdue, gap.overdue, memory_order_relaxed);
    atomic_store_explicit(&group->gap, packed, memory_order_relaxed);
}

/* Under the lock. */
static bool is_said(const rpi_control_group *group, int member) {
    return group->beats[member].beat_number >=
           group->control->beat_counts[rpi_control_rank(group, member)];
}

bool rpi_control_waits_in(rpi_control_group *group, int member, char *name, size_t bytes) {
    rpi_control *control = group->control;
    const rpi_control_group *found = NULL;
    int rank = rpi_control_rank(group, member);
    if (rank < 0) return false;
    pthread_mutex_lock(&control->lock);
    for (const rpi_control_group *at = control->groups; at && !found; at = at->next) {
        int place = at->beats ? rpi_control_member(at, rank) : -1;
        if (place >= 0 && at->beats[place].sequence && is_said(at, place)) found = at;
    }
    if (found) snprintf(name, bytes, "%s", found->name);
    pthread_mutex_unlock(&control->lock);
    return found != NULL;
}

/* Under the lock. The states of other ranks come from the coordinator, if one is alive, and
 * count only from the time when it became the coordinator; ranks before it in line are known to
 * be dead or silent. Time is counted by our own beats, so that a process that was stopped does
 * not take the others for stopped. */
static int64_t silence_of(const rpi_control *control, int rank) {
    int64_t until_ns = control->heard_ns[control->rank], since_ns = control->heard_ns[rank];
    int by = control->served_by;
    if (by == RPI_COORDINATOR_SOUGHT && rank > control->lost_coordinator) return 0;
    if (by >= 0 && by != rank && by != control->rank) until_ns = control->served_heard_ns;
    if (by >= 0 && rank >= by && since_ns < control->served_ns) since_ns = control->served_ns;
    if (since_ns < control->opened_ns) since_ns = control->opened_ns;
    return until_ns > since_ns ? until_ns - since_ns : 0;
}

void rpi_control_beat_of(rpi_control_group *group, int member, rpi_control_beat *out_beat) {
    rpi_control *control = group->control;
    int rank = rpi_control_rank(group, member);
    *out_beat = (rpi_control_beat){.gap = {.from = -1}};
    if (rank < 0 || !group->beats) return;
    pthread_mutex_lock(&control->lock);
    const rpi_group_beat *beat = &group->beats[member];
    out_beat->heard_ns = control->heard_ns[rank];
    out_beat->silent_ns = silence_of(control, rank);
    out_beat->by = control->served_by >= 0 && rank != control->served_by ? control->served_by
                                                                         : control->rank;
    out_beat->blocked = control->everybody.beats[rank].blocked;
    if (is_said(group, member)) {
        out_beat->sequence = beat->sequence;
        out_beat->gap = beat->gap;
    }
    pthread_mutex_unlock(&control->lock);
}
