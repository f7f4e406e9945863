/* The groups of the control connection: what callers ask and say of theirs, and what its thread
 * looks up in them. */
#include "base/c_locale.h"
#include "net/control/control_state.h"

#include "base/clock.h"
#include "base/event.h"
#include "base/memory.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

void rpi_control_keep(rpi_control_group *group, const rpi_failure *failure) {
    rpi_control *control = group->control;
    if (group->failed) return;
    group->failure = *failure;
    if (failure->rank >= 0) group->failure.rank = rpi_control_member(group, failure->rank);
    if (failure->finder >= 0)
        group->failure.finder = rpi_control_member(group, failure->finder);
    group->failed = true;
    group->accused = false;
    atomic_store(&group->known, true);
    pthread_cond_broadcast(&control->changed);
    if (control->failed_fd < 0) return;
    rpi_event_set(control->failed_fd);
    atomic_store(&control->told, true); /* behind it: who sees this finds something to read */
}

int rpi_control_member(const rpi_control_group *group, int rank) {
    if (!group->ranks) return rank;
    for (int i = 0; i < group->count; i++)
        if (group->ranks[i] == rank) return i;
    return -1;
}

rpi_control_group *rpi_control_find_group(rpi_control *control, uint64_t scope) {
    for (rpi_control_group *group = control->groups; group; group = group->next)
        if (group->scope == scope) return group;
    return NULL;
}

static int rank_of(const rpi_control_group *group, int member) {
    bool exists = member >= 0 && member < group->count;
    if (!exists) return -1;
    return group->ranks ? group->ranks[member] : member;
}

bool rpi_control_wait_change(rpi_control *control, int64_t deadline_ns) {
    if (deadline_ns == RPI_NEVER_NS)
        return pthread_cond_wait(&control->changed, &control->lock) == 0;
    struct timespec at = {.tv_sec = deadline_ns / RPI_SECOND_NS,
                          .tv_nsec = deadline_ns % RPI_SECOND_NS};
    return pthread_cond_timedwait(&control->changed, &control->lock, &at) == 0;
}

rp_status rpi_control_make_beats(rpi_control_group *group) {
    RP_TRY(rpi_alloc_array((size_t)group->count, sizeof *group->beats, "beats", &group->beats));
    for (int i = 0; i < group->count; i++) group->beats[i].gap.from = -1;
    return RP_OK;
}

rpi_control_group *rpi_control_everybody(rpi_control *control) {
    return &control->everybody;
}

void rpi_control_describe_death(const rpi_control_group *group, int rank,
                                rpi_failure *out_failure) {
    const rpi_control *control = group->control;
    int member = rpi_control_member(group, rank);
    const rpi_group_beat *beat = member >= 0 ? &group->beats[member] : NULL;
    *out_failure = (rpi_failure){.status = RP_PEER,
                                 .rank = rank,
                                 .finder = control->lost[rank] ? RPI_HOST_LOST : -1,
                                 .scope = group->scope};
    int used =
        snprintf(out_failure->text, sizeof out_failure->text, "rank %d is gone (", member);
    used += rpi_print(
        out_failure->text + used, sizeof out_failure->text - (size_t)used,
        control->lost[rank]
            ? "connection timed out: its host has answered nothing for %g s: it is off, "
              "or cut off)"
            : "connection closed by peer: its process ended)",
        rpi_seconds(control->lost_ns));
    if (beat && beat->sequence && beat->round >= control->rounds[rank])
        snprintf(out_failure->text + used, sizeof out_failure->text - (size_t)used,
                 " in operation %llu", (unsigned long long)beat->sequence);
}

/* Under the lock: what has happened before the group was opened here. */
static void hear_the_past(rpi_control_group *group) {
    rpi_control *control = group->control;
    rpi_failure death;
    for (unsigned i = 0; i < RPI_CONTROL_EARLY && i < control->early_count; i++)
        if (control->early[i].scope == group->scope)
            rpi_control_keep(group, &control->early[i]);
    for (int i = 0; control->dead && i < group->count; i++) {
        if (!control->dead[group->ranks[i]]) continue;
        rpi_control_describe_death(group, group->ranks[i], &death);
        rpi_control_keep(group, &death);
    }
}

rp_status rpi_control_group_open(rpi_control *control, uint64_t scope, const int *ranks,
                                 int count, rpi_control_group **out_group) {
    rpi_control_group *group = NULL;
    RP_TRY(rpi_alloc(sizeof *group, "a group of ranks", &group));
    group->control = control;
    group->scope = scope;
    group->count = count;
    group->account_ns = RPI_NEVER_NS;
    rp_status status =
        rpi_alloc_array((size_t)count, sizeof *ranks, "a group of ranks", &group->ranks);
    if (status == RP_OK) status = rpi_control_make_beats(group);
    if (status != RP_OK) {
        rpi_free(group->ranks);
        rpi_free(group);
        return status;
    }
    memcpy(group->ranks, ranks, (size_t)count * sizeof *ranks);
    pthread_mutex_lock(&control->lock);
    group->next = control->groups;
    control->groups = group;
    hear_the_past(group);
    pthread_mutex_unlock(&control->lock);
    *out_group = group;
    return RP_OK;
}

void rpi_control_group_close(rpi_control_group *group) {
    if (!group || !group->ranks) return;
    rpi_control *control = group->control;
    pthread_mutex_lock(&control->lock);
    rpi_control_group **at = &control->groups;
    while (*at != group) at = &(*at)->next;
    *at = group->next;
    pthread_mutex_unlock(&control->lock);
    rpi_free(group->beats);
    rpi_free(group->ranks);
    rpi_free(group);
}

/* ---- for any thread ---- */

void rpi_control_publish(rpi_control_group *group, const rpi_failure *failure) {
    rpi_control *control = group->control;
    pthread_mutex_lock(&control->lock);
    if (!group->failed && !group->published) {
        group->published = true;
        group->account = *failure;
        group->account.rank = rank_of(group, failure->rank);
        group->account.finder = control->rank;
        group->account.scope = group->scope;
        group->account.text[sizeof group->account.text - 1] = '\0';
        group->outbox_full = true;
        if (!control->has_thread) rpi_control_keep(group, &group->account);
    }
    pthread_mutex_unlock(&control->lock);
    if (control->wake >= 0) rpi_event_set(control->wake);
}

bool rpi_control_failed(rpi_control_group *group, rpi_failure *out_failure) {
    if (!atomic_load(&group->known)) return false;
    pthread_mutex_lock(&group->control->lock);
    *out_failure = group->failure;
    pthread_mutex_unlock(&group->control->lock);
    return true;
}

bool rpi_control_wait_failed(rpi_control_group *group, int64_t deadline_ns,
                             rpi_failure *out_failure) {
    rpi_control *control = group->control;
    pthread_mutex_lock(&control->lock);
    while (!group->failed && rpi_control_wait_change(control, deadline_ns)) {
    }
    bool failed = group->failed;
    if (failed) *out_failure = group->failure;
    pthread_mutex_unlock(&control->lock);
    return failed;
}

int rpi_control_fd(rpi_control *control) {
    return control->failed_fd;
}

/* Asked by every call: without news it costs no system call. */
void rpi_control_clear_fd(rpi_control *control) {
    if (!atomic_load(&control->told) || !atomic_exchange(&control->told, false)) return;
    rpi_event_clear(control->failed_fd);
}

void rpi_control_note(rpi_control_group *group, uint64_t sequence) {
    atomic_store_explicit(&group->gap, 0, memory_order_relaxed); /* an earlier operation's */
    atomic_store_explicit(&group->sequence, sequence, memory_order_relaxed);
}

void rpi_control_note_gap(rpi_control_group *group, rpi_control_gap gap) {
    int from = rank_of(group, gap.from);
    uint64_t packed = from < 0 ? 0 : gap.step << 24 | (uint64_t)(from + 1);
    atomic_store_explicit(&group->gap, packed, memory_order_relaxed);
}

void rpi_control_beat_of(rpi_control_group *group, int member, rpi_control_beat *out_beat) {
    rpi_control *control = group->control;
    int rank = rank_of(group, member);
    *out_beat = (rpi_control_beat){.gap = {.from = -1}};
    if (rank < 0 || !group->beats) return;
    pthread_mutex_lock(&control->lock);
    const rpi_group_beat *beat = &group->beats[member];
    out_beat->heard_ns = control->heard_ns[rank];
    if (beat->round >= control->rounds[rank]) {
        out_beat->sequence = beat->sequence;
        out_beat->gap = beat->gap;
    }
    pthread_mutex_unlock(&control->lock);
}
